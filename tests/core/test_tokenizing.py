import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.errors import BadInput
from stillhouse.core.model_folder import read_folder
from stillhouse.core.tokenizing import FastTokenizer, pad, token_batches


def test_ids_are_concatenated_and_padded_on_the_right(tiny_model: Path) -> None:
    tokenizer = FastTokenizer(tiny_model, 16)
    ids, offsets = tokenizer(["the cat sat", "", "a"])
    assert offsets.tolist() == [0, 5, 7, 10] and len(ids) == 10
    tokens = pad(ids, offsets[[2, 0]], np.array([3, 5]), pad_id=9)
    assert tokens.input_ids_BT.tolist() == [[*ids[7:10], 9, 9], ids[:5].tolist()]
    assert tokens.attention_mask_BT.tolist() == [[1, 1, 1, 0, 0], [1] * 5]


def test_batches_respect_the_budget_and_cover_every_row_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, size=500)
    batches = list(token_batches(lengths, 256))
    assert sorted(np.concatenate(batches)) == list(range(500))
    assert all(lengths[rows].max() * len(rows) <= 256 for rows in batches)
    filled = [lengths[rows].max() * (len(rows) + 1) > 256 for rows in batches[:-1]]
    assert all(filled)
    assert [len(rows) for rows in token_batches(np.array([9, 300, 9]), 100)] == [1, 2]
    assert list(token_batches(np.array([], dtype=np.int64), 100)) == []


def test_do_lower_case_of_sentence_transformers_is_respected(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cased"
    shutil.copytree(read_folder(tiny_model).transformer, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    tokenizer["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    for path in folder.glob("sentence_*_config.json"):
        path.unlink()
    cased, lowered = (FastTokenizer(folder, 16)([text])[0].tolist() for text in ("The RIVER", "the river"))
    assert cased != lowered and not read_folder(folder).lower
    settings = {"max_seq_length": 12, "do_lower_case": True}
    (folder / "sentence_roberta_config.json").write_text(json.dumps(settings))
    assert FastTokenizer(folder, 16)(["The RIVER"])[0].tolist() == lowered


def test_bad_tokenizers_and_lengths_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="max_length <= 128"):
        FastTokenizer(tiny_model, 129)
    with pytest.raises(BadInput, match="max_length"):
        FastTokenizer(tiny_model, 2)
    with pytest.raises(BadInput, match="tokenizer"):
        FastTokenizer(tmp_path, 16)


def test_a_prompt_counts_its_tokens_without_the_last_special_one(tiny_model: Path) -> None:
    assert FastTokenizer(tiny_model, 16).prefix_length("query the cat") == 4
