"""The time of pairs: what is read in which batches, by each kind of model, and over which pairs."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

from stillhouse.cli.main import main
from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.benchmark import Options
from stillhouse.evaluation.benchmarks import pairs as suite
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.pair_speed import TextPairs, pair_speed, reader_of
from stillhouse.students.encoder import StudentEncoder
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.scorer import StudentScorer

PAIRS = TextPairs([f"a {row}" for row in range(10)], [f"b {row}" for row in range(10)])


class Timed(nn.Module):
    """An encoder that takes 1 ms per call and 0.1 ms per text, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.now = 0.0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.calls.append(list(texts))
        self.now += 1e-3 + 1e-4 * len(texts)
        return np.zeros((len(texts), 2), np.float32)


class Joint(Timed):
    """A scorer of pairs with the same clock."""

    columns: ClassVar[tuple[str, ...]] = ("first", "second")

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> FloatArray:
        assert second is not None and len(first) == len(second)
        return self.encode([f"{one} | {other}" for one, other in zip(first, second, strict=True)])


@pytest.fixture(params=[Timed, Joint])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Timed:
    timed: Timed = request.param()
    monkeypatch.setattr(time, "perf_counter", lambda: timed.now)
    return timed


def test_every_pair_is_read_once_after_a_batch_that_is_not_timed(model: Timed) -> None:
    found = pair_speed(model, PAIRS, at_once=4)
    sides = 1 if isinstance(model, Joint) else 2
    seconds = sides * (3 * 1e-3 + 10 * 1e-4)
    assert found == {
        "pairs": 10,
        "pairs_per_batch": 4,
        "seconds": pytest.approx(seconds),
        "pairs_per_second": pytest.approx(10 / seconds),
    }
    assert [len(call) for call in model.calls] == [4] * sides + [4] * 2 * sides + [2] * sides
    read = [text for call in model.calls[sides:] for text in call]
    assert len(read) == 10 * sides
    if sides == 1:
        assert read == [f"a {row} | b {row}" for row in range(10)]
    else:
        assert sorted(read) == sorted([*PAIRS.first, *PAIRS.second])


def test_no_pairs_and_no_batch_are_refused() -> None:
    for pairs, at_once in ((TextPairs([], []), 4), (PAIRS, 0)):
        with pytest.raises(BadInput, match="pairs per batch"):
            pair_speed(Timed(), pairs, at_once=at_once)


def test_a_scorer_of_single_texts_is_timed_as_an_encoder() -> None:
    model = Joint()
    model.columns = ("text",)  # type: ignore[misc]
    reader_of(model, 4)(["one"], ["two"])
    assert model.calls == [["one"], ["two"]]


def test_sentence_transformers_are_told_the_batch(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = load_sentence_transformer(resolve_model(str(tiny_model)), "cpu")
    rows: list[int] = []
    forward = model.forward

    def counted(features: dict[str, Any], **more: Any) -> Any:
        rows.append(len(features["input_ids"]))
        return forward(features, **more)

    monkeypatch.setattr(model, "forward", counted)
    texts = [f"a cat {row}" for row in range(40)]
    reader_of(model, 40)(texts, texts)
    assert rows == [40, 40]


def test_a_student_reads_a_batch_in_one_pass(tiny_model: Path) -> None:
    from stillhouse.students.transformer import TransformerStudent

    student = TransformerStudent(resolve_model(str(tiny_model)))
    encoder = StudentEncoder(student, tiny_model, 16, batch_tokens=32)
    rows: list[int] = []
    student.register_forward_hook(lambda _module, given, _made: rows.append(len(given[0].input_ids_BT)))
    texts = [f"a cat {row}" for row in range(40)]
    reader_of(encoder, 40)(texts[:40], texts[:40])
    assert rows == [40, 40] and encoder.batch_tokens == 32
    scorer = StudentScorer(encoder, student, ("first", "second")).in_batches(40)
    assert scorer.encoder.batch_tokens == 40 * 16 and scorer.columns == ("first", "second")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "glue/QQP").mkdir(parents=True)
    for split, count in (("train", 5), ("dev", 3)):
        lines = [f"{row}\t1\t2\t{split} {row}?\tother {split} {row}?\t{row % 2}" for row in range(count)]
        head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
        (folder / "glue/QQP" / f"{split}.tsv").write_text("\n".join([head, *lines]) + "\n")
    (folder / "fever").mkdir()
    pages = [f'<doc title="Page{n}">\nPage{n}\n\nPage{n} is about number{n}.\n</doc>' for n in range(40)]
    (folder / "fever/wikipages.docs.txt").write_text("\n".join(pages))
    claims = [
        {"id": n, "label": "SUPPORTS", "claim": f"Is number{n} in a page?", "evidence_pages": [f"Page{n}"]}
        for n in range(40)
    ]
    (folder / "fever/fever_labelled_dev.json").write_text(json.dumps(claims))
    return folder


def test_the_pairs_are_those_of_the_papers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[TextPairs, int]] = []

    def note(model: Any, pairs: TextPairs, *, at_once: int) -> dict[str, float]:
        seen.append((pairs, at_once))
        return {}

    monkeypatch.setattr(suite, "pair_speed", note)
    for flags in ({}, {"timed_pairs": 6}, {"pairs_of": "fever"}, {"pairs_of": "fever", "pairs_per_batch": 3}):
        suite.prepare(str(root), Options(flags=flags)).measure(FiniteEncoder(Timed()))
    whole, some, claims, batched = seen
    assert (len(whole[0]), whole[1]) == (8, 1024) and (len(some[0]), some[1]) == (6, 1024)
    assert (whole[0].first[0], whole[0].second[0]) == ("train 0?", "other train 0?")
    assert whole[0].first[-1] == "dev 2?"
    assert claims[1] == 8 and batched[1] == 3 and len(claims[0]) % 10 == 0
    for at in range(0, len(claims[0]), 10):
        assert len(set(claims[0].first[at : at + 10])) == 1, "a claim with its ten pages"
        number = claims[0].first[at].split()[1]
        assert number in claims[0].second[at], "the nearest page comes first"


def test_from_the_command_line(tiny_model: Path, root: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    where = ["--data-root", str(root), "--root", str(tmp_path / "runs"), "--json", str(report)]
    assert main(["evaluate", str(tiny_model), "--suite", "pairs", "--pairs-per-batch", "4", *where]) == 0
    found = json.loads(report.read_text())["pairs"]["qqp"]
    assert found["pairs"] == 8 and found["pairs_per_batch"] == 4 and found["threads"] >= 1
    assert found["pairs_per_second"] == pytest.approx(8 / found["seconds"])
    assert found["seconds_to_open"] > 0 and found["parameters_encoder"] > 0


def test_missing_files_and_bad_numbers_are_refused(tmp_path: Path, root: Path) -> None:
    with pytest.raises(BadInput, match="no files of QQP"):
        suite.prepare(str(tmp_path / "none"), Options())
    with pytest.raises(BadInput, match="--timed-pairs >= 1"):
        suite.prepare(str(root), Options(flags={"timed_pairs": 0}))
