"""The grammar of the hand-written texts: `(a|b)` picks an alternative, `{slot}` a filler word."""

import random
import re
from collections.abc import Mapping
from typing import Final

MAX_NESTING: Final = 6


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SLOTS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": _words(
        "Anna Ben Carla David Emma Farid Grace Hugo Ines Jonas Kim Liam Maria Noor Olga Pedro "
        "Quinn Rosa Sven Tara Umar Vera Wei Yuki Zoe Priya Ahmed Lucy Tom Nadia Oscar Mia Leo "
        "Chloe Daniel Fatima Ivan Julia Karl Lena Marco Nora Paul Sara Theo Victor"
    ),
    "city": _words(
        "Berlin London Lisbon Oslo Boston Chicago Madrid Rome Tokyo Sydney Toronto Nairobi Mumbai "
        "Cairo Vienna Dublin Lyon Porto Seattle Austin Prague Lima Denver Munich Leeds Milan"
    ),
    "day": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "month": _words(
        "January February March April May June July August September October November December"
    ),
    "company": (
        "Acme",
        "Northwind",
        "Globex",
        "BlueLeaf",
        "Initech",
        "Umbra Systems",
        "Solvento",
        "Kestrel Media",
        "Tarn Foods",
        "Orbit Labs",
        "Halden Bank",
        "Vista Air",
        "Fernhill",
        "Corvid Tools",
    ),
    "product": (
        "toaster",
        "lamp",
        "headset",
        "watch",
        "backpack",
        "vacuum cleaner",
        "speaker",
        "tent",
        "office chair",
        "coffee machine",
        "phone case",
        "drill",
        "keyboard",
        "mattress",
        "jacket",
        "bike light",
        "kettle",
        "printer",
        "tablet",
        "pan",
        "monitor",
        "blender",
        "desk",
        "camera",
    ),
    "topic": (
        "solar power",
        "chess openings",
        "sleep",
        "electric cars",
        "remote work",
        "volcanoes",
        "tea",
        "inflation",
        "robots",
        "the ocean",
        "gardening",
        "ancient Rome",
        "running shoes",
        "bees",
    ),
}
COMPUTED_SLOTS: Final = ("n", "money", "time")
MONEY_FORMATS: Final = ("$%d", "%d euros", "%d dollars", "£%d", "%d.99", "EUR %d", "$%d.50")
AMOUNTS: Final = (5, 12, 19, 29, 45, 60, 99, 120, 250, 480, 900, 1500)

_ALTERNATIVES: Final = re.compile(r"\(([^()]*\|[^()]*)\)")
_SLOT: Final = re.compile(r"\{(\w+)\}")


def expand(text: str, rng: random.Random) -> str:
    """Return one reading of a text: alternatives picked, slots filled, `\\n` made a line break."""
    for _ in range(MAX_NESTING):
        picked = _ALTERNATIVES.sub(lambda found: rng.choice(found.group(1).split("|")), text)
        if picked == text:
            break
        text = picked
    filled = _SLOT.sub(lambda found: _fill(found.group(1), rng), text)
    return filled.replace("\\n", "\n")


def unknown_slots(text: str) -> list[str]:
    """Names of slots in the text that the grammar does not know."""
    return [
        name for name in _SLOT.findall(text) if name not in SLOTS and name not in COMPUTED_SLOTS
    ]


def _fill(slot: str, rng: random.Random) -> str:
    if slot == "n":
        return str(rng.randint(1, 9))
    if slot == "money":
        return rng.choice(MONEY_FORMATS) % rng.choice(AMOUNTS)
    if slot == "time":
        return _clock(rng)
    return rng.choice(SLOTS[slot]) if slot in SLOTS else "{" + slot + "}"


def _clock(rng: random.Random) -> str:
    return rng.choice(
        (
            f"{rng.randint(5, 11)} am",
            f"{rng.randint(1, 11)} pm",
            f"{rng.randint(6, 21)}:30",
            "noon",
            f"{rng.randint(5, 11)} o'clock",
        )
    )
