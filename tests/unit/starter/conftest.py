"""A tiny bank, WordNet, tokenizer and encoder: no test needs the packaged model or the database."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# The starter is no installed package.
for folder in (ROOT, ROOT / "src", ROOT / "export"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

BANK = """= choice | post
! Where to?
! Which team?
@ billing / payments :: about money
- charged twice
- where is my invoice
- the bill is wrong
@ technical / faults
- it crashes
- no picture
- an error on start
@ shipping
- where is my parcel
- the parcel came late
= choice | colours
! Which colour is it?
@ red
- the red one
- a red thing
@ blue
- the blue one
- a blue thing
@ green
- the green one
- a green thing
= noul
! Is it urgent?
+ now please
+ do it at once
- no hurry
- some day
= score
! How bad is it?
@ harmless
- all is well
- nothing happened
@ annoying
- it is slow
- it hangs a bit
@ blocking
- nobody can work
- all is down
"""
KINDS = {
    "fruit": "apple pear plum",
    "tool": "hammer drill saw",
    "bird": "crow owl finch",
    "metal": "iron tin zinc",
    "vessel": "cup jug bowl",
    "garment": "shirt coat sock",
    "insect": "wasp moth louse",
    "tree": "oak elm birch",
    "vehicle": "tram lorry sledge",
    "dance": "waltz polka tango",
    "drink": "tea cider milk",
    "game": "chess poker darts",
}
VERBS = "run sing write lift cook swim read dig"
ADJECTIVES = "warm slow loud thin sour wide calm dull"
LICENCE = "  1 lines of the licence are indented\n  2 so that they can be told from records\n"


def write_wordnet(directory):
    """A made-up database: kinds of three words each below one root, verbs and adjectives."""
    records = {"noun": [("root", "03", None)], "verb": [], "adj": []}
    for kind, words in KINDS.items():
        records["noun"].append((kind, "06", "root"))
        records["noun"] += [(word, "06", kind) for word in words.split()]
    records["verb"] = [(word, "38", None) for word in VERBS.split()]
    records["adj"] = [(word, "00", None) for word in ADJECTIVES.split()]
    directory.mkdir()
    for name, found in records.items():
        part = name[0]
        offsets = {word: f"{number:08}" for number, (word, _, _) in enumerate(found, start=1)}
        data, index = LICENCE, LICENCE
        for word, subject, above in found:
            pointers = f"001 @ {offsets[above]} {part} 0000" if above else "000"
            gloss = f'what people call {word}; "they know the {word} quite well"'
            data += f"{offsets[word]} {subject} {part} 01 {word} 0 {pointers} | {gloss}  \n"
            marks = "1 @" if above else "0"
            index += f"{word} {part} 1 {marks} 1 1 {offsets[word]}  \n"
        (directory / f"data.{name}").write_text(data, encoding="latin-1")
        (directory / f"index.{name}").write_text(index, encoding="latin-1")
    return directory


@pytest.fixture(scope="session")
def schemas():
    """The committed bank."""
    from starter.bank import bank_files, load_schemas, usable

    return usable(load_schemas(bank_files()))


@pytest.fixture(scope="session")
def drawn(schemas):
    """Two thousand examples without WordNet, which a machine need not have."""
    from starter.generate import Generator

    generator = Generator(schemas, seed=3)
    return [generator.sample() for _ in range(2000)]


@pytest.fixture(scope="session")
def wordnet_directory(tmp_path_factory):
    return write_wordnet(tmp_path_factory.mktemp("database") / "wordnet")


@pytest.fixture(scope="session")
def net(wordnet_directory):
    from starter.wordnet import load_wordnet

    return load_wordnet(wordnet_directory)


@pytest.fixture(scope="session")
def bank_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("bank") / "tiny.txt"
    path.write_text(BANK, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """Uncased WordPiece over the bank's words and all single characters, as `tokenizer.json`."""
    import json
    import string

    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = sorted({word.strip("?,") for word in BANK.lower().split() if word.isalpha()})
    characters = list(string.ascii_lowercase + string.digits + string.punctuation)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    pieces += [f"##{character}" for character in characters]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys([*pieces, *words]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(pieces[:5])
    return json.loads(tokenizer.to_str())


@pytest.fixture
def tiny_setup(bank_file, tiny_tokenizer, net):
    """What a training run works with, in small: random weights, seeded."""
    import torch
    from starter.bank import load_schemas
    from starter.checkpoint import HEAD_LAYERS, Parts
    from starter.evalsets import schema_items
    from starter.generate import Generator
    from starter.minilm import Embedder
    from starter.model_data import Encoder
    from starter.train import LONGEST_ROW, Setup

    from drut_export.encoders import build_encoder
    from drut_export.modeling import DecisionModel

    config = {
        "model_type": "bert",
        "vocab_size": len(tiny_tokenizer["model"]["vocab"]),
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 512,
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model only loses time by more
    torch.manual_seed(5)
    parts = Parts(config, tiny_tokenizer)
    model = DecisionModel(build_encoder(config), head_layers=HEAD_LAYERS, actions=1)
    yield Setup(
        model=model,
        parts=parts,
        encoder=Encoder(parts.build_tokenizer(), LONGEST_ROW),
        generator=Generator(load_schemas([bank_file]), seed=1, net=net),
        embedder=Embedder(build_encoder(config).eval(), parts.build_tokenizer()),
        held_out=schema_items(bank_file),
    )
    torch.set_num_threads(threads)
