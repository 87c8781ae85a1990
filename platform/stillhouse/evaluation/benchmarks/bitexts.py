"""The published test sets of translation: Tatoeba of OPUS-MT and of LASER, one file a language, line by line.

* ``laser``: ``tatoeba.deu-eng.deu`` beside ``tatoeba.deu-eng.eng``;
* ``tatoeba``: ``deu-eng/tatoeba-test-v2021-08-07.deu`` beside ``….eng``.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder
from stillhouse.evaluation.items import Items, means
from stillhouse.evaluation.retrieval import LocalSearch, unit
from stillhouse.evaluation.sts import read_lines
from stillhouse.evaluation.translation import hits

ENGLISH = "eng"
FOLDERS = {
    "laser": ("parallel/laser_tatoeba1000", "laser_tatoeba1000", "tatoeba/v1", "."),
    "tatoeba": ("parallel/tatoeba_test", "tatoeba_test", "."),
}
_LASER = re.compile(r"tatoeba\.(\w+)-(\w+)\.(\w+)")
_PAIR = re.compile(r"(\w+)-(\w+)")


@dataclass(frozen=True)
class Bitext:
    """Sentences of a language and their English translations, each a file of as many lines."""

    other: Path
    english: Path

    def read(self) -> tuple[list[str], list[str]]:
        """Both sides, row by row.

        Raises:
            BadInput: Files of different lengths, fewer than two lines, or bytes that are not UTF-8.
        """
        sides = [[line for _, line in read_lines(path)] for path in (self.other, self.english)]
        require(
            len(sides[0]) == len(sides[1]) >= 2,
            "a translation stands in every line",
            **{path.name: len(side) for path, side in zip((self.other, self.english), sides, strict=True)},
            remedy=f"See {self.other.parent}.",
        )
        return sides[0], sides[1]


def find_bitexts(root: str) -> dict[str, Bitext]:
    """The sets under a data root: ``laser.deu``, ``tatoeba.deu`` and so on."""
    found: dict[str, Bitext] = {}
    for layout, folders in FOLDERS.items():
        place = next((Path(root) / each for each in folders if _in(Path(root) / each, layout)), None)
        if place is not None:
            found.update(_in(place, layout))
    return found


def measure_bitext(bitext: Bitext, model: Encoder) -> dict[str, Items]:
    """Accuracy × 100 both ways, a sentence an item: ``to_eng``, ``from_eng`` and their ``mean``."""
    sides = bitext.read()
    row_of = {text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))}
    other_N, english_N = (np.array([row_of[text] for text in side]) for side in sides)
    vectors = unit(model.encode(list(row_of)))
    forth = hits(vectors, other_N, english_N, LocalSearch()).astype(np.float64)
    back = hits(vectors, english_N, other_N, LocalSearch()).astype(np.float64)
    return means({"to_eng": forth, "from_eng": back, "mean": (forth + back) / 2}, scale=100)


def sha256_of_bitexts(bitexts: Mapping[str, Bitext]) -> str:
    """What the sets are known by: their content."""
    digest = hashlib.sha256()
    for name, bitext in bitexts.items():
        for path in (bitext.other, bitext.english):
            content = path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _in(folder: Path, layout: str) -> dict[str, Bitext]:
    """The sets with English in a folder, by language."""
    found: dict[str, Bitext] = {}
    for path in sorted(folder.glob("tatoeba.*" if layout == "laser" else "*-*/*")):
        match = _LASER.fullmatch(path.name) if layout == "laser" else _PAIR.fullmatch(path.parent.name)
        language = path.suffix.removeprefix(".")
        if match and ENGLISH in match.groups()[:2] and language in match.groups()[:2] and language != ENGLISH:
            english = path.with_suffix(f".{ENGLISH}")
            if english.is_file():
                found[f"{layout}.{language}"] = Bitext(path, english)
    return found
