"""A sampled pool: its content, its determinism and its calibration."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.corpora.tables import open_judgements, open_texts, write_collection, write_texts
from stillhouse.evaluation.pool import CALIBRATION, Pool, build_pool, calibrate
from stillhouse.experiments.fields import experiment_of, merged
from stillhouse.experiments.kinds.collection import SearchData
from stillhouse.sweeps.measuring import calibrated
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import find_model
from stillhouse.values.data import Store

WORDS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()


class Letters:
    calls = 0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.calls += 1
        return np.array([[text.count(letter) for letter in "aeiourst"] for text in texts], np.float32)


@pytest.fixture
def pool(workspace: Workspace, tiny_model: Path) -> Pool:
    """20 queries, each with its answer among 150 passages, and a teacher's vectors of both."""
    draw = np.random.default_rng(0)
    texts = list(dict.fromkeys(" ".join(draw.choice(WORDS, 6)) for _ in range(400)))
    passages = write_texts(workspace, "passages", texts[:150])
    queries = write_texts(workspace, "queries", texts[150:170])
    qrels = np.array([[query, 7 * query, 1] for query in range(20)] + [[0, 3, 0]])
    collection = write_collection(workspace, "docs", queries, passages, qrels)
    asked, searched = (
        Store(each, resolve_model(str(tiny_model)), max_length=16) for each in (queries, passages)
    )
    build_stores(workspace, [asked, searched], actors=1, threads=1, local=True, device="cpu")
    return Pool(collection, asked, searched, random=10, hard=1)


def test_a_pool_has_the_expected_content_and_is_built_once(workspace: Workspace, pool: Pool) -> None:
    sampled = build_pool(workspace, pool)
    passage_rows = open_texts(workspace, sampled.passages)
    whole = open_texts(workspace, pool.collection.passages)
    texts = read_manifest(workspace.path(pool))
    assert texts["positives"] == 20 and texts["random"] == 10 and 1 <= texts["teacher"] <= 20
    assert 30 < texts["passages"] == len(passage_rows) < 80 and texts["of"] == 150
    judged, before = (
        open_judgements(workspace, sampled).qrels_N3,
        open_judgements(workspace, pool.collection).qrels_N3,
    )
    for query, row, gain in judged[judged[:, 2] > 0].tolist():
        (old,) = before[(before[:, 0] == query) & (before[:, 2] > 0), 1]
        assert gain == 1 and passage_rows[[row]] == whole[[int(old)]]
    modified = workspace.path(pool).joinpath("manifest.json").stat().st_mtime_ns
    assert build_pool(workspace, pool) == sampled
    assert workspace.path(pool).joinpath("manifest.json").stat().st_mtime_ns == modified
    workspace.path(pool).joinpath("manifest.json").unlink()
    assert build_pool(workspace, pool) == sampled
    other = build_pool(workspace, dataclasses.replace(pool, seed=1))
    assert other.passages.sha256 != sampled.passages.sha256
    everything = build_pool(workspace, dataclasses.replace(pool, random=500))
    assert len(open_texts(workspace, everything.passages)) == 150


def test_calibration_measures_pool_and_full_collection_once(workspace: Workspace, pool: Pool) -> None:
    model = Letters()
    found = calibrate(workspace, pool, model, "letters")
    figures = found["docsearch_cosine_mrr@10"]
    assert 0 < figures["full"] <= figures["pool"]
    assert figures["ratio"] == pytest.approx(figures["full"] / figures["pool"])
    calls = model.calls
    assert calibrate(workspace, pool, model, "letters") == found and model.calls == calls
    assert (workspace.path(pool) / CALIBRATION).exists()


def test_the_flag_uses_the_pool_and_prints_its_calibration(
    workspace: Workspace, pool: Pool, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = dataclasses.replace(pool, hard=50)
    sampled = build_pool(workspace, asked)
    printed = capsys.readouterr()
    assert "150 of 150 passages, 20 relevant" in printed.err and "is the whole collection" in printed.err
    build_pool(workspace, pool)
    printed = capsys.readouterr()
    assert "of 150 passages, 20 relevant" in printed.err and "whole" not in printed.err, (
        "this one leaves passages out"
    )
    assert build_pool(workspace, asked) == sampled and capsys.readouterr().err == ""
    source = find_model(str(tiny_model), workspace)
    found = calibrated(SearchData(pool.collection, pool.collection, asked), Letters(), source, workspace)
    assert "whole" in capsys.readouterr().out and found["docsearch_cosine_recall@10"]["full"] > 0
    assert calibrated(None, Letters(), source, workspace) == {}


@each_row(
    ("values", "message"),
    [
        (
            {"collection.dev_pool": 5, "sentences.corpus": "texts.txt"},
            "corpus pydocs, whose queries it samples",
        ),
        ({"collection.dev_pool": 800}, "0 <= dev_pool < dev_passages"),
        ({"collection.dev_pool": -1}, "0 <= dev_pool"),
    ],
)
def test_impossible_pools_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment_of(merged({}, values))
