"""Plans: counts are those of the artifacts, seconds follow from rates and budgets, bad input is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from small_experiment import sentences  # type: ignore[import-not-found]

from stillhouse.cli.main import main
from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading import ingest
from stillhouse.corpora.tokens import build_tokens
from stillhouse.experiments.embedding import Embedding
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.preparation import prepare
from stillhouse.methods import hyper_parameters, load_method, with_defaults
from stillhouse.preflight.space import token_bytes, vector_bytes
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Space
from stillhouse.sweeps.forecast import REFITS, SEARCH
from stillhouse.sweeps.planning import bench, counting
from stillhouse.sweeps.planning import plan as planning
from stillhouse.sweeps.planning.bench import Measured, Sample
from stillhouse.sweeps.planning.plan import Request, plan_embedding, plan_sweep, plan_training
from stillhouse.sweeps.runs import Training
from stillhouse.training.estimate import Pace

PACE = Pace(example_s=0.1, evaluation_s=2.0, setup_s=1.0)
MEASURED = Measured(embedding=100.0, load_s=3.0, encoding=50.0, source="made up")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "-1"], "--nodes >= 1"),
        (["--nodes", "2", "--speed", "0"], "--speed > 0"),
        (["--nodes", "2", "--speed", "fast"], "--speed must be a number"),
        (["--speed", "3"], "--speed must go with --nodes"),
        (["--for", "mine"], "--for must be one of sweep, train, embed"),
        (["--local"], "--local must go with"),
        (["--corpus", "/nowhere.txt"], "does not exist"),
        (["--for", "train", "--local", "--nodes", "1"], "--nodes must go with work on a cluster"),
    ],
)
def test_bad_input_is_one_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "mse", "--root", str(tmp_path / "runs"), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("stillhouse:") == 1
    assert not list(tmp_path.glob("runs/*/*/manifest.json"))


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cpus_here", lambda: 2.0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Sample]:
    """What stands for the speed of this machine; the samples that would have been timed."""
    samples: list[Sample] = []

    def calibrate(sample: Sample, **_: Any) -> Measured:
        samples.append(sample)
        return dataclasses.replace(MEASURED, training={stage.label: PACE for stage in sample.stages})

    monkeypatch.setattr(planning, "calibrated", calibrate)
    return samples


def training(experiment: Experiment, **values: Any) -> Training:
    method = load_method("mse")
    chosen = with_defaults(method, experiment)
    hp = hyper_parameters(method, {"batch_size": 16, **values})
    return Training("", method, hp, chosen, chosen.teacher.resolve())


def test_counts_and_sizes_are_those_of_the_finished_artifacts(
    experiment: Experiment, workspace: Workspace, measured: list[Sample]
) -> None:
    workspace.claim()
    plan = plan_embedding(experiment, workspace, Request(), refresh=False)
    assert not list(workspace.root.glob("stores/*/manifest.json")), "nothing is embedded"
    trained = plan_training(training(experiment), workspace, Request(), refresh=False)
    prepared = prepare(experiment, workspace, Embedding(local=True))
    finished = [read_manifest(path.parent) for path in workspace.root.glob("stores/*/manifest.json")]
    assert sorted((each.rows, each.tokens) for each in plan.texts) == sorted(
        (each["rows"], each["tokens"]) for each in finished
    )
    sizes = sum(file.stat().st_size for file in workspace.root.glob("stores/*/*.arrow"))
    dim, rows = finished[0]["dim"], sum(each["rows"] for each in finished)
    made = {each.name: each for each in plan.made}
    assert made["stores of vectors"].gigabytes == vector_bytes(rows, dim) / 1e9
    assert made["stores of vectors"].count == len(finished) == 3
    assert vector_bytes(10_000, 384) == 10_000 * 776 and sizes >= 2 * dim * rows

    stage = training(experiment).method.plan(training(experiment).hp, prepared.setting)
    (table,) = [table for table, _, _ in counting.token_tables(_known(prepared, workspace), [stage])]
    build_tokens(workspace, table)
    tokens = read_manifest(workspace.path(table))
    (count,) = [each for each in trained.texts if each.what == "student"]
    assert (count.rows, count.tokens) == (tokens["rows"], tokens["tokens"])
    on_disk = sum((workspace.path(table) / name).stat().st_size for name in ("ids.npy", "offsets.npy"))
    assert token_bytes(count.rows, count.tokens) == pytest.approx(on_disk - 2 * 128, abs=16)


def _known(prepared: Any, workspace: Workspace) -> counting.Counted:
    return counting.Counted(prepared, (), workspace, 1.0, 0.0)


def test_of_a_large_corpus_some_is_read_and_the_rest_estimated(
    experiment: Experiment,
    workspace: Workspace,
    measured: list[Sample],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest, "SMALL_BYTES", 1000)
    monkeypatch.setattr(ingest, "_FEW_TEXTS", 10)
    monkeypatch.setattr(counting, "_HEAD_BYTES", 20_000)
    monkeypatch.setattr(counting, "SAMPLE", 500)
    corpus = tmp_path / "many.txt"
    corpus.write_text("\n".join(sentences(4000, 3)) + "\n")
    workspace.claim()
    whole = changed(experiment, {"sentences.corpus": str(corpus), "sentences.held_out": 50})
    plan = plan_embedding(whole, workspace, Request(), refresh=False)
    main_table = max(plan.texts, key=lambda each: each.rows)
    # The rows vary with the length of the first texts; 100 of them are held out, as of the sample.
    assert main_table.rows == pytest.approx(3900, rel=0.05) and 0.1 < plan.share < 0.3
    held_out = [each.rows for each in plan.texts if each is not main_table]
    assert len(held_out) == 2 and sum(held_out) < 150, "they do not grow with the corpus"
    assert 5 < main_table.tokens / main_table.rows < 12, "of 3 to 8 words"
    assert any("estimated from" in line for line in plan.lines())
    assert not list(workspace.root.glob("corpora/*/manifest.json")), "the sample is not kept"
    stated = changed(whole, {"sentences.count": 2000})
    part = plan_embedding(stated, workspace, Request(), refresh=False)
    first = next(each.rows for each in part.texts if each.label.endswith("-train"))
    assert first == pytest.approx(2000 - 2 * 50, rel=0.05), "not three quarters of what the sample kept"
    with pytest.raises(BadInput, match="number of texts must be known"):
        packed = tmp_path / "many.txt.gz"
        packed.write_bytes(b"x" * 2000)
        plan_embedding(changed(whole, {"sentences.corpus": str(packed)}), workspace, Request(), refresh=False)


def sweep_of(experiment: Experiment, root: Path, **more: Any) -> SweepOptions:
    space = Space("mse", {"learning_rate": Categorical((1e-4, 3e-4))}, fixed={"batch_size": 16})
    return SweepOptions("s", "mse", space, experiment, root, **{"trials": 8, **more})


def test_a_sweep_counts_its_trials_baselines_and_refits(
    experiment: Experiment, workspace: Workspace, measured: list[Sample]
) -> None:
    workspace.claim()
    options = sweep_of(experiment, workspace.root)
    plan = plan_sweep(options, workspace, Request())
    students = {each.name: each for each in plan.made if "students" in each.name}
    assert students["students of the stage mse"].count == 8 + 3
    assert students["students of the stage mse"].gigabytes == pytest.approx(
        11 * plan.students_mb["mse"] / 1e3
    )
    (here,) = plan.estimates
    assert here.at_once == 2 and here.teachers == 2
    assert "asha" in plan.remarks[0] and "first 1" in plan.remarks[0]
    assert any("a student of the stage mse: " in line for line in plan.lines())
    (full,) = plan_sweep(dataclasses.replace(options, scheduler="none"), workspace, Request()).estimates
    assert full.total > here.total
    refits = changed(
        experiment, {"budget.refit.distil": 640, "budget.refit.top": 2, "budget.refit.evaluations": 2}
    )
    (longer,) = plan_sweep(dataclasses.replace(options, experiment=refits), workspace, Request()).estimates
    assert longer.seconds[REFITS] > 60 and here.seconds[REFITS] == 0
    fast = plan_sweep(options, workspace, Request(nodes=4, speed=2.0)).estimates[1]
    assert fast.at_once == 8 and fast.where == "on 4 nodes, each 2 times as fast"
    assert fast.seconds[SEARCH] < here.seconds[SEARCH] / 3
    with pytest.raises(BadInput, match="a trial must fit on a node"):
        plan_sweep(options, workspace, Request(need=Need(cpus=4, gpus=0)))


def test_what_has_run_here_is_not_timed_again(
    experiment: Experiment, workspace: Workspace, measured: list[Sample]
) -> None:
    workspace.claim()
    chosen = training(experiment)
    before = plan_training(chosen, workspace, Request(local=True), refresh=False)
    assert [stage.label for stage in measured.pop().stages] == ["mse"] and before.estimates[0].total > 0
    prepared = prepare(experiment, workspace, Embedding(local=True))
    train(experiment, prepared, workspace)
    other = training(experiment, learning_rate=1e-5)
    after = plan_training(other, workspace, Request(local=True), refresh=False)
    assert not measured and after.rates[-1] == "  as similar stages and stores took here"
    assert after.estimates[0].total > 0
    done = plan_training(chosen, workspace, Request(local=True), refresh=False)
    assert done.estimates[0].seconds[SEARCH] == 0
    few = sweep_of(experiment, workspace.root)
    few = dataclasses.replace(few, space=dataclasses.replace(few.space, first={"learning_rate": 3e-4}))
    many = dataclasses.replace(few, trials=80)
    short, long = (plan_sweep(each, workspace, Request()).estimates[0] for each in (few, many))
    assert long.seconds[SEARCH] > 1.5 * short.seconds[SEARCH], "the other trials are not what was trained"


def test_processes_that_do_not_fit_into_memory_are_told(
    experiment: Experiment, workspace: Workspace, measured: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.claim()
    options = sweep_of(experiment, workspace.root)
    assert not any("memory" in each for each in plan_sweep(options, workspace, Request()).remarks)
    monkeypatch.setattr(planning, "available_memory", lambda: 1_000_000_000)
    told = [each for each in plan_sweep(options, workspace, Request()).remarks if "memory" in each]
    assert len(told) == 2 and "2 processes at once (trial)" in told[1]


def test_this_machine_is_measured_with_real_steps(
    experiment: Experiment, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.claim()
    monkeypatch.setattr(bench, "SECONDS", 1.0)
    found: list[Measured] = []
    real = bench.calibrated

    def calibrate(sample: Sample, **more: Any) -> Measured:
        found.append(real(sample, **more))
        return found[-1]

    monkeypatch.setattr(planning, "calibrated", calibrate)
    request = Request(local=True, logs=workspace.root / "logs")
    plan = plan_training(training(experiment), workspace, request, refresh=False)
    (here,) = found
    assert here.embedding > 0 and 0 < here.training["mse"].example_s < 10 and here.encoding > 0
    assert here.load_s > 0.1 and "measured now" in here.source
    prepared = prepare(experiment, workspace, Embedding(local=True))
    folder = train(experiment, prepared, workspace)
    weights = (folder / "student.safetensors").stat().st_size
    assert plan.students_mb["mse"] * 1e6 == pytest.approx(weights, rel=0.05)


def train(experiment: Experiment, prepared: Any, workspace: Workspace) -> Path:
    from stillhouse.training.walk import run
    from stillhouse.training.where import Where

    chosen = training(experiment)
    return run(chosen.method.plan(chosen.hp, prepared.setting), workspace, where=Where(device="cpu"))
