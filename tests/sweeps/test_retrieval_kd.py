"""Retrieval KD on real files: one teacher, one recording, and students whose rankings depend on the claim."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_rows, open_texts, open_values
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.preparation import Prepared
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.reports.entries import COSTS
from stillhouse.reports.gradient_shares import NEGLIGIBLE, percent
from stillhouse.search.records import TrialRecord
from stillhouse.search.shared_stages import shared_recordings, shared_stages
from stillhouse.search.space import Categorical, Float, Space
from stillhouse.search.trial import Context
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.sizes import sizes
from stillhouse.sweeps.baseline import Tried
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import pair_scores
from stillhouse.training.models import encoder_in
from stillhouse.training.start_figures import untrained
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Sampled, Scored
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage, TestSuite

METHOD = load_method("retrieval_kd")
SMALL: dict[str, Any] = {"units": 4, "teacher_units": 4, "batch_size": 16, "teacher_batch_size": 16}
WHERE = Where(device="cpu", threads=1)


def planned(setting: Setting, **values: Any) -> Stage:
    return METHOD.plan(hyper_parameters(METHOD, {**SMALL, **values}), setting)


def figure(model: Any, setting: Setting, workspace: Workspace) -> float:
    assert setting[Claims] is not None
    (evaluator,) = setting[Claims].dev.evaluators
    return float(evaluator.build(workspace=workspace)(model)["fever_dcg"])


@pytest.fixture
def home(context: Context) -> Workspace:
    return Workspace(Path(context.root))


def test_students_share_one_teacher_and_one_recording(
    context: Context, home: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, scored_batches, scorer = context.setting, [], pair_scores.teacher_scorer

    def counted(*given: Any) -> Any:
        scored_batches.append(given)
        return scorer(*given)

    monkeypatch.setattr(pair_scores, "teacher_scorer", counted)
    stages = [
        planned(setting, **values)
        for values in ({}, {"alpha": 1.0, "soft_loss": "ce", "temperature": 5}, {"encoder": "cnn"})
    ]
    for stage in stages:
        run(stage, home, where=WHERE)
    assert len({stage.fingerprint for stage in stages}) == 3 and len(scored_batches) == 1
    assert len({next(iter(stage.chain())).fingerprint for stage in stages}) == 1
    examples = stages[0].examples
    assert isinstance(examples.origin, Scored) and isinstance(examples.origin.teacher, Stage)
    rows, scores = open_rows(home, examples), open_values(home, examples)["scores"]
    texts = {name: open_texts(home, table) for name, table in examples.columns.items()}
    teacher = encoder_in(home.path(examples.origin.teacher))
    claim, documents = texts["claim"][rows["claim"][:3]], rows["documents"][:3]
    again = teacher.score([text for text in claim for _ in range(4)], texts["documents"][documents])
    np.testing.assert_allclose(scores[:3], again.reshape(3, 4), atol=1e-5)
    assert not hasattr(teacher, "encode")
    with pytest.raises(BadInput, match="is a teacher"):
        export_stage(home.path(examples.origin.teacher), home.root / "export")


def test_a_killed_recording_resumes(
    context: Context, home: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_scores, "AT_ONCE", 16)
    stage, calls = planned(context.setting), []
    teacher, _ = stage.chain()
    run(teacher, home, where=WHERE)
    ask = pair_scores._scores

    def breaks(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ask(*given)

    monkeypatch.setattr(pair_scores, "_scores", breaks)
    with pytest.raises(KeyboardInterrupt):
        pair_scores.build_scored(home, stage.examples)
    assert not home.finished(stage.examples)
    pair_scores.build_scored(home, stage.examples)
    assert len(calls) == 4, "40 claims make three parts, and the first was kept"
    assert open_values(home, stage.examples)["scores"].shape == (40, 4)
    assert not (home.path(stage.examples) / "parts").exists()


def test_without_a_teacher_the_plan_has_no_teacher_stage(context: Context, home: Workspace) -> None:
    alone = planned(context.setting, alpha=0.0)
    assert [stage.label for stage in alone.chain()] == ["retrieval_kd"]
    assert alone.examples.values == ("gold",)
    space = Space("retrieval_kd", {"alpha": Categorical((0.2, 1.0)), "soft_loss": Categorical(("ce", "mse"))})
    context = dataclasses.replace(context, method="retrieval_kd")
    assert [stage.label for stage in shared_stages(context, space)] == ["teacher"]
    assert [examples.label for examples in shared_recordings(context, space)] == ["scored"]
    with_none = Space("retrieval_kd", {"alpha": Categorical((0.0, 0.2))})
    assert not shared_stages(context, with_none) and not shared_recordings(context, with_none)


def test_separate_towers_encode_each_its_own_side(context: Context, home: Workspace) -> None:
    stage = planned(
        context.setting, towers="separate", alpha=0.0, train_words=True, learning_rate=0.02, batch_size=8
    )
    folder = run(stage, home, where=WHERE)
    scorer = encoder_in(folder)
    claims, documents = scorer.student.claims, scorer.student.documents
    weights = [tower.recurrence.state_dict() for tower in (claims, documents)]
    start = stage.student.kwargs["tower"].build().recurrence.state_dict()
    pairs = itertools.combinations([*weights, start], 2)
    assert not any(one[name].equal(other[name]) for one, other in pairs for name in start), "both are trained"
    first, second = ["cat dog", "sun moon"], ["the cat and a dog", "the red and a sun"]
    alone = [
        StudentEncoder(tower, tower.tokenizer.path, 16).encode(texts)
        for tower, texts in ((claims, first), (documents, second))
    ]
    joiner = scorer.objective.joiner.layer.weight.detach().numpy()
    expected = np.einsum("nd,ed,ne->n", alone[0], joiner, alone[1])
    np.testing.assert_allclose(scorer.score(first, second).ravel(), expected, rtol=1e-5)
    assert not np.allclose(scorer.encode_column("claim", first), scorer.encode(first))
    assert figure(scorer, context.setting, home) == pytest.approx(
        read_manifest(folder)["metrics"]["fever_dcg"], abs=1e-6
    )
    export_stage(folder, home.root / "towers")  # compares both folders with the towers


def test_a_share_of_the_claims_reads_the_scores_of_all(context: Context, home: Workspace) -> None:
    setting = context.setting
    assert setting[Claims] is not None
    part = setting.having(Claims, dataclasses.replace(setting[Claims], rows=20, fraction=0.5))
    whole, half = planned(setting), planned(part)
    assert isinstance(half.examples.origin, Sampled) and half.examples.origin.rows == whole.examples
    run(half, home, where=WHERE)
    rows, all_rows = open_rows(home, half.examples), open_rows(home, whole.examples)
    assert len(rows["claim"]) == 20
    np.testing.assert_array_equal(rows["documents"], all_rows["documents"][np.asarray(rows["claim"])])
    kept = open_values(home, half.examples)["scores"]
    np.testing.assert_array_equal(kept, open_values(home, whole.examples)["scores"][rows["claim"]])
    few = Sampled(whole.examples, 0.25)
    smaller = open_rows(home, dataclasses.replace(whole.examples, origin=few))["claim"]
    assert set(smaller) < set(rows["claim"])
    with pytest.raises(BadInput, match="number of training claims >= batch_size"):
        planned(part, batch_size=21)


@pytest.mark.parametrize("joiner", ["bilinear", "features", "concat"])
def test_only_joiners_other_than_concat_rank_by_the_claim(
    joiner: str, context: Context, home: Workspace
) -> None:
    """Scoring candidates for another claim changes their ranking, except with [c; d]."""
    scorer = encoder_in(run(planned(context.setting, joiner=joiner, alpha=0.0), home, where=WHERE))
    assert context.setting[Claims] is not None
    examples = context.setting[Claims].examples
    rows = open_rows(home, examples)
    texts = {name: open_texts(home, table) for name, table in examples.columns.items()}
    claims, documents = texts["claim"][rows["claim"]], texts["documents"][rows["documents"]]
    rankings = []
    for shift in (0, 1):
        moved = [*claims[shift:], *claims[:shift]]
        scores_N1 = scorer.score([claim for claim in moved for _ in range(4)], documents)
        rankings.append((-scores_N1.reshape(-1, 4)).argsort(axis=1, kind="stable"))
    changed = (rankings[0] != rankings[1]).any(axis=1).mean()
    assert changed == 0 if joiner == "concat" else changed > 0.1


def test_a_student_trained_without_a_teacher_beats_an_untrained_one(
    context: Context, home: Workspace
) -> None:
    setting = dataclasses.replace(context.setting, distil_budget=800)
    stage = planned(setting, units=16, alpha=0.0, learning_rate=0.02, train_words=True)
    folder = run(stage, home, where=WHERE)
    students = untrained(stage, home, "cpu"), encoder_in(folder)
    before, after = (figure(student, setting, home) for student in students)
    assert after > before + 0.1
    assert read_manifest(folder)["metrics"]["fever_dcg"] == pytest.approx(after, abs=1e-6)


def test_a_transformer_can_teach_and_a_published_teacher_must_be_named(
    context: Context, home: Workspace
) -> None:
    stage = planned(context.setting, teacher_model="transformer")
    teacher, student = stage.chain()
    assert teacher.student.target.__name__ == "TransformerScorer"
    assert teacher.student.kwargs["base"] == context.setting.student.kwargs["base"]
    run(teacher, home, where=WHERE)
    assert student is stage
    with pytest.raises(BadInput, match="`teacher_model = published` needs a cross-encoder"):
        planned(context.setting, teacher_model="published")


def test_a_published_cross_encoder_needs_no_teacher_stage(
    context: Context, home: Workspace, tiny_cross_encoder: Callable[[int], Path]
) -> None:
    task = context.setting[Claims]
    assert task is not None
    model = resolve_model(str(tiny_cross_encoder(1)))
    setting = context.setting.having(Claims, dataclasses.replace(task, cross_encoder=model))
    stage = planned(setting, teacher_model="published")
    assert [part.label for part in stage.chain()] == ["retrieval_kd"]
    run(stage, home, where=WHERE)
    scores = open_values(home, stage.examples)["scores"]
    assert isinstance(stage.examples.origin, Scored) and stage.examples.origin.max_length == 32
    assert scores.shape == (40, 4) and np.unique(scores).size > 40


@each_row(
    "values",
    [
        {"alpha": 1.5},
        {"alpha": -0.1},
        {"temperature": 0.0},
        {"soft_loss": "kl"},
        {"joiner": "mlp"},
        {"encoder": "gru"},
        {"teacher_model": "bert"},
        {"units": 0},
        {"pooling": "cls"},
    ],
)
def test_bad_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(values)).partition("_")[0]):
        hyper_parameters(METHOD, values)


def test_the_report_at_the_end_of_a_sweep(
    context: Context, home: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has the student, its teacher, an untaught student and TF-IDF; two towers are exported."""
    from stillhouse.sweeps import deliver

    task = context.setting[Claims]
    assert task is not None
    (evaluator,) = task.dev.evaluators
    setting = dataclasses.replace(context.setting, dev=task.dev)
    facts = {"corpus": "FEVER", "sentences": 9, "teacher": "ours", "store": "s", "tfidf_test_dcg": 0.5}
    prepared = Prepared(setting, TestSuite((evaluator.replace(split="test"),)), facts)
    context = dataclasses.replace(context, method="retrieval_kd", setting=setting, quality="fever_dcg")
    alone, values = {**SMALL, "alpha": 0.0}, {**SMALL, "alpha": 0.5}
    for point in (alone, values):
        run(context.plan(point), home, where=WHERE)
    metrics = read_manifest(home.path(context.plan(values)))["metrics"]
    record = TrialRecord(
        0, values, "COMPLETE", (metrics["fever_dcg"],), {64: 0.5}, None, 1.0, 64, metrics, {}
    )
    output: dict[str, Any] = {}
    tracker = SimpleNamespace(
        artifact=lambda *given: None,
        register=lambda *given, **more: "1",
        describe=lambda *given, **more: None,
    )
    observer: Any = SimpleNamespace(
        name="kd",
        context=context,
        tracker=tracker,
        key=("kd",),
        costs=lambda *given: None,
        compared=lambda *given: None,
        report=lambda report, teacher_dev: output.update(report),
        opened=lambda *given: None,
        mark_best=lambda *given: None,
        offer_views=lambda *given: None,
    )
    theirs = dataclasses.replace(record, hyper_parameters=alone)
    baseline: Any = Tried("no teacher", context, [theirs], observer)
    monkeypatch.setattr(deliver, "write_figures", lambda folder, *given, **more: folder)
    monkeypatch.setattr(
        deliver, "cost", lambda encoder, module: {**dict.fromkeys(COSTS, 1.0), **sizes(module)}
    )
    folder = home.root / "sweeps" / "kd"
    folder.mkdir(parents=True)
    trial = optuna.trial.create_trial(params={}, distributions={}, value=metrics["fever_dcg"])
    optuna.create_study(storage=f"sqlite:///{folder / 'study.db'}").add_trial(trial)
    domains: dict[str, Any] = {"alpha": Float(0.1, 0.9), "temperature": Float(1.0, 6.0)}
    space = Space("retrieval_kd", domains, fixed={n: v for n, v in SMALL.items() if n not in domains})
    report = deliver.deliver("kd", "kd", prepared, context, folder, [record], baseline, observer, space=space)
    assert (
        report["baseline"]["method"] == "retrieval_kd" and report["teacher"]["cost"]["pairs_per_second"] > 0
    )
    printed = capsys.readouterr().out
    assert all(
        who in printed for who in ("teacher", "best student", "no teacher", "untrained student", "TF-IDF")
    )
    shares = {each["term"]: each["high"] for each in report["gradient_shares"]}
    assert set(shares) == {"soft", "hard"} and sum(shares.values()) == pytest.approx(1.0)
    assert [each["name"] for each in report["inert"]] == ["temperature"] * (shares["soft"] < NEGLIGIBLE)
    assert f"retrieval_kd soft {percent(shares['soft'])}" in printed
    text = (folder / "report.md").read_text()
    assert f"| retrieval_kd | soft | {percent(shares['soft'])} |" in text
    assert "importances need at least two finished trials, but there are 1." in text
    assert report["importances"]["shares"] == ()
    assert report["TF-IDF"]["metrics"] == {"fever_dcg": 0.5} and output == report
    card = (folder / "export" / "README.md").read_text()
    assert "IndexFlatIP" in card and "two equal towers" in card
    assert (folder / "export" / "claims" / "modules.json").is_file()
