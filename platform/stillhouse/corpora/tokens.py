"""Token ids of a text table, written once and memory-mapped by every trial and rank."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from stillhouse.cluster.leases import make_once
from stillhouse.core.artifacts import (
    MANIFEST,
    Workspace,
    mapped_array,
    read_manifest,
    replacing,
    write_array,
)
from stillhouse.core.errors import Hindered
from stillhouse.core.tokenizing import FastTokenizer, Ids, Offsets, cached_tokenizer, pad
from stillhouse.core.types import IntArray, Tokens
from stillhouse.corpora.tables import Texts, open_texts
from stillhouse.values.data import TokenTable

Pieces = Iterator[tuple[Ids, Offsets]]
"""The ids and the offsets of consecutive rows, as a tokenizer returns them."""

_AT_ONCE = 4096


def build_tokens(
    workspace: Workspace,
    token_table: TokenTable,
    progress: Callable[[int, int], None] | None = None,
    pieces: Callable[[], Pieces] | None = None,
) -> None:
    """Tokenise a text table unless it is done already; other processes that need it wait.

    Pieces are the ids and the offsets of consecutive rows, all of them; None makes them in this process.

    Raises:
        BadInput: If the texts are not finished, the tokenizer cannot be used, or the disk is full.
    """

    def make(folder: Path) -> dict[str, Any]:
        tokenizer = FastTokenizer(Path(token_table.tokenizer.path), token_table.max_length)
        texts = open_texts(workspace, token_table.texts)
        made = pieces() if pieces is not None else _in_process(texts, token_table, tokenizer)
        with replacing(folder / "ids.npy") as temporary, temporary.open("wb") as file:
            offsets = _write_ids(file, made, len(texts), progress)
        write_array(folder / "offsets.npy", offsets)
        return {
            "rows": len(offsets) - 1,
            "tokens": int(offsets[-1]),
            "pad_id": tokenizer.pad_id,
            "max_length": token_table.max_length,
            "tokenizer": {"name": token_table.tokenizer.name, "sha256": token_table.tokenizer.sha256},
        }

    make_once(workspace, token_table, make)


class TokenReader:
    """Token ids by row, memory-mapped; cheap to open and to send to another process.

    Raises:
        BadInput: If the folder is unfinished, or the length of a file differs from the manifest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = read_manifest(folder)
        self.pad_id = int(manifest["pad_id"])
        self._ids = _mapped(folder / "ids.npy", np.dtype(np.int32), manifest["tokens"])
        self._offsets = _mapped(folder / "offsets.npy", np.dtype(np.int64), manifest["rows"] + 1)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._offsets) - 1

    def __reduce__(self) -> tuple[type["TokenReader"], tuple[Path]]:
        return TokenReader, (self.folder,)

    def lengths_of(self, rows: IntArray) -> Offsets:
        """Return the number of tokens of some rows."""
        rows = np.asarray(rows)
        return self._offsets[rows + 1] - self._offsets[rows]

    def padded(self, rows: IntArray) -> Tokens:
        """Return the tokens of rows, padded on the right to the longest; (B, K) rows are flattened."""
        rows = np.asarray(rows).reshape(-1)
        return pad(self._ids, self._offsets[rows], self.lengths_of(rows), self.pad_id)


def open_tokens(workspace: Workspace, token_table: TokenTable) -> TokenReader:
    """Open a token table.

    Raises:
        BadInput: If it is unfinished or damaged.
    """
    return TokenReader(workspace.path(token_table))


def tokens_of_shard(texts: Texts, index: int, token_table: TokenTable, folder: Path) -> tuple[Ids, Offsets]:
    """Tokenise one shard of a text table, with the tokenizer that this process finds in a folder."""
    return cached_tokenizer(folder, token_table.max_length)(_prompted(texts, index, token_table))


def _in_process(texts: Texts, token_table: TokenTable, tokenizer: FastTokenizer) -> Pieces:
    for index in range(len(texts.shard_starts)):
        shard = _prompted(texts, index, token_table)
        for first in range(0, len(shard), _AT_ONCE):
            yield tokenizer(shard[first : first + _AT_ONCE])


def _prompted(texts: Texts, index: int, token_table: TokenTable) -> list[str]:
    """Read a shard's texts, and prepend to each the prompt of its row."""
    shard = texts.shard(index)
    if not token_table.prompts:
        return [token_table.prompt + text for text in shard]
    ends = np.cumsum([rows for rows, _ in token_table.prompts])
    assert ends[-1] == len(texts), "every text has a prompt"
    run_of = np.searchsorted(ends, texts.shard_starts[index] + np.arange(len(shard)), side="right")
    return [token_table.prompts[run][1] + text for run, text in zip(run_of, shard, strict=True)]


def _write_ids(
    file: BinaryIO, pieces: Pieces, rows: int, progress: Callable[[int, int], None] | None
) -> Offsets:
    """Stream the ids to disk after a header that is rewritten once their number is known."""
    _write_header(file, 0)
    body = file.tell()
    offsets, total, done = np.zeros(rows + 1, np.int64), 0, 0
    for ids, ends in pieces:
        file.write(ids.tobytes())
        count = len(ends) - 1
        offsets[done + 1 : done + 1 + count] = ends[1:] + total
        total, done = total + len(ids), done + count
        if progress is not None:
            progress(done, rows)
    assert done == rows, "every row has its tokens"
    file.seek(0)
    _write_header(file, total)
    assert file.tell() == body, "NumPy pads the header, so a longer first dimension fits"
    return offsets


def _write_header(file: BinaryIO, length: int) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (length,)})


def _mapped(path: Path, dtype: np.dtype[np.generic], length: int) -> npt.NDArray[np.int64]:
    array: npt.NDArray[np.int64] = mapped_array(path)
    if array.dtype != dtype or array.shape != (length,):
        raise Hindered(
            f"{path} must have {length} {dtype} numbers, but has {array.dtype} of shape {array.shape}. "
            f"Remove the {MANIFEST} beside it and run the same command again: it makes what is missing."
        )
    return array
