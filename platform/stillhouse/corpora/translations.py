"""Parallel corpora as examples with the columns ``source`` and ``target``.

Equal sentences become one row of their table: a source that is translated into several languages is embedded
by a teacher once.
"""

import itertools
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import numpy as np

from stillhouse.artifacts import Workspace, read_manifest
from stillhouse.console import say
from stillhouse.corpora.parallel import Parallel, read_parallel
from stillhouse.corpora.sentences import dedup_key
from stillhouse.corpora.tables import write_rows, write_texts
from stillhouse.corpora.writing import Rejected
from stillhouse.errors import require
from stillhouse.plan import Examples, TextTable


def write_parallel(
    workspace: Workspace,
    corpora: Sequence[Parallel],
    label: str = "parallel",
    held_out: Sequence[Parallel] = (),
) -> Examples:
    """Write corpora, one after the other, as examples; a pair that came before is dropped.

    The manifest's ``parallel`` says of every corpus its language and how many rows were read, kept, dropped
    as duplicates and set aside, by reason.

    Args:
        workspace: Where tables and rows will stand.
        corpora: At least one.
        label: Readable name.
        held_out: Corpora that are for evaluation: a pair with a sentence of theirs, on either side and up to
            case, white space and closing punctuation, is set aside. Collections of common sentences overlap.

    Raises:
        BadInput: See `read_parallel`; or not one usable pair is there.
    """
    require(len(corpora) > 0, "a parallel corpus is given", corpora=len(corpora))
    kept_back = {dedup_key(text) for corpus in held_out for text in _sentences(corpus)}
    workspace.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=workspace.root, prefix=".parallel-") as folder:
        sides = {name: _Side(Path(folder) / name) for name in ("source", "target")}
        seen: set[tuple[int, int]] = set()
        notes = [_take(corpus, sides, seen, kept_back) for corpus in corpora]
        require(bool(seen), "a parallel corpus has at least one usable pair", read=notes)
        rows = {name: np.array(side.rows, dtype=np.int64) for name, side in sides.items()}
        tables = {name: side.write(workspace, f"{label}-{name}") for name, side in sides.items()}
    examples = write_rows(workspace, tables, rows, label, {"parallel": notes})
    for note in notes:
        aside = ", ".join(f"{count:,} {reason}" for reason, count in note["set_aside"].items())
        say(
            f"  {label} {note['language']}: {note['read']:,} pairs read, {note['rows']:,} kept, "
            f"{note['duplicates']:,} duplicates, set aside: {aside or 'none'}"
        )
    return examples


def language_spans(workspace: Workspace, examples: Examples) -> list[tuple[str, range]]:
    """The target's language of every run of rows, in order.

    Raises:
        BadInput: The examples are not finished, or no parallel corpus.
    """
    manifest = read_manifest(workspace.path(examples))
    require("parallel" in manifest, "the examples are a parallel corpus", examples=examples.label)
    ends = itertools.accumulate(note["rows"] for note in manifest["parallel"])
    notes = zip(manifest["parallel"], ends, strict=True)
    return [(note["language"], range(end - note["rows"], end)) for note, end in notes]


class _Side:
    """The different texts of one column, in a file, and the row ids; memory holds 16 bytes a text."""

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


def _sentences(corpus: Parallel) -> Iterator[str]:
    for pair in read_parallel(corpus):
        yield from () if isinstance(pair, Rejected) else pair


def _take(
    corpus: Parallel, sides: Mapping[str, _Side], seen: set[tuple[int, int]], kept_back: set[bytes]
) -> dict[str, Any]:
    read, duplicates, kept, reasons = 0, 0, 0, Counter[str]()
    for pair in read_parallel(corpus):
        read += 1
        if isinstance(pair, Rejected):
            reasons[pair.reason] += 1
            continue
        if kept_back and not kept_back.isdisjoint(map(dedup_key, pair)):
            reasons["held out"] += 1
            continue
        rows = sides["source"].place(pair[0]), sides["target"].place(pair[1])
        if rows in seen:
            duplicates += 1
            continue
        seen.add(rows)
        for side, row in zip(sides.values(), rows, strict=True):
            side.rows.append(row)
        kept += 1
        if kept == corpus.limit:
            break
    counts = {
        "rows": kept,
        "read": read,
        "duplicates": duplicates,
        "set_aside": dict(sorted(reasons.items())),
    }
    return {"language": corpus.language, "source": corpus.source, "target": corpus.target, **counts}
