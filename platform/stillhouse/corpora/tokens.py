"""Token ids of a text table, written once and memory-mapped by every trial and rank."""

import functools
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from stillhouse.cluster.leases import making
from stillhouse.core.artifacts import (
    MANIFEST,
    Workspace,
    mapped_array,
    read_manifest,
    remove_leftovers,
    replacing,
    write_array,
    write_manifest,
)
from stillhouse.core.errors import Hindered
from stillhouse.core.identity import canonical
from stillhouse.core.tokenizing import FastTokenizer, Offsets, pad
from stillhouse.core.types import IntArray, Tokens
from stillhouse.corpora.tables import open_texts
from stillhouse.plan.data import TokenTable

_AT_ONCE = 4096


def build_tokens(
    workspace: Workspace, token_table: TokenTable, progress: Callable[[int, int], None] | None = None
) -> None:
    """Tokenise a text table unless it is done already; other processes that need it wait.

    Args:
        workspace: Holds the texts, and gets the tokens.
        token_table: The texts, and how to tokenise them.
        progress: Called with the number of rows done and the number of all rows.

    Raises:
        BadInput: If the texts are not finished, the tokenizer cannot be used, or the disk is full.
    """
    folder = workspace.path(token_table)
    if workspace.finished(token_table):
        return
    with making(workspace, token_table):
        if workspace.finished(token_table):
            return
        remove_leftovers(folder)
        tokenizer = FastTokenizer(Path(token_table.tokenizer.path), token_table.max_length)
        with replacing(folder / "ids.npy") as temporary, temporary.open("wb") as file:
            offsets = _write_ids(file, workspace, token_table, tokenizer, progress)
        write_array(folder / "offsets.npy", offsets)
        content = {
            "rows": len(offsets) - 1,
            "tokens": int(offsets[-1]),
            "pad_id": tokenizer.pad_id,
            "max_length": token_table.max_length,
            "tokenizer": {"name": token_table.tokenizer.name, "sha256": token_table.tokenizer.sha256},
            "plan": canonical(token_table),
        }
        write_manifest(folder, content)
        workspace.publish(token_table)


class TokenReader:
    """Token ids by row, memory-mapped; cheap to open and to send to another process.

    Args:
        folder: A finished token table.

    Raises:
        BadInput: If the folder is unfinished, or the length of a file differs from the manifest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = read_manifest(folder)
        self.pad_id, self.max_length = int(manifest["pad_id"]), int(manifest["max_length"])
        self._ids = _mapped(folder / "ids.npy", np.dtype(np.int32), manifest["tokens"])
        self._offsets = _mapped(folder / "offsets.npy", np.dtype(np.int64), manifest["rows"] + 1)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._offsets) - 1

    def __reduce__(self) -> tuple[type["TokenReader"], tuple[Path]]:
        return TokenReader, (self.folder,)

    @functools.cached_property
    def lengths(self) -> Offsets:
        """The number of tokens of every row."""
        return np.diff(self._offsets)

    def padded(self, rows: IntArray) -> Tokens:
        """Return the tokens of rows, padded on the right to the longest; (B, K) rows are flattened."""
        rows = np.asarray(rows).reshape(-1)
        starts_B = self._offsets[rows]
        return pad(self._ids, starts_B, self._offsets[rows + 1] - starts_B, self.pad_id)


def open_tokens(workspace: Workspace, token_table: TokenTable) -> TokenReader:
    """Open a token table.

    Raises:
        BadInput: If it is unfinished or damaged.
    """
    return TokenReader(workspace.path(token_table))


def _write_ids(
    file: BinaryIO,
    workspace: Workspace,
    token_table: TokenTable,
    tokenizer: FastTokenizer,
    progress: Callable[[int, int], None] | None,
) -> Offsets:
    """Stream the ids to disk after a header that is rewritten once their number is known."""
    texts = open_texts(workspace, token_table.texts)
    shards = len(read_manifest(workspace.path(token_table.texts))["shards"])
    runs = token_table.prompts or ((len(texts), token_table.prompt),)
    assert sum(rows for rows, _ in runs) == len(texts), "every text has a prompt"
    prompts = chain.from_iterable(repeat(prompt, rows) for rows, prompt in runs)
    _write_header(file, 0)
    body = file.tell()
    parts, total, done = [np.zeros(1, np.int64)], 0, 0
    for index in range(shards):
        shard = texts.shard(index)
        for first in range(0, len(shard), _AT_ONCE):
            # The texts come first: the shorter of both ends the walk, and no prompt may be lost.
            prompted = [
                prompt + text for text, prompt in zip(shard[first : first + _AT_ONCE], prompts, strict=False)
            ]
            ids, offsets = tokenizer(prompted)
            file.write(ids.tobytes())
            parts.append(offsets[1:] + total)
            total += len(ids)
        done += len(shard)
        if progress is not None:
            progress(done, len(texts))
    file.seek(0)
    _write_header(file, total)
    assert file.tell() == body, "NumPy pads the header, so a longer first dimension fits"
    return np.concatenate(parts)


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
