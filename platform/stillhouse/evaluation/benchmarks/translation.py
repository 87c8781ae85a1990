"""Tatoeba: accuracy × 100 of finding translations both ways, in two published layouts.

One file per language, line by line:

* ``laser``, the 1000 sentences of LASER: ``tatoeba.deu-eng.deu`` beside ``tatoeba.deu-eng.eng``;
* ``tatoeba``, the test sets of OPUS-MT: ``deu-eng/tatoeba-test-v2021-08-07.deu`` beside ``….eng``.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmark import About, Benchmark, Options, hash_of, itemised, opened
from stillhouse.evaluation.items import Items, Measured, average, means, measured
from stillhouse.evaluation.retrieval import LocalSearch
from stillhouse.evaluation.sts import read_lines
from stillhouse.evaluation.translation_accuracy import hits

NEEDS_DATA = True
MTEB_TASKS = ("Tatoeba",)

ENGLISH = "eng"
FOLDERS = {
    "laser": ("parallel/laser_tatoeba1000", "laser_tatoeba1000", "tatoeba/v1", "."),
    "tatoeba": ("parallel/tatoeba_test", "tatoeba_test", "."),
}
_LASER = re.compile(r"tatoeba\.(\w+)-(\w+)\.(\w+)")
_PAIR = re.compile(r"(\w+)-(\w+)")


def prepare(root: str, options: Options) -> Benchmark:
    """Find and read the sets."""
    sets = find_bitexts(root)
    if not sets:
        folders = " or ".join(folders[0] for folders in FOLDERS.values())
        raise BadInput(f"no Tatoeba files under the data root {root!r}. Put them in {folders}.")
    for each in sets.values():
        each.read()

    def measure(model: Encoder) -> Measured:
        items = {name: measure_bitext(each, model) for name, each in sets.items()}
        for layout in FOLDERS:
            own = [each for name, each in items.items() if name.startswith(f"{layout}.")]
            if len(own) > 1:
                items[f"{layout}.avg"] = {kind: average(each[kind] for each in own) for kind in own[0]}
        return measured(items)

    about = {
        name: About("all", hash_of((each.other, each.english)), "sentences") for name, each in sets.items()
    }
    opens = opened(options, sha256_of_bitexts(sets))
    return itemised(measure, sets=about, opens=opens, across=False)


@dataclass(frozen=True)
class Bitext:
    """Files with the sentences of a language and their English translations, line by line."""

    other: Path
    english: Path

    def read(self) -> tuple[list[str], list[str]]:
        """Read both sides.

        Raises:
            BadInput: If the files differ in length, have fewer than two lines, or are not UTF-8.
        """
        sides = [[line for _, line in read_lines(path)] for path in (self.other, self.english)]
        if not len(sides[0]) == len(sides[1]) >= 2:
            raise BadInput(
                f"{self.other.name} and {self.english.name} in {self.other.parent} must have the same number "
                f"of lines, at least 2, but have {len(sides[0])} and {len(sides[1])}."
            )
        return sides[0], sides[1]


def find_bitexts(root: str) -> dict[str, Bitext]:
    """Find the sets under a data root: ``laser.deu``, ``tatoeba.deu`` and so on."""
    found: dict[str, Bitext] = {}
    for layout, folders in FOLDERS.items():
        paths = (Path(root) / folder for folder in folders)
        found |= next(filter(None, (_bitexts_in(path, layout) for path in paths)), {})
    return found


def measure_bitext(bitext: Bitext, model: Encoder) -> dict[str, Items]:
    """Measure accuracy × 100 both ways, one item per sentence: ``to_eng``, ``from_eng`` and ``mean``."""
    to_english, from_english = (each.astype(np.float64) for each in hits(bitext.read(), model, LocalSearch()))
    both = (to_english + from_english) / 2
    return means({"to_eng": to_english, "from_eng": from_english, "mean": both}, scale=100)


def sha256_of_bitexts(bitexts: Mapping[str, Bitext]) -> str:
    """Hash the content of the sets."""
    digest = hashlib.sha256()
    for name, bitext in bitexts.items():
        for path in (bitext.other, bitext.english):
            content = path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _bitexts_in(folder: Path, layout: str) -> dict[str, Bitext]:
    """Find the sets with English in one folder, by language."""
    found: dict[str, Bitext] = {}
    for path in sorted(folder.glob("tatoeba.*" if layout == "laser" else "*-*/*")):
        match = _LASER.fullmatch(path.name) if layout == "laser" else _PAIR.fullmatch(path.parent.name)
        language = path.suffix.removeprefix(".")
        if match and ENGLISH in match.groups()[:2] and language in match.groups()[:2] and language != ENGLISH:
            english = path.with_suffix(f".{ENGLISH}")
            if english.is_file():
                found[f"{layout}.{language}"] = Bitext(path, english)
    return found
