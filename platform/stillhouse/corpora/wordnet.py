"""Synonyms and parts of speech from the YAML files of Open English WordNet.

Words are tagged without their context: an ambiguous word gets the part of speech with most senses. This needs
no model and no download besides WordNet itself, and is sufficient for drawing a replacement of the same kind;
a real tagger can be used instead wherever a tagger is expected.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.rows import numbered_lines

FUNCTION_WORDS = frozenset(
    """
a an the this that these those some any no every each either neither all both half such what which whose
i me my mine myself we us our ours you your yours he him his she her hers it its they them their theirs
who whom one ones someone anyone everyone nothing something anything everything none another other others
and or but nor so yet if then else than as because while although though unless until since whether
of in on at by for with about against between into through during before after above below to from up down
out off over under again per via like without within toward towards upon among across behind beyond near
be am is are was were been being have has had having do does did doing will would shall should can could
may might must ought need not n't there here when where why how too very just only also even still ever
never more most less least much many few little own same now once yes
""".split()
)
"""Words of the closed classes. WordNet lists some of them as nouns: ``in`` is indium."""

_ENDINGS = {
    "n": (("ies", "y"), ("es", ""), ("s", "")),
    "v": (
        *(("ies", "y"), ("es", ""), ("s", "")),
        *(("ied", "y"), ("ed", "e"), ("ed", "")),
        *(("ing", "e"), ("ing", "")),
    ),
}
_INFLECTIONS = {"ies": "s", "es": "s", "s": "s", "ied": "ed", "ed": "ed", "ing": "ing"}


class Synset(NamedTuple):
    """Words with the same meaning."""

    part: str
    members: tuple[str, ...]


class WordNet:
    """Synonyms and parts of speech, by word in any case; ``s`` (satellite adjective) counts as ``a``."""

    def __init__(self, synsets: Iterable[Synset]) -> None:
        self._synsets = list(synsets)
        self._senses: dict[str, Counter[str]] = defaultdict(Counter)
        self._at: dict[str, list[int]] = defaultdict(list)
        for at, synset in enumerate(self._synsets):
            for word in synset.members:
                self._senses[word.lower()][synset.part.replace("s", "a")] += 1
                self._at[word.lower()].append(at)

    def tag(self, words: Sequence[str]) -> list[str | None]:
        """Tag each word with part of speech and ending: ``n``, ``n-s``, ``v-ing``, …; None if unknown.

        The ending is part of the tag so that a plural is replaced by a plural.
        """
        return [self._tag(word.lower()) for word in words]

    def synonyms(self, word: str) -> tuple[str, ...]:
        """List the other words of the synsets that contain the word, in alphabetical order."""
        lowered = word.lower()
        if lowered in FUNCTION_WORDS:
            return ()
        found = {other for at in self._at.get(lowered, ()) for other in self._synsets[at].members}
        return tuple(sorted(other for other in found if other.lower() != lowered))

    def _tag(self, word: str) -> str | None:
        if word in FUNCTION_WORDS:
            return None
        if word in self._senses:
            return _most_frequent(self._senses[word])
        found: Counter[str] = Counter()
        for part, endings in _ENDINGS.items():
            for ending, replacement in endings:
                base = word.removesuffix(ending) + replacement
                if word.endswith(ending) and part in self._senses.get(base, ()):
                    tag = f"{part}-{_INFLECTIONS[ending]}"
                    found[tag] = max(found[tag], self._senses[base][part])
        return _most_frequent(found) if found else None


def read_wordnet(folder: str | Path) -> WordNet:
    """Read ``noun.*.yaml``, ``verb.*.yaml``, ``adj.*.yaml`` and ``adv.*.yaml``, plain or gzipped.

    Raises:
        BadInput: If there are no such files, or a synset has no members or no part of speech.
    """
    return WordNet(synset for file in wordnet_files(folder) for synset in _synsets(file))


def wordnet_files(folder: str | Path) -> list[Path]:
    """List the files that `read_wordnet` reads.

    Raises:
        BadInput: If there are none.
    """
    kinds = ("noun", "verb", "adj", "adv")
    files = sorted(
        file for kind in kinds for end in ("yaml", "yaml.gz") for file in Path(folder).glob(f"{kind}.*.{end}")
    )
    if not files:
        raise BadInput(
            f"a folder of WordNet must have its YAML files, but {folder} has none. Give src/yaml of Open "
            "English WordNet, the folder with noun.act.yaml."
        )
    return files


def _synsets(file: Path) -> Iterator[Synset]:
    """Read the synsets of a file. PyYAML would take a minute; reading two fields by hand takes seconds."""
    name, part, members, field = "", "", list[str](), ""
    for line in (*(text for _, text in numbered_lines(file)), "end:\n"):
        line = line.rstrip("\r\n")
        if line and not line.startswith((" ", "#")):
            if name:
                yield _checked(file, name, part, members)
            name, part, members, field = line, "", [], ""
        elif line.startswith("  ") and line[2:3].isalpha():
            field, _, value = line.strip().partition(":")
            part = value.strip() if field == "partOfSpeech" else part
        elif field == "members" and line.startswith("  - "):
            members.append(line[4:])
        elif field == "members" and members:
            members[-1] += " " + line.strip()


def _checked(file: Path, name: str, part: str, members: list[str]) -> Synset:
    if part not in ("n", "v", "a", "s", "r") or not members:
        raise BadInput(
            f"{file}, {name} must have members and a part of speech (n, v, a, s, r), but has {len(members)} "
            f"members and {part!r}."
        )
    return Synset(part, tuple(_scalar(member, f"{file}, {name}") for member in members))


def _scalar(text: str, where: str) -> str:
    """Parse a YAML scalar, plain or in quotation marks."""
    import yaml

    try:
        return str(yaml.safe_load(text)) if text[:1] in "'\"" else text
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{where} must have members in YAML, but {text!r} is not: {error}.") from None


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
