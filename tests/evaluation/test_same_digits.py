"""Batch size and padding change no figure, and STS equals the figure of sentence-transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.core.types import FloatArray
from stillhouse.evaluation.benchmark import Options
from stillhouse.evaluation.benchmarks import load_suite
from stillhouse.evaluation.chosen_suites import suites_named
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Figures

WORDS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STS-B with ties among its gold scores, and SST-2."""
    folder, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(draw.choice(WORDS, draw.integers(1, 14)))

    (folder / "sts/senteval/STSBenchmark").mkdir(parents=True)
    same = sentence()
    pairs = [(sentence(), sentence()) if at % 7 else (same, same) for at in range(60)]
    rows = [f"g\tf\ty\t{at}\t{at % 6}\t{first}\t{second}" for at, (first, second) in enumerate(pairs)]
    (folder / "sts/senteval/STSBenchmark/sts-dev.csv").write_text("\n".join(rows))
    (folder / "transfer/SST/binary").mkdir(parents=True)
    for split in ("train", "dev"):
        lines = "".join(f"{sentence()}\t{at % 2}\n" for at in range(30))
        (folder / f"transfer/SST/binary/sentiment-{split}").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(tiny_model), device="cpu")


class Batched:
    """A model with a batch size of its own; texts of all lengths share a batch, unsorted."""

    def __init__(self, model: Any, size: int) -> None:
        self.model, self.size = model, size

    def encode(self, texts: Sequence[str]) -> FloatArray:
        parts = [texts[start : start + self.size] for start in range(0, len(texts), self.size)]
        return np.concatenate([self.model.encode(part, batch_size=self.size) for part in parts])


def printed(figures: Figures, digits: int) -> dict[tuple[str, str], str]:
    return {
        (name, kind): f"{value:.{digits}f}" for name, each in figures.items() for kind, value in each.items()
    }


def test_no_printed_digit_depends_on_the_batch(root: Path, model: Any) -> None:
    for suite in suites_named("sts,geometry,transfer").values():
        prepared = suite.prepare(str(root), Options())
        found = [
            printed(prepared.measure(FiniteEncoder(Batched(model, size))), prepared.digits)
            for size in (1, 5, 200)
        ]
        assert found[0] and found[0] == found[1] == found[2]


def test_sts_equals_sentence_transformers(root: Path, model: Any) -> None:
    from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator

    lines = (root / "sts/senteval/STSBenchmark/sts-dev.csv").read_text().split("\n")
    rows = [line.split("\t") for line in lines]
    evaluator = EmbeddingSimilarityEvaluator(
        [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) / 5 for row in rows], name="sts"
    )
    reference = evaluator(model)["sts_spearman_cosine"]
    prepared = load_suite("sts").prepare(str(root), Options())
    assert prepared.measure(FiniteEncoder(model))["STS-B"]["all"] == pytest.approx(100 * reference, abs=1e-6)
