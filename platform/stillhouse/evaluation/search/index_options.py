"""The indexes of FAISS by name, with their parameters; FAISS itself is not loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stillhouse.core.errors import BadInput, nearest, require

PARAMETERS: dict[str, dict[str, tuple[int, int, int]]] = {
    "flat": {},
    "hnsw": {"m": (32, 2, 512), "ef_construction": (200, 1, 10_000), "ef_search": (128, 1, 10_000)},
    "ivfpq": {
        "nlist": (0, 0, 1 << 20),
        "m": (0, 0, 4096),
        "nbits": (8, 4, 12),
        "nprobe": (16, 1, 1 << 20),
        "train": (0, 0, 1 << 26),
    },
    "flat-gpu": {"device": (0, 0, 63)},
}
"""Index to parameter to (default, lowest value, highest value)."""


@dataclass(frozen=True)
class IndexChoice:
    """An index with all its parameters, including defaults, checked."""

    kind: str
    parameters: Mapping[str, int]


def parse_index(text: str, *, others: Sequence[str] = ()) -> IndexChoice:
    """Parse an index such as ``hnsw`` or ``hnsw:m=16,ef_search=64``.

    ``others`` names further indexes that the caller knows, such as ``exact``; they take no parameters.

    Raises:
        BadInput: If the index or a parameter is unknown, or a value is out of range.
    """
    kind, _, pairs = text.strip().partition(":")
    every = {**{name: {} for name in others}, **PARAMETERS}
    if kind not in every:
        raise BadInput(f"unknown index `{kind}`. {nearest(kind, list(every))}")
    known = every[kind]
    values = {name: default for name, (default, _, _) in known.items()}
    for pair in filter(None, pairs.split(",")):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in known:
            remedy = nearest(name, list(known)) if known else "It has no parameters."
            raise BadInput(f"unknown parameter `{name}` of {kind}. {remedy}")
        _, low, high = known[name]
        fits = value.isdecimal() and low <= int(value) <= high
        require(fits, f"{low} <= {name} <= {high}, a whole number", index=text, **{name: value})
        values[name] = int(value)
    return IndexChoice(kind, values)
