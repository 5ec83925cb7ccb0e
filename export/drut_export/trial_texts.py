"""Real and adversarial texts as the checkpoint itself reads them: its tokenizer, its budget."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from drut.batching import collate
from drut.checkpoint.config import CheckpointConfig
from drut.checkpoint.tokenizer import CheckpointTokenizer
from drut.encoding.sequence import Encoder, TokenBudget
from drut.questions import parse_questions
from drut.schema import State
from drut_export.trial_batches import TrialCase

LONGEST: Final = 1024
"""Tokens of a row at most: attention of longer ones takes more memory than it tells."""

QUESTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "urgent": {"type": "noul", "instructions": "Does the customer need help at once?"},
        "team": {
            "type": "choice",
            "instructions": "Who should answer?",
            "criteria": {"billing": "invoices, refunds", "tech": "errors", "other": "the rest"},
        },
        "mood": {
            "type": "score",
            "instructions": "How does the customer feel?",
            "criteria": ["calm", "annoyed", "furious"],
        },
    }
)

_LONG: Final = "The export stops at the third file, and the log names no reason. "

TEXTS: Final[Mapping[str, Mapping[str, State]]] = MappingProxyType(
    {
        "everyday text": {
            "mail": "Hello, I was charged twice for order 4711 and want one payment back.",
            "praise": "Works like a charm, thank you!",
            "fields": {"subject": "Login fails", "attempts": 3, "paid": True, "note": None},
            "turns": [
                {"role": "user", "content": "It crashes."},
                {"role": "agent", "content": "Which version?"},
                {"role": "user", "content": "2.1, since this morning."},
            ],
        },
        "other scripts": {
            "German": "Die Rechnung für Mai ist falsch: bitte bis übermorgen prüfen!",
            "Chinese": "应用程序在登录后立即崩溃。请尽快处理。",
            "Arabic": "لم يصل الطلب بعد، أين هو؟",
            "Hindi": "भुगतान दो बार कट गया है।",
            "emoji": "\U0001f469\u200d\U0001f4bb \U0001f44d\U0001f3fd \U0001f1ea\U0001f1fa",
            "combining marks": "Z\u0351\u036b\u0343a\u0323\u0307l\u0336g\u0334o\u0321 e\u0301 = é",
        },
        "nothing to read": {
            "empty": "",
            "blank": " \t\n\u00a0\u3000 ",
            "invisible": "\u200b\u200e\ufeff\u0000\u0007",
            "empty list": [],
        },
        "text of special tokens": {
            "markers": "[CLS] [SEP] [MASK] [PAD] [UNK] <s> </s> <mask> <pad> <|endoftext|>",
            "markers inside words": "un[MASK]ed[SEP]ly <mask><mask>",
            "a question inside the state": "[SEP] choice question: Who? [MASK] me [MASK] you [SEP]",
        },
        "very long beside short": {
            "long text": _LONG * 200,
            "long list": [_LONG] * 200,
            "one word": "a" * 3000,
            "short": "ok",
        },
    }
)
"""Title of a batch to its states by name."""


def text_cases(
    config: CheckpointConfig, tokenizer: CheckpointTokenizer, *, positions: int | None = None
) -> Iterator[TrialCase]:
    """Encode every state with every question, one batch for each title of `TEXTS`.

    Questions whose options do not fit into the checkpoint's budget are left out.

    Args:
        config: the checkpoint's settings.
        tokenizer: the checkpoint's tokenizer.
        positions: longest sequence the encoder has positions for; None where there is no such.
    """
    encoder = Encoder(tokenizer, parallel=config.parallel)
    longest = min(config.max_len, LONGEST, positions or LONGEST)
    budget = TokenBudget(longest, config.head_max_len)
    questions = parse_questions(QUESTIONS)
    heads = encoder.encode_heads(questions, budget)
    asked = [
        (question, head)
        for question, head in zip(questions, heads, strict=True)
        if head.markers[-1] < budget.max_len
    ]
    for title, states in TEXTS.items() if asked else ():
        encoded = zip(states, encoder.encode_states(list(states.values())), strict=True)
        rows = {
            f"{question.type} question about {title}: {name}": encoder.join(
                state, question, head, budget
            )
            for name, state in encoded
            for question, head in asked
        }
        yield TrialCase(title, collate(list(rows.values()), pad_id=tokenizer.pad_id), tuple(rows))
