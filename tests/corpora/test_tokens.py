import errno
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import write_texts
from stillhouse.corpora.tokens import TokenReader, build_tokens, open_tokens
from stillhouse.values.data import Model, TokenTable

TEXTS = [
    "the cat sat on the mat",
    "a",
    "returns the mean of all values in the array " * 6,
    "THE OLD river, under one red moon.",
    "sort rows by name",
]


def token_table(workspace: Workspace, tiny_model: Path, max_length: int = 16) -> TokenTable:
    texts = write_texts(workspace, "words", TEXTS, rows_per_shard=2)
    return TokenTable(texts, Model("0" * 64, "tiny", str(tiny_model)), max_length)


def expected(tiny_model: Path, max_length: int) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    ids: list[list[int]] = tokenizer(TEXTS, truncation=True, max_length=max_length)["input_ids"]
    return ids


def test_ids_match_the_tokenizer(workspace: Workspace, tiny_model: Path) -> None:
    table = token_table(workspace, tiny_model)
    seen: list[tuple[int, int]] = []
    build_tokens(workspace, table, lambda done, total: seen.append((done, total)))
    reader = open_tokens(workspace, table)
    reference = expected(tiny_model, 16)
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert len(reader) == 5
    assert reader.lengths_of(np.arange(5)).tolist() == [len(ids) for ids in reference]
    assert max(reader.lengths_of(np.arange(5))) == 16
    for row, ids in enumerate(reference):
        assert reader.padded(np.array([row])).input_ids_BT.tolist() == [ids]


def test_each_row_has_the_prompt_of_its_run(workspace: Workspace, tiny_model: Path) -> None:
    """Runs end within shards of two rows, and one of them is empty."""
    plain = token_table(workspace, tiny_model)
    table = replace(plain, prompts=((1, "sort "), (0, "moon "), (3, ""), (1, "the cat ")))
    build_tokens(workspace, table)
    reader = open_tokens(workspace, table)
    prompted = ["sort " + TEXTS[0], *TEXTS[1:4], "the cat " + TEXTS[4]]
    bare = TokenTable(write_texts(workspace, "prompted", prompted), plain.tokenizer, plain.max_length)
    build_tokens(workspace, bare)
    every = np.arange(len(TEXTS))
    expected_BT = open_tokens(workspace, bare).padded(every).input_ids_BT
    assert reader.padded(every).input_ids_BT.tolist() == expected_BT.tolist()


def test_padding_is_on_the_right_and_masked(workspace: Workspace, tiny_model: Path) -> None:
    table = token_table(workspace, tiny_model)
    build_tokens(workspace, table)
    reader = open_tokens(workspace, table)
    rows = np.array([[1, 2], [4, 1]])
    tokens = reader.padded(rows)
    assert tokens.input_ids_BT.shape == tokens.attention_mask_BT.shape == (4, 16)
    assert tokens.attention_mask_BT.sum(1).tolist() == reader.lengths_of(rows.reshape(-1)).tolist()
    for row, ids, mask in zip(rows.reshape(-1), tokens.input_ids_BT, tokens.attention_mask_BT, strict=True):
        length = int(mask.sum())
        assert ids[:length].tolist() == expected(tiny_model, 16)[row]
        assert set(ids[length:].tolist()) <= {reader.pad_id}
        assert mask[:length].all() and not mask[length:].any()


def test_it_is_built_once_and_leftovers_are_removed(workspace: Workspace, tiny_model: Path) -> None:
    table = token_table(workspace, tiny_model)
    folder = workspace.path(table)
    folder.mkdir(parents=True)
    (folder / ".ids.npy.abc.tmp").write_bytes(b"half")
    build_tokens(workspace, table)
    assert sorted(path.name for path in folder.iterdir()) == ["ids.npy", "manifest.json", "offsets.npy"]
    assert np.load(folder / "ids.npy").dtype == np.int32
    before = (folder / "ids.npy").stat().st_mtime_ns
    build_tokens(workspace, table)
    assert (folder / "ids.npy").stat().st_mtime_ns == before


def test_a_reader_is_pickled_without_its_data(workspace: Workspace, tiny_model: Path) -> None:
    table = token_table(workspace, tiny_model)
    build_tokens(workspace, table)
    reader = open_tokens(workspace, table)
    assert len(pickle.dumps(reader)) < 1000
    other = pickle.loads(pickle.dumps(reader))
    assert other.padded(np.arange(5)).input_ids_BT.equal(reader.padded(np.arange(5)).input_ids_BT)


@pytest.mark.parametrize("file", ["ids.npy", "offsets.npy"])
def test_a_truncated_file_is_refused(workspace: Workspace, tiny_model: Path, file: str) -> None:
    table = token_table(workspace, tiny_model)
    build_tokens(workspace, table)
    path = workspace.path(table) / file
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(BadInput, match=file):
        open_tokens(workspace, table)


@pytest.mark.parametrize("file", ["ids.npy", "offsets.npy"])
def test_a_flipped_bit_is_refused(workspace: Workspace, tiny_model: Path, file: str) -> None:
    table = token_table(workspace, tiny_model)
    build_tokens(workspace, table)
    path = workspace.path(table) / file
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match=f"{file} must be as it was written"):
        open_tokens(workspace, table)


def test_a_refusal_of_the_system_is_no_damage(
    workspace: Workspace, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice was to remove a good folder where too many files were open."""
    table = token_table(workspace, tiny_model)
    build_tokens(workspace, table)
    opened, folder = open, workspace.path(table)

    def too_many(file: Any, *arguments: Any, **named: Any) -> Any:
        if str(file).endswith("ids.npy"):
            raise OSError(errno.EMFILE, "Too many open files", str(file))
        return opened(file, *arguments, **named)

    monkeypatch.setattr("builtins.open", too_many)
    monkeypatch.setattr("io.open", too_many)
    with pytest.raises(BadInput) as refused:
        open_tokens(workspace, table)
    monkeypatch.undo()
    assert "ulimit -n" in str(refused.value) and "emove" not in str(refused.value)
    assert open_tokens(workspace, table) is not None and (folder / "ids.npy").exists()


def test_an_unfinished_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unfinished"):
        TokenReader(tmp_path)
