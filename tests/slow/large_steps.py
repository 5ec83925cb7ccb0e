"""One step of a large checkpoint's way to an answer, run as a process of its own."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "tiny-checkpoint"
NAME = "large"

SIZES = {
    "modernbert-large": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 2624,
        "vocab_size": 50368,
        "local_rope_theta": 10000.0,
    },
    "mmbert-base": {
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "vocab_size": 256000,
        "local_rope_theta": 160000.0,
    },
}
SHARED = {
    "model_type": "modernbert",
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
}


def write(size: str, directory: Path) -> dict[str, object]:
    """Write a checkpoint of random weights, as float16 like the published ones."""
    import torch

    from drut_export.checkpoint_loading import save_checkpoint
    from drut_export.encoders import build_encoder
    from drut_export.modeling import DecisionModel

    torch.manual_seed(0)
    encoder = build_encoder({**SHARED, **SIZES[size]})
    model = DecisionModel(encoder, head_layers=2, actions=2)
    config = json.loads((TINY / "rl_agent_config.json").read_text(encoding="utf-8"))
    config |= {"head_layers": 2, "max_len": 512, "head_max_len": 192, "temperature_by_options": {}}
    save_checkpoint(directory / "checkpoint", model, config, (TINY / "tokenizer").iterdir())
    return {"parameters": sum(each.numel() for each in model.parameters())}


def export(size: str, directory: Path) -> dict[str, object]:
    """Export it; the export verifies the graph."""
    from drut_export.repository import ExportRequest, export_checkpoint

    bundle = export_checkpoint(
        ExportRequest(directory / "checkpoint", NAME, directory / "models"),
        progress=lambda line: print(f"{time.monotonic():.1f} {line}", file=sys.stderr, flush=True),
    )
    stored = sum(each["bytes"] for each in bundle.manifest["files"].values())
    return {"bytes": stored, **bundle.manifest["verification"]}


def predict(size: str, directory: Path) -> dict[str, object]:
    """Load the bundle and ask two questions."""
    import drut

    questions = {
        "urgent": {"type": "noul", "instructions": "Is it urgent?"},
        "team": {"type": "choice", "instructions": "Who?", "criteria": {"a": "money", "b": "bugs"}},
    }
    with drut.load(directory / "models" / NAME, device="cpu") as agent:
        result = agent.predict("I was charged twice.", questions)
    return {"answers": result["answers"]}


STEPS: dict[str, Callable[[str, Path], dict[str, object]]] = {
    "write": write,
    "export": export,
    "predict": predict,
}

if __name__ == "__main__":
    step, size, place = sys.argv[1:]
    start = time.monotonic()
    told = STEPS[step](size, Path(place))
    print(json.dumps({**told, "seconds": round(time.monotonic() - start, 1)}))
