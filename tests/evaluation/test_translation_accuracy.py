from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import FloatArray
from stillhouse.corpora.tables import RUNS, write_rows, write_texts
from stillhouse.evaluation.suites import run_suite
from stillhouse.evaluation.translation_accuracy import Translations
from stillhouse.values.data import Examples
from stillhouse.values.stage import DevSuite, TestSuite


class Known:
    """A lookup from text to vector that accepts the arguments of sentence-transformers' evaluator."""

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self.vectors, self.encoded = vectors, 0
        self.model_card_data: Any = None

    def encode(self, texts: Sequence[str], **_: object) -> FloatArray:
        self.encoded += len(texts)
        return np.array([self.vectors[text] for text in texts], np.float32)


def written(workspace: Workspace, pairs: list[tuple[str, str]]) -> Examples:
    columns = {}
    for side, name in enumerate(("source", "target")):
        columns[name] = write_texts(workspace, name, [pair[side] for pair in pairs], deduplicate=False)
    ids = np.arange(len(pairs))
    notes = {RUNS: [{"language": "de", "rows": len(pairs)}]}
    return write_rows(workspace, columns, {"source": ids, "target": ids}, "pairs", notes)


def test_translation_accuracy_by_hand(workspace: Workspace) -> None:
    pairs = [("a", "A"), ("b", "B"), ("b2", "B"), ("c", "C")]
    vectors = {"a": [1, 0], "A": [5, 1], "b": [0, 1], "b2": [1, 2], "B": [1, 9], "c": [-1, 0], "C": [0, 2]}
    model = Known({text: [float(x) for x in vector] for text, vector in vectors.items()})
    evaluator = Translations(written(workspace, pairs), workspace, name="toy")
    # a finds A; b is nearest to C, not B; b2 finds B; c is nearest to C.
    # A finds a; both Bs find b, correct for one of them; C finds b.
    found = evaluator(model)
    assert found == {
        "toy_mean_accuracy": 5 / 8,
        "toy_de_src2trg_accuracy": 3 / 4,
        "toy_de_trg2src_accuracy": 2 / 4,
        "toy_de_mean_accuracy": 5 / 8,
    }
    assert model.encoded == 7


def test_equal_to_sentence_transformers(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

    draw = np.random.default_rng(0)
    names = [f"t{draw.integers(60)}" for _ in range(90)]
    pairs = [(name, name.upper() + str(draw.integers(2))) for name in names]
    vectors: dict[str, list[float]] = {}
    for source, target in pairs:
        vectors.setdefault(source, draw.normal(size=6).tolist())
        near = np.array(vectors[source]) * 3 + draw.normal(size=6) * 2
        vectors.setdefault(target, near.tolist())
    model = Known(vectors)
    theirs = TranslationEvaluator([a for a, _ in pairs], [b for _, b in pairs], name="t_de", write_csv=False)
    monkeypatch.setattr(theirs, "embed_inputs", lambda model, texts: list(torch.tensor(model.encode(texts))))
    monkeypatch.setattr(theirs, "store_metrics_in_model_card_data", lambda *given: None)
    ours = Translations(written(workspace, pairs), workspace, name="t")(model)
    mean = ours.pop("t_mean_accuracy")
    assert ours == pytest.approx(theirs(model)) and 0.3 < mean == ours["t_de_mean_accuracy"] < 0.99


def test_other_splits_and_single_rows_are_refused(workspace: Workspace) -> None:
    with pytest.raises(BadInput, match="split in"):
        Translations(written(workspace, [("a", "A"), ("b", "B")]), workspace, split="train")
    with pytest.raises(BadInput, match="rows >= 2"):
        Translations(written(workspace, [("a", "A")]), workspace)


def test_translation_in_a_suite(workspace: Workspace) -> None:
    examples = written(workspace, [("a", "A"), ("b", "B")])
    model = Known({"a": [1, 0], "A": [2, 1], "b": [0, 1], "B": [1, 2]})
    evaluator = spec(Translations, examples=examples)
    dev = DevSuite((evaluator,), select="translation_mean_accuracy")
    assert run_suite(dev, model, workspace)["translation_mean_accuracy"] == 1.0
    final = evaluator.replace(split="test")
    assert run_suite(TestSuite((final,)), model, workspace)["translation_mean_accuracy"] == 1.0
    with pytest.raises(BadInput, match="only hold dev sets"):
        run_suite(DevSuite((final,), select="translation_mean_accuracy"), model, workspace)
