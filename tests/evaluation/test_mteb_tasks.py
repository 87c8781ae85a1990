"""mteb's tasks with our encoder; mteb's own small mock tasks replace the published ones."""

import importlib.util
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.evaluation import mteb_tasks
from stillhouse.evaluation.benchmark import Options
from stillhouse.evaluation.benchmarks import known_suites, load_suite
from stillhouse.evaluation.chosen_suites import from_hub, suites_named
from stillhouse.evaluation.mteb_tasks import MtebSuite, load_tasks, measure_tasks, open_tasks

INSTALLED = importlib.util.find_spec("mteb") is not None
needs_mteb = pytest.mark.skipif(not INSTALLED, reason="the extra mteb is not installed")


class Letters:
    """An encoder of letter counts, which are not normalised."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[text.count(letter) + 0.1 for letter in "etaoinshrd"] for text in texts], np.float32)


@needs_mteb
def test_sts_is_spearman_of_cosines() -> None:
    from datasets import Dataset, DatasetDict
    from mteb.mocks.mock_tasks.sts import MockSTSTask

    first = ["a tree stands there", "rain in the north", "sat on a mat", "the end", "one more thing"]
    second = ["there is a tree", "no rain at all", "a cat and a hat", "this is the start", "one thing more"]
    gold = [4.0, 2.0, 2.0, 0.0, 5.0]
    task = MockSTSTask()
    rows = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": gold})
    task.dataset, task.data_loaded = DatasetDict({"test": rows}), True
    u, v = Letters().encode(first), Letters().encode(second)
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    found = measure_tasks([task], Letters())
    reference = stats.spearmanr(cosines, gold).statistic
    assert found == {"MockSTSTask": {"test_cosine_spearman": pytest.approx(reference, abs=1e-6)}}


@needs_mteb
def test_retrieval_and_classification_run() -> None:
    from mteb.mocks.mock_tasks.classification import MockClassificationTask
    from mteb.mocks.mock_tasks.retrieval import MockRetrievalTask

    tasks = [MockRetrievalTask(), MockClassificationTask()]
    load_tasks(tasks)
    found = measure_tasks(tasks, Letters())
    assert 0 < found["MockRetrievalTask"]["test_ndcg_at_10"] <= 1
    assert 0 < found["MockClassificationTask"]["test_accuracy"] <= 1


@needs_mteb
def test_test_splits_are_locked_and_names_checked() -> None:
    with pytest.raises(BadInput, match="Did you mean: 'STSBenchmark'"):
        open_tasks(["STSBenchmrk"], final=False)
    with pytest.raises(BadInput, match=r"STSBenchmark has only test splits.*Give --final"):
        open_tasks(["STSBenchmark"], final=False)
    (task,) = open_tasks(["STSBenchmark"], final=True)
    assert list(task.eval_splits) == ["test"]


@needs_mteb
def test_missing_data_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = open_tasks(["STSBenchmark"], final=True)

    def load_data() -> None:
        raise ConnectionError("no route to the hub.\nand more")

    monkeypatch.setattr(task, "load_data", load_data)
    with pytest.raises(BadInput, match=r"the hub\. Download mteb/stsbenchmark-sts from") as refusal:
        load_tasks([task])
    assert "and more" not in str(refusal.value)


def opened_tasks(suite: object, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Prepare a suite of mteb, without its data."""
    assert isinstance(suite, MtebSuite)
    opened: list[str] = []

    def open_nothing(names: Sequence[str], *, final: bool) -> list[object]:
        opened.extend(names)
        return []

    monkeypatch.setattr(mteb_tasks, "open_tasks", open_nothing)
    suite.prepare("hf:", Options())
    return opened


def test_names_after_the_prefix_are_tasks_until_the_next_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    found = suites_named("sts,mteb:SciFact,STS12,SciFact,geometry")
    assert list(found) == ["sts", "mteb", "geometry"]
    assert opened_tasks(found["mteb"], monkeypatch) == ["SciFact", "STS12"]
    with pytest.raises(BadInput, match="unknown suite `SciFact`"):
        suites_named("sts,SciFact,mteb:STS12")


def test_the_hub_serves_suites_that_mteb_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = from_hub(suites_named("sts,cost,mteb:STS22"))
    assert opened_tasks(found["sts"], monkeypatch) == list(load_suite("sts").MTEB_TASKS)
    assert opened_tasks(found["mteb"], monkeypatch) == ["STS22"] and found["cost"] is load_suite("cost")
    with pytest.raises(BadInput, match=r"but not glue\. Give --data-root DIR with its published files"):
        from_hub(suites_named("sts,glue"))


@needs_mteb
def test_every_task_of_the_hub_is_known_to_mteb() -> None:
    served = [names for suite in map(load_suite, known_suites()) if (names := suite.MTEB_TASKS)]
    assert len(served) == 4
    for names in served:
        assert len(open_tasks(names, final=True)) == len(names)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r'pip install "stillhouse\[mteb\]"'):
        open_tasks(["STS12"], final=True)
