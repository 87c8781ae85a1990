"""The writing end of a text table: shards in a temporary folder, and an account of every row."""

import contextlib
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.artifacts import locked, replacing, sha256_of
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.sentences import dedup_key

_SHOWN = 200
_TEMPORARY = ".writing-"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row of a corpus that cannot be used.

    Attributes:
        raw: What was read, as far as it can be shown.
        reason: Why it cannot be used.
    """

    raw: str
    reason: str


@dataclass
class ShardWriter:
    """The open shard of a table, and what has been counted so far.

    Attributes:
        folder: Where the shards go.
        rows_per_shard: Rows of every shard but the last.
        deduplicate: Keep the first of equal texts.
        reasons: How many rows were quarantined, by reason.
        input_rows: All rows that came.
    """

    folder: Path
    rows_per_shard: int
    deduplicate: bool
    open_rows: list[str] = field(default_factory=list)
    finished: list[dict[str, Any]] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    duplicates: int = 0
    input_rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def take(self, row: int, text: str | Rejected, quarantine: IO[str]) -> None:
        """Keep, quarantine or drop one row."""
        self.input_rows += 1
        rejected = _checked(text)
        if rejected is not None:
            self.reasons[rejected.reason] += 1
            shown = rejected.raw[:_SHOWN].encode("utf-8", "backslashreplace").decode()
            line = {"row": row, "reason": rejected.reason, "text": shown}
            quarantine.write(json.dumps(line, ensure_ascii=False) + "\n")
            return
        assert isinstance(text, str)
        if self.deduplicate:
            key = dedup_key(text)
            if key in self.seen:
                self.duplicates += 1
                return
            self.seen.add(key)
        self.open_rows.append(text)
        if len(self.open_rows) == self.rows_per_shard:
            self.flush()

    def flush(self) -> None:
        """Close the open shard."""
        if not self.open_rows:
            return
        name = f"part-{len(self.finished):05d}.parquet"
        with replacing(self.folder / name) as temporary:
            column = pa.array(self.open_rows, pa.large_string())
            pq.write_table(pa.table({"text": column}), temporary, compression="zstd", use_dictionary=False)
        sha256 = sha256_of(self.folder / name)
        self.finished.append({"name": name, "rows": len(self.open_rows), "sha256": sha256})
        self.open_rows = []

    def manifest(self) -> dict[str, Any]:
        """The account of all rows, once the last shard is closed."""
        rows, quarantined = sum(shard["rows"] for shard in self.finished), sum(self.reasons.values())
        assert self.input_rows == rows + quarantined + self.duplicates
        return {
            "rows": rows,
            "input_rows": self.input_rows,
            "duplicates": self.duplicates,
            "quarantined": quarantined,
            "quarantine_reasons": dict(sorted(self.reasons.items())),
            "shards": self.finished,
        }


def _checked(text: str | Rejected) -> Rejected | None:
    if isinstance(text, Rejected):
        return text
    if not text.strip():
        return Rejected(text, "empty")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return Rejected(text, "not valid Unicode")
    return None


@contextlib.contextmanager
def temporary_folder(shelf: Path) -> Iterator[Path]:
    """A folder that is gone afterwards; what killed writers left behind is gone too."""
    shelf.mkdir(parents=True, exist_ok=True)
    for left in shelf.glob(f"{_TEMPORARY}*.lock"):
        # A lock that can be taken belongs to a process that has died.
        with contextlib.suppress(BadInput, FileNotFoundError), locked(left, wait=False):
            shutil.rmtree(left.with_suffix(""), ignore_errors=True)
            left.unlink(missing_ok=True)
    folder = shelf / f"{_TEMPORARY}{uuid.uuid4().hex}"
    lock = folder.with_suffix(".lock")
    with locked(lock):
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
