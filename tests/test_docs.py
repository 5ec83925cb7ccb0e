"""The pages hold what the contract asks of them, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from drut.hooks.protocol import EVENTS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "starter" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Anchors of a page: its own, and those that renderers make of its headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        place, _, anchor = target.partition("#")
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("name", ["lifecycle.md", "errors.md", "patterns.md"])
def test_L166_the_pages_are_siblings_and_reach_the_cache(name: str) -> None:
    assert (ROOT / "docs" / "hooks" / name).is_file()
    text = (ROOT / "docs" / "hooks" / "lifecycle.md").read_text(encoding="utf-8")
    assert {"../../examples/hooks/cache.py", "errors.md", "patterns.md"} <= set(LINK.findall(text))


def test_L167_sections_have_their_anchors() -> None:
    assert anchors(ROOT / "docs" / "hooks" / "lifecycle.md") >= {
        "agentpredict_batch",
        "agentsystem_one-predict",
        "routerpredict",
        "routerpredict_batch",
        "model-lifecycle",
        "caching-with-skip",
        "empty-inputs",
        "ordering-rules",
        "concurrency",
    }


def test_every_event_is_documented() -> None:
    text = (ROOT / "docs" / "hooks" / "lifecycle.md").read_text(encoding="utf-8")
    assert [event for event in EVENTS if f"`{event}`" not in text] == []
