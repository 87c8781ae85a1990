"""Reranker distillation on real files: one reranker, one pass over the pairs, and students that read them."""

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pytest
from rows import each_row
from small_experiment import context_in

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.labelled import read_scored
from stillhouse.corpora.tables import open_rows, open_texts, open_values, sampled_rows
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.scores import Scores
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import check_needs, hyper_parameters, load_method, rerank_kd, with_defaults
from stillhouse.search.trial import Context
from stillhouse.sweeps.checks import check_plans
from stillhouse.sweeps.contenders import Candidate, Contenders
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import pair_scores
from stillhouse.training.models import encoder_in
from stillhouse.training.table import open_table, student_reader
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Examples, Given, Mined, Sampled, Scored, sample
from stillhouse.values.setting import ScoreData, Setting
from stillhouse.values.stage import Stage

METHOD = load_method("rerank_kd")
SMALL: dict[str, Any] = {"batch_size": 16, "teacher_batch_size": 16, "learning_rate": 1e-3}
WHERE = Where(device="cpu", threads=1)
LOCAL = Embedding(local=True)


def planned(setting: Setting, **values: Any) -> Stage:
    return METHOD.plan(hyper_parameters(METHOD, {**SMALL, **values}), setting)


@pytest.fixture
def context(shared_context: Context) -> Context:
    """A context whose rerankers, and what they have scored, the tests share."""
    return shared_context


@pytest.fixture
def home(context: Context) -> Workspace:
    return Workspace(Path(context.root))


@pytest.fixture
def fresh(prepared: Prepared, workspace: Workspace) -> Context:
    """A context in which nothing is trained."""
    return context_in(workspace, prepared)


def candidates(home: Workspace, examples: Examples) -> tuple[list[str], list[list[str]]]:
    """The queries, and the texts of each one's passage and hard negatives."""
    rows = open_rows(home, examples)
    queries, passages = (open_texts(home, examples.columns[name]) for name in ("query", "passage"))
    ids_NC = np.concatenate([rows["passage"][:, None], rows["negatives"]], axis=1)
    return list(queries[rows["query"]]), [list(passages[ids]) for ids in ids_NC]


def test_students_share_one_reranker_and_one_pass(
    fresh: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Workspace(Path(fresh.root))
    opened, scorer = [], pair_scores.teacher_scorer

    def counted(*given: Any) -> Any:
        opened.append(given)
        return scorer(*given)

    monkeypatch.setattr(pair_scores, "teacher_scorer", counted)
    stages = [
        planned(fresh.setting, **values)
        for values in ({}, {"loss": "kl", "temperature": 3.0}, {"loss": "contrastive_kl", "weight": 0.5})
    ]
    for stage in stages:
        run(stage, home, where=WHERE)
    assert len({stage.fingerprint for stage in stages}) == 3 and len(opened) == 1
    stages.append(planned(dataclasses.replace(fresh.setting, seed=7)))
    assert len({next(iter(stage.chain())).fingerprint for stage in stages}) == 1
    assert len({stage.fingerprint for stage in stages}) == 4
    examples = stages[0].examples
    assert isinstance(examples.origin, Scored) and isinstance(examples.origin.teacher, Stage)
    scores = open_values(home, examples)["scores"]
    queries, passages = candidates(home, examples)
    assert scores.shape == (len(queries), 2) and f"scoring: {len(queries)} of" in capsys.readouterr().err
    teacher = encoder_in(home.path(examples.origin.teacher))
    for place in (0, 1):
        again = teacher.score(queries, [each[place] for each in passages])
        np.testing.assert_allclose(scores[:, place], again[:, 0], atol=1e-5)
    with pytest.raises(BadInput, match="is a teacher"):
        export_stage(home.path(examples.origin.teacher), home.root / "export")


def test_a_killed_pass_resumes_without_scoring_twice(fresh: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Workspace(Path(fresh.root))
    monkeypatch.setattr(pair_scores, "AT_ONCE", 16)
    stage, calls = planned(fresh.setting), []
    teacher, _ = stage.chain()
    run(teacher, home, where=WHERE)
    ask = pair_scores._scores

    def breaks(*given: Any) -> Any:
        calls.append(given[3].tolist())
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ask(*given)

    monkeypatch.setattr(pair_scores, "_scores", breaks)
    with pytest.raises(KeyboardInterrupt):
        pair_scores.build_scored(home, stage.examples)
    assert not home.finished(stage.examples)
    pair_scores.build_scored(home, stage.examples)
    rows = open_rows(home, stage.examples)["query"].tolist()
    assert calls[0] + calls[2] + list(itertools.chain(*calls[3:])) == rows and calls[1] == calls[2]
    whole = open_values(home, stage.examples)["scores"].copy()
    monkeypatch.undo()
    home.path(stage.examples).rename(home.root / "aside")
    pair_scores.build_scored(home, stage.examples)
    np.testing.assert_allclose(open_values(home, stage.examples)["scores"], whole, atol=1e-5)


def test_the_reranker_is_selected_on_pairs_that_it_does_not_learn_from(
    context: Context, home: Workspace
) -> None:
    stage = planned(context.setting, teacher_held_out=0.25)
    teacher, _ = stage.chain()
    folder = run(teacher, home, where=WHERE)
    origin = teacher.examples.origin
    assert isinstance(origin, Sampled) and origin.fraction == 0.75
    queries, passages = candidates(home, origin.rows)
    left = sorted(set(range(len(queries))) - set(sampled_rows(home, origin).tolist()))
    assert len(left) == round(0.25 * len(queries))
    scorer = encoder_in(folder)
    scores = np.stack(
        [
            scorer.score([queries[row] for row in left], [passages[row][k] for row in left])[:, 0]
            for k in (0, 1)
        ]
    )
    metrics = read_manifest(folder)["metrics"]
    assert metrics["reranker_accuracy@1"] == pytest.approx((scores[0] > scores[1]).mean())
    assert teacher.dev is not None and teacher.dev.select == "reranker_accuracy@1"
    right = {(queries[row], passages[row][0]) for row in left}
    knows: Any = SimpleNamespace(
        score=lambda first, second: [[float(pair in right)] for pair in zip(first, second, strict=True)]
    )
    (evaluator,) = teacher.dev.evaluators
    assert evaluator.build(workspace=home)(knows)["reranker_accuracy@1"] == 1.0
    with pytest.raises(BadInput, match="pairs held out from the training of the reranker >= 1"):
        run(next(planned(context.setting, teacher_held_out=0.001).chain()), home, where=WHERE)


def test_weight_zero_is_infonce_alone(context: Context, home: Workspace) -> None:
    alone = planned(context.setting, **rerank_kd.BASELINE.values)
    assert [stage.label for stage in alone.chain()] == ["rerank_kd"] and not alone.examples.values
    assert alone.examples == context.setting[Pairs].examples
    run(alone, home, where=WHERE)
    losses = [
        json.loads(line) for line in (home.path(alone) / "metrics.jsonl").read_text().splitlines() if line
    ]
    assert any("loss/nce" in str(line) for line in losses) and not any("loss/soft" in str(x) for x in losses)


def test_a_share_of_the_pairs_reads_the_scores_of_all(context: Context) -> None:
    data = context.setting[Pairs]
    half = dataclasses.replace(data, examples=sample(data.examples, 0.5))
    whole, part = planned(context.setting), planned(context.setting.having(Pairs, half))
    assert isinstance(part.examples.origin, Sampled) and part.examples.origin.rows == whole.examples
    assert part.examples.values == ("scores",) and next(part.chain()) == next(whole.chain())


def test_a_published_cross_encoder_needs_no_stage(
    context: Context, home: Workspace, tiny_cross_encoder: Callable[[int], Path]
) -> None:
    from stillhouse.teachers.cross_encoder import CrossEncoderScorer

    model = resolve_model(str(tiny_cross_encoder(1)))
    stage = planned(context.setting.having(Scores, ScoreData(cross_encoder=model)))
    assert [part.label for part in stage.chain()] == ["rerank_kd"]
    run(stage, home, where=WHERE)
    assert isinstance(stage.examples.origin, Scored) and stage.examples.origin.max_length == 32
    queries, passages = candidates(home, stage.examples)
    expected = CrossEncoderScorer(model, 32).score(queries, [each[1] for each in passages])
    np.testing.assert_allclose(open_values(home, stage.examples)["scores"][:, 1], expected[:, 0], atol=1e-5)


def with_negatives(setting: Setting, count: int) -> Setting:
    """The setting with so many mined negatives per pair."""
    pairs = setting[Pairs]
    assert isinstance(pairs.examples.origin, Mined)
    origin = dataclasses.replace(pairs.examples.origin, negatives=count)
    examples = dataclasses.replace(pairs.examples, origin=origin)
    return setting.having(Pairs, dataclasses.replace(pairs, examples=examples))


def test_fewer_candidates_are_the_first_ones_with_their_scores(context: Context, home: Workspace) -> None:
    """The reranker scores all of them once, whatever the number that a student reads."""
    width, setting = 4, with_negatives(context.setting, 3)
    whole = planned(setting)
    stages = {count: planned(setting, candidates=count) for count in (0, 2, width)}
    assert stages[0].fingerprint == stages[width].fingerprint == whole.fingerprint
    fewer = stages[2]
    assert fewer.fingerprint != whole.fingerprint
    run(whole, home, where=WHERE)
    before = sorted(home.root.glob("examples/*"))
    folder = run(fewer, home, where=WHERE)
    assert sorted(home.root.glob("examples/*")) == before, "nothing is scored again"
    assert read_manifest(folder)["steps"] > 0
    (rows, values), (all_rows, all_values) = (
        (open_rows(home, each.examples), open_values(home, each.examples)) for each in (fewer, whole)
    )
    assert rows["negatives"].shape == (len(rows["query"]), 1)
    np.testing.assert_array_equal(rows["negatives"][:, 0], all_rows["negatives"][:, 0])
    np.testing.assert_array_equal(values["scores"], all_values["scores"][:, :2])
    np.testing.assert_array_equal(rows["passage"], all_rows["passage"])
    batch = open_table(home, fewer, student_reader(fewer, whole.student.build().tokenizer)).batch(
        np.arange(4)
    )
    assert batch.values["scores"].shape == (4, 2) and len(batch.tokens["negatives"].input_ids_BT) == 4
    share = setting[Pairs]
    half = dataclasses.replace(share, examples=sample(share.examples, 0.5))
    sampled = planned(setting.having(Pairs, half), candidates=2)
    kept = open_values(home, sampled.examples)["scores"]
    assert kept.shape == (len(open_rows(home, half.examples)["query"]), 2)
    with pytest.raises(
        BadInput, match=f"candidates <= 1 \\+ hard negatives per query.*negatives={width - 1}"
    ):
        planned(setting, candidates=width + 1)
    with pytest.raises(BadInput, match="candidates >= 2"):
        planned(context.setting, candidates=1)


@pytest.mark.parametrize("form", ["scores", "scores-flag"])
def test_recorded_scores_are_exported_and_read_back(
    form: str, context: Context, home: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same texts and the same numbers, by this package's reader and by datasets."""
    setting = with_negatives(context.setting, 3)
    stage = planned(setting, candidates=3)
    folder, file = run(stage, home, where=WHERE), tmp_path / "scores.jsonl"
    root = ["--root", str(home.root)]
    assert main(["export", str(folder), str(file), "--format", form, *root]) == 0
    scored = next(each for each in stage.examples.sources() if isinstance(each.origin, Scored))
    queries, passages = candidates(home, scored)
    assert f"({form}, {len(queries):,} rows)" in capsys.readouterr().out
    elsewhere = Workspace(tmp_path / "elsewhere")
    read = read_scored(elsewhere, str(file))
    assert candidates(elsewhere, read) == (queries, passages)
    recorded, again = (open_values(each, of)["scores"] for each, of in ((home, scored), (elsewhere, read)))
    assert recorded.dtype == again.dtype == np.float32
    np.testing.assert_array_equal(recorded, again)
    rows = datasets.load_dataset("json", data_files=str(file), split="train")
    assert len(rows) == len(queries) and rows[3]["query"] == queries[3]
    if form == "scores":
        assert rows.column_names[:3] == ["query", "positive", "negative_1"]
        assert [rows[3][name] for name in rows.column_names[1:-1]] == passages[3]
    said = refused(["export", str(folder), str(tmp_path / "scores.csv"), "--format", form, *root], capsys)
    assert "scores must be written to FILE.jsonl" in said
    alone = run(planned(setting, **rerank_kd.BASELINE.values), home, where=WHERE)
    said = refused(["export", str(alone), str(tmp_path / "none.jsonl"), "--format", form, *root], capsys)
    assert "learnt from scores of pairs" in said and not (tmp_path / "none.jsonl").exists()
    assert main(["export", str(alone), "--format", "list", *root]) == 0
    assert f"{form:<22} no: scores can be exported" in capsys.readouterr().out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_a_scale_that_does_not_fit_is_warned_of_before_the_first_step(
    context: Context, home: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = planned(context.setting, scale=1e-3, similarity="cosine")
    run(stage, home, where=WHERE)
    said = capsys.readouterr().err
    assert said.count("the reranker's scores of a query's candidates span") == 1
    proposed = float(said.partition("Set scale=")[2].split()[0].rstrip("."))
    run(planned(context.setting, scale=proposed, similarity="cosine"), home, where=WHERE)
    assert "Set scale" not in capsys.readouterr().err


def test_the_teacher_of_the_comparison_is_the_one_that_embeds(context: Context, home: Workspace) -> None:
    stage = planned(context.setting)
    folder = run(stage, home, where=WHERE)
    record: Any = None
    prepared: Any = SimpleNamespace(setting=context.setting.having(Claims, None))
    contenders = Contenders(Candidate(record, stage, folder), None, prepared, "cpu")
    teacher, _ = contenders.encoders(home)["teacher"]
    assert np.asarray(teacher.encode(["a cat"])).shape == (1, context.setting.teacher_dim)


FLAG = {"query": "cat", "pos": ["the cat sat"], "pos_scores": [9.0]}


def scores_file(path: Path, rows: int = 40) -> str:
    words = "cat dog sat mat house river water sun moon red".split()
    lines = [
        {
            **FLAG,
            "query": f"{words[row % 10]} {words[row // 10]}",
            "neg": [f"the {words[(row + k) % 10]} and {words[k]}" for k in (1, 2, 3)],
            "neg_scores": [3.0 - row / 10, 0.5, -4.0],
        }
        for row in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_files_of_scores_are_trained_on_as_they_are(
    experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    given = with_defaults(METHOD, changed(experiment, {"scores.path": scores_file(tmp_path / "s.jsonl")}))
    check_plans(METHOD, given, [{**SMALL}])
    prepared = prepare(given, workspace, LOCAL)
    examples = prepared.setting[Pairs].examples
    assert isinstance(examples.origin, Given) and examples.values == ("scores",)
    assert prepared.facts["pairs"] == 40 and "s.jsonl" in prepared.facts["reranker"]
    stage = planned(prepared.setting, loss="kl")
    assert [part.label for part in stage.chain()] == ["rerank_kd"] and stage.examples == examples
    folder = run(stage, workspace, where=WHERE)
    assert export_stage(folder, tmp_path / "export").parity > 0.9999
    labels = [path.name.rpartition("-")[0] for path in (workspace.root / "stores").iterdir()]
    assert not any("scored" in label or "pydocs" in label for label in labels), "nothing of it is embedded"


def test_what_does_not_go_together_is_refused(
    experiment: Experiment, tmp_path: Path, tiny_model: Path, tiny_cross_encoder: Callable[[int], Path]
) -> None:
    path = scores_file(tmp_path / "s.jsonl")
    with pytest.raises(BadInput, match="rerank_kd must be given labelled text"):
        check_needs(METHOD, experiment)
    check_needs(METHOD, changed(experiment, {"scores.path": path}))
    for values, message in (
        ({"scores.path": path, "scores.cross_encoder": "x"}, "read from files or given by a cross-encoder"),
        ({"scores.path": path, "pairs.path": "p.jsonl"}, "must come without labelled text"),
        ({"scores.cross_encoder": "x"}, "must come with pairs, which it scores"),
        ({"scores.path": path, "scores.negatives": -1}, "scores.negatives >= 0"),
    ):
        with pytest.raises(BadInput, match=message):
            changed(experiment, values)
    for values, message in (
        ({"scores.path": str(tmp_path / "none.jsonl")}, "file of scores .* does not exist"),
        ({"scores.cross_encoder": str(tiny_model), "pairs.path": "p"}, "trained head"),
        ({"scores.cross_encoder": str(tiny_cross_encoder(3)), "pairs.path": "p"}, "one label"),
    ):
        with pytest.raises(BadInput, match=message):
            changed(experiment, values).check()


@each_row(
    ("values", "name"),
    [
        ({"loss": "mse"}, "loss"),
        ({"teacher_loss": "mse"}, "teacher_loss"),
        ({"similarity": "angle"}, "similarity"),
        ({"teacher_held_out": 0.0}, "teacher_held_out"),
        ({"teacher_budget": -1}, "teacher_budget"),
    ],
)
def test_bad_values_are_refused(values: dict[str, Any], name: str) -> None:
    with pytest.raises(BadInput, match=name):
        hyper_parameters(METHOD, values)


def test_pairs_without_hard_negatives_are_refused(context: Context) -> None:
    data = context.setting[Pairs]
    bare = Examples({name: data.examples.columns[name] for name in ("query", "passage")}, Given("pairs"))
    with pytest.raises(BadInput, match="must be given hard negatives"):
        planned(context.setting.having(Pairs, dataclasses.replace(data, examples=bare)))


def test_from_the_command_line(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.txt").write_text(
        "".join(f"the {a} and a {b}\n" for a in "abcdefgh" for b in "ijklmnopq")
    )
    path = scores_file(tmp_path / "s.jsonl")
    command = [
        *("train", "rerank_kd", "--local", "--root", str(tmp_path / "runs"), "--teacher", str(tiny_model)),
        *("--corpus", str(tmp_path / "words.txt"), "--sentences", "0", "--set", "sentences.held_out=10"),
        *("--max-length", "12", "--compute", "float32", "--distil-budget", "32", "--evaluations", "1"),
        *("--set", "batch_size=16", "--set", "loss=kl", "--set", "scale=10"),
    ]
    assert main([*command, "--set", f"scores.path={path}"]) == 0
    output = capsys.readouterr()
    assert "40 rows read: 40 kept, 0 duplicates, 0 set aside; 3 hard negatives each" in output.err
    assert "rerank_kd: 32 examples" in output.err
    before = sorted((tmp_path / "runs" / "examples").iterdir())
    for row, message in (
        (
            {**FLAG, "neg": ["a", "b"], "neg_scores": [1.0]},
            "one score per passage, but has 1 scores for 2 neg",
        ),
        ({**FLAG, "neg": ["a"], "neg_scores": [float("nan")]}, "finite numbers as scores"),
        ({**FLAG, "neg": [], "neg_scores": []}, "must have candidates"),
    ):
        (tmp_path / "bad.jsonl").write_text(json.dumps(row) + "\n")
        assert main([*command, "--set", f"scores.path={tmp_path / 'bad.jsonl'}"]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    assert sorted((tmp_path / "runs" / "examples").iterdir()) == before, "nothing half-written"
    assert main(command) == 2
    assert "rerank_kd must be given labelled text" in capsys.readouterr().err


def test_scored_rows_that_name_a_judged_passage_are_left_out(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, path = tmp_path / "own", Path(scores_file(tmp_path / "s.jsonl"))
    files: dict[str, list[Any]] = {
        "corpus.jsonl": [
            {"_id": f"d{at}", "text": f"The {word} is judged."} for at, word in enumerate("abcd")
        ],
        "queries.jsonl": [{"_id": f"q{at}", "text": f"which {word}"} for at, word in enumerate("abcd")],
        "qrels/dev.tsv": ["query-id\tcorpus-id\tscore", *(f"q{at}\td{at}\t1" for at in range(4))],
    }
    for name, rows in files.items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (own / name).write_text("".join(f"{line}\n" for line in lines))
    barred = {**FLAG, "query": "a new query", "neg": ["x", "THE B IS JUDGED", "z"], "neg_scores": [1, 2, 3]}
    path.write_text(path.read_text() + json.dumps(barred) + "\n")
    (tmp_path / "words.txt").write_text("".join(f"{a} and {b}\n" for a in "abcdefgh" for b in "ijklmnopq"))
    command = [
        *("train", "rerank_kd", "--local", "--root", str(tmp_path / "runs"), "--teacher", str(tiny_model)),
        *("--corpus", str(tmp_path / "words.txt"), "--sentences", "0", "--set", "sentences.held_out=10"),
        *("--max-length", "12", "--compute", "float32", "--distil-budget", "32", "--evaluations", "1"),
        *("--set", "batch_size=16", "--set", "loss=kl", "--dev-collection", str(own)),
    ]
    assert main([*command, "--set", f"scores.path={path}"]) == 0
    told = capsys.readouterr().err
    assert "pairs left out, since they measure: 1 (search 1, agreement 0)" in told
    assert "rerank_kd: 32 examples" in told
