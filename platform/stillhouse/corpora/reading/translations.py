"""Parallel corpora as examples with the columns ``source`` and ``target``.

Equal sentences become one row of their table, so that a teacher embeds a source once even if it is translated
into several languages.
"""

import itertools
import tempfile
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray
from stillhouse.corpora.reading.corpus import hub_name
from stillhouse.corpora.reading.counting import Taking
from stillhouse.corpora.reading.parallel import ParallelCorpus, read_parallel
from stillhouse.corpora.reading.sentences import dedup_key
from stillhouse.corpora.tables import Rejected, open_rows, open_texts, write_rows, write_texts
from stillhouse.values.data import Examples, TextTable


def write_parallel(
    workspace: Workspace,
    corpora: Sequence[ParallelCorpus],
    label: str = "parallel",
    held_out: Sequence[ParallelCorpus] = (),
) -> Examples:
    """Write corpora, one after the other, as examples without duplicate pairs.

    ``parallel`` in the manifest has for every corpus its language and the number of rows that were read,
    kept, dropped as duplicates, and set aside by reason.

    Args:
        workspace: Workspace for tables and rows.
        corpora: One corpus or more.
        label: Readable name of the examples.
        held_out: Corpora for evaluation. Pairs that share a sentence with them, on either side and up to
            case, white space and closing punctuation, are set aside, since collections often overlap.

    Raises:
        BadInput: As for `read_parallel`, or if there is no usable pair.
    """
    require(len(corpora) > 0, "parallel corpora >= 1", corpora=len(corpora))
    kept_back = {dedup_key(text) for corpus in held_out for text in _sentences(corpus)}
    workspace.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=workspace.root, prefix=".parallel-") as folder:
        sides = {name: _Side(Path(folder) / name) for name in ("source", "target")}
        seen: set[tuple[int, int]] = set()
        notes = [_take(corpus, sides, seen, kept_back) for corpus in corpora]
        if not seen:
            raise BadInput(f"a parallel corpus must have at least one usable pair, but has none: {notes}.")
        rows = {name: np.array(side.rows, dtype=np.int64) for name, side in sides.items()}
        tables = {name: side.write(workspace, f"{label}-{name}") for name, side in sides.items()}
    examples = write_rows(workspace, tables, rows, label, {"parallel": notes})
    for note in notes:
        aside = ", ".join(f"{count:,} {reason}" for reason, count in note["set_aside"].items())
        taken = note.get("taken", f"{note['read']:,} pairs read, {note['rows']:,} kept")
        say(
            f"  {label} {note['language']}: {taken}, "
            f"{note['duplicates']:,} duplicates, set aside: {aside or 'none'}"
        )
    return examples


def language_spans(workspace: Workspace, examples: Examples) -> list[tuple[str, range]]:
    """List the target languages with their ranges of rows, in order.

    Raises:
        BadInput: If the examples are not finished, or are not a parallel corpus.
    """
    manifest = read_manifest(workspace.path(examples))
    if "parallel" not in manifest:
        raise BadInput(f"the examples {examples.label} must be a parallel corpus, but are not.")
    ends = itertools.accumulate(note["rows"] for note in manifest["parallel"])
    notes = zip(manifest["parallel"], ends, strict=True)
    return [(note["language"], range(end - note["rows"], end)) for note, end in notes]


def split_parallel(
    workspace: Workspace, examples: Examples, held_out: int
) -> tuple[Examples, Examples, Examples]:
    """Split into training, dev and test pairs; training pairs share no sentence with dev or test pairs.

    The hash of a source's text decides whether it may be held out, and dev and test share no sources. The
    training pairs stay in the order of their corpora, one range of rows for each.

    Args:
        workspace: Holds the examples.
        examples: From `write_parallel`.
        held_out: Pairs per language for dev, and the same number for test; at most a tenth of a language.

    Raises:
        BadInput: If a language has too few pairs, or nothing is left to train on.
    """
    rows = {name: np.asarray(ids) for name, ids in open_rows(workspace, examples).items()}
    place_N = _places(workspace, examples.columns["source"])[rows["source"]]
    chosen: dict[str, dict[str, npt.NDArray[np.int64]]] = {"dev": {}, "test": {}}
    corpora = [(language, np.asarray(span)) for language, span in language_spans(workspace, examples)]
    for language in dict.fromkeys(language for language, _ in corpora):
        mine = np.concatenate([ids for other, ids in corpora if other == language])
        size = min(held_out, len(mine) // 10)
        if size < 2:
            raise BadInput(
                f"at least 2 and at most a tenth of the pairs per language must be held out, but {language} "
                f"has {len(mine)} pairs and held_out={held_out}."
            )
        for parity, split in enumerate(chosen):
            able = mine[place_N[mine] % 2 == parity]
            chosen[split][language] = np.sort(able[np.argsort(place_N[able], kind="stable")[:size]])
    held = np.concatenate([ids for split in chosen.values() for ids in split.values()])
    taken_N = np.logical_or.reduce([np.isin(ids, ids[held]) for ids in rows.values()])
    parts = {
        "train": [(language, mine[~taken_N[mine]]) for language, mine in corpora],
        **{split: list(languages.items()) for split, languages in chosen.items()},
    }
    made = [
        _part(workspace, examples, rows, part, f"{examples.label}-{name}") for name, part in parts.items()
    ]
    return made[0], made[1], made[2]


def pairs_of_corpora(
    workspace: Workspace, examples: Examples, places: Collection[int], label: str
) -> Examples:
    """Pick the pairs of some of the corpora that examples were written from.

    Args:
        workspace: Holds the examples.
        examples: From `write_parallel`, or the training pairs of `split_parallel`.
        places: Positions of the corpora, in the order in which they were written.
        label: Readable name of the result.

    Raises:
        BadInput: If these corpora have no pair.
    """
    rows = {name: np.asarray(ids) for name, ids in open_rows(workspace, examples).items()}
    spans = language_spans(workspace, examples)
    part = [(language, np.asarray(span)) for at, (language, span) in enumerate(spans) if at in places]
    require(
        any(len(ids) for _, ids in part),
        "the corpora of a stage must have a pair that is neither held out nor in another corpus",
        corpora=sorted(places),
    )
    return _part(workspace, examples, rows, part, label)


def _places(workspace: Workspace, table: TextTable) -> npt.NDArray[np.uint64]:
    """Hash every text to a number."""
    texts = open_texts(workspace, table)
    shards = (texts.shard(index) for index in range(len(texts.shard_starts)))
    hashes = (blake2b(text.encode(), digest_size=8).digest() for shard in shards for text in shard)
    return np.frombuffer(b"".join(hashes), dtype=np.uint64)


def _part(
    workspace: Workspace,
    examples: Examples,
    rows: Mapping[str, IntArray],
    part: Sequence[tuple[str, npt.NDArray[np.int64]]],
    label: str,
) -> Examples:
    everything = np.concatenate([ids for _, ids in part])
    notes = [{"language": language, "rows": len(ids)} for language, ids in part]
    picked = {name: ids[everything] for name, ids in rows.items()}
    return write_rows(workspace, examples.columns, picked, label, {"parallel": notes})


class _Side:
    """The distinct texts of one column, in a file, and the row ids; memory holds 16 bytes per text."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, array("q")
        self.row_of: dict[bytes, int] = {}
        self.file: IO[str] = path.open("w", encoding="utf-8", newline="\n")

    def place(self, text: str) -> int:
        key = blake2b(text.encode(), digest_size=16).digest()
        if key not in self.row_of:
            self.row_of[key] = len(self.row_of)
            self.file.write(text + "\n")
        return self.row_of[key]

    def write(self, workspace: Workspace, label: str) -> TextTable:
        self.file.close()
        with self.path.open(encoding="utf-8", newline="\n") as lines:
            texts = (line.removesuffix("\n") for line in lines)
            return write_texts(workspace, label, texts, deduplicate=False, origin={"parallel": True})


def _sentences(corpus: ParallelCorpus) -> Iterator[str]:
    for pair in read_parallel(corpus):
        yield from () if isinstance(pair, Rejected) else pair


def _take(
    corpus: ParallelCorpus, sides: Mapping[str, _Side], seen: set[tuple[int, int]], kept_back: set[bytes]
) -> dict[str, Any]:
    kept, reasons = 0, Counter[str]()

    def usable() -> Iterator[tuple[str, str]]:
        for pair in read_parallel(corpus):
            if isinstance(pair, Rejected):
                reasons[pair.reason] += 1
            elif kept_back and not kept_back.isdisjoint(map(dedup_key, pair)):
                reasons["held out"] += 1
            else:
                yield pair

    taking = Taking[tuple[str, str]](corpus.limit, stream=hub_name(corpus.source) is not None)
    for pair in taking.of(usable(), lambda pair: "\t".join(pair).encode()):
        rows = sides["source"].place(pair[0]), sides["target"].place(pair[1])
        if rows not in seen:
            seen.add(rows)
            kept += 1
            for side, row in zip(sides.values(), rows, strict=True):
                side.rows.append(row)
    counts = {
        "rows": kept,
        "read": taking.read + reasons.total(),
        "duplicates": (taking.taken if taking.partial else taking.read) - kept,
        "set_aside": dict(sorted(reasons.items())),
        **({"taken": taking.said(kept, "pairs")} if taking.partial else {}),
    }
    return {"language": corpus.language, "source": corpus.source, "target": corpus.target, **counts}
