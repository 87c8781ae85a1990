"""Plans: counts are those of the artifacts, seconds follow from rates and budgets, bad input is refused."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_experiment import sentences

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading import ingest
from stillhouse.corpora.tokens import build_tokens
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import hyper_parameters, load_method, with_defaults
from stillhouse.preflight.disk_and_memory import vector_bytes
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Space
from stillhouse.sweeps.forecast import PARTS, REFITS, SEARCH
from stillhouse.sweeps.planning import command_plan as planning
from stillhouse.sweeps.planning import counting
from stillhouse.sweeps.planning.bench import Bench
from stillhouse.sweeps.planning.bench import _training as training_of
from stillhouse.sweeps.planning.command_plan import Plan, Request, plan_embedding, plan_sweep, plan_training
from stillhouse.sweeps.runs import Training
from stillhouse.training.estimate import Pace
from stillhouse.values.stage import Stage

PACE = Pace(example_s=0.1, setup_s=1.0)


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cores", lambda: 2)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """The stages that would have been timed; the speed of this machine is made up."""
    stages: list[Stage] = []

    def paces(bench: Bench, given: list[Stage], dim: int) -> tuple[list[Pace], float]:
        stages.extend(given)
        return [PACE for _ in given], 50.0

    monkeypatch.setattr(Bench, "training_paces", paces)
    monkeypatch.setattr(Bench, "embedding_rate", lambda bench, store: 100.0)
    return stages


def training(experiment: Experiment, **values: Any) -> Training:
    method = load_method("mse")
    chosen = with_defaults(method, experiment)
    hp = hyper_parameters(method, {"batch_size": 16, **values})
    return Training("", method, hp, chosen, chosen.teacher.finder.resolve())


def test_counts_and_sizes_are_those_of_the_finished_artifacts(
    experiment: Experiment, workspace: Workspace, measured: list[Stage]
) -> None:
    workspace.claim()
    plan = plan_embedding(experiment, workspace, Request(), refresh=False)
    assert not list(workspace.root.glob("stores/*/manifest.json")), "nothing is embedded"
    trained = plan_training(training(experiment), workspace, Request(), refresh=False)
    prepared = prepare(experiment, workspace, Embedding(local=True))
    finished = [read_manifest(path.parent) for path in workspace.root.glob("stores/*/manifest.json")]
    vectors = rows_of(plan, "vectors")
    assert sorted((each["rows"], each["tokens"]) for each in vectors) == sorted(
        (each["rows"], each["tokens"]) for each in finished
    )
    sizes = sum(file.stat().st_size for file in workspace.root.glob("stores/*/*.arrow"))
    dim, rows = finished[0]["dim"], sum(each["rows"] for each in finished)
    assert sum(each["gigabytes"] for each in vectors) == pytest.approx(vector_bytes(rows, dim) / 1e9)
    assert len(vectors) == len(finished) == 3
    assert vector_bytes(10_000, 384) == 10_000 * 776 and sizes >= 2 * dim * rows

    stage = training(experiment).method.plan(training(experiment).hp, prepared.setting)
    ((table, _),) = counting.token_tables(counting.Counted(prepared.setting, (), workspace), [stage])
    build_tokens(workspace, table)
    tokens = read_manifest(workspace.path(table))
    (count,) = rows_of(trained, "tokens")
    assert (count["rows"], count["tokens"]) == (tokens["rows"], tokens["tokens"])
    on_disk = sum((workspace.path(table) / name).stat().st_size for name in ("ids.npy", "offsets.npy"))
    assert 1e9 * count["gigabytes"] == pytest.approx(on_disk - 2 * 128, abs=16)


def rows_of(plan: Plan, what: str) -> list[dict[str, Any]]:
    return [each for each in plan.made if each["what"].startswith(what)]


def test_of_a_large_corpus_some_is_read_and_the_rest_estimated(
    experiment: Experiment,
    workspace: Workspace,
    measured: list[Stage],
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
    vectors = rows_of(plan, "vectors")
    main_table = max(vectors, key=lambda each: int(each["rows"]))
    # The rows vary with the length of the first texts; 100 of them are held out, as of the sample.
    assert main_table["rows"] == pytest.approx(3900, rel=0.05) and 0.1 < plan.share < 0.3
    held_out = [each["rows"] for each in vectors if each is not main_table]
    assert len(held_out) == 2 and sum(held_out) < 150, "they do not grow with the corpus"
    assert 5 < main_table["tokens"] / main_table["rows"] < 12, "of 3 to 8 words"
    assert any("estimated from" in line for line in plan.lines())
    assert not list(workspace.root.glob("corpora/*/manifest.json")), "the sample is not kept"
    stated = changed(whole, {"sentences.count": 2000})
    part = plan_embedding(stated, workspace, Request(), refresh=False)
    first = next(each["rows"] for each in rows_of(part, "vectors") if each["what"].endswith("-train"))
    assert first == pytest.approx(2000 - 2 * 50, rel=0.05), "not three quarters of what the sample kept"
    with pytest.raises(BadInput, match="number of texts must be known"):
        packed = tmp_path / "many.txt.gz"
        packed.write_bytes(b"x" * 2000)
        plan_embedding(changed(whole, {"sentences.corpus": str(packed)}), workspace, Request(), refresh=False)


def sweep_of(experiment: Experiment, root: Path, **more: Any) -> SweepOptions:
    space = Space(
        "ckd", {"learning_rate": Categorical((1e-4, 3e-4))}, fixed={"batch_size": 16, "bank_size": 0}
    )
    return SweepOptions("s", "ckd", space, experiment, root, **{"trials": 8, **more})


def test_a_sweep_counts_its_trials_baselines_and_refits(
    experiment: Experiment, workspace: Workspace, measured: list[Stage]
) -> None:
    workspace.claim()
    options = sweep_of(experiment, workspace.root)
    plan = plan_sweep(options, workspace, Request())
    ((students,), (checkpoints,)) = (rows_of(plan, what) for what in ("students", "checkpoints"))
    assert students["number"] == 8 + 2 and checkpoints["number"] == 2 and plan.times[0]["trials"] == 8
    assert f"{1e3 * students['gigabytes'] / 10:,.1f} MB each" in students["what"]
    assert plan.made[-1]["gigabytes"] == pytest.approx(sum(e.get("gigabytes", 0) for e in plan.made[:-1]))
    (here,) = plan.times
    assert here["trials at once"] == 2 and here["teachers at once"] == 2
    assert here["hours"] == pytest.approx(sum(here[part] for part in PARTS) / 3600)
    assert any("75% of the trials are expected to be stopped" in line for line in plan.lines())
    assert json.loads(json.dumps(vars(plan)))["times"][0]["where"] == "here"
    (full,) = plan_sweep(dataclasses.replace(options, scheduler="none"), workspace, Request()).times
    assert full["hours"] > here["hours"]
    refits = changed(
        experiment, {"budget.refit.distil": 640, "budget.refit.top": 2, "budget.refit.evaluations": 2}
    )
    (longer,) = plan_sweep(dataclasses.replace(options, experiment=refits), workspace, Request()).times
    assert longer[REFITS] > 60 and here[REFITS] == 0
    fast = plan_sweep(options, workspace, Request(nodes=4, speed=2.0)).times[1]
    assert fast["trials at once"] == 8 and fast["where"] == "on 4 nodes, 2 x as fast"
    assert fast[SEARCH] < here[SEARCH] / 3
    with pytest.raises(BadInput, match="a trial must fit on a node"):
        plan_sweep(options, workspace, Request(need=Need(cpus=4, gpus=0)))


def test_what_has_run_here_is_not_timed_again(
    experiment: Experiment, workspace: Workspace, measured: list[Stage]
) -> None:
    workspace.claim()
    chosen = training(experiment)
    before = plan_training(chosen, workspace, Request(local=True), refresh=False)
    assert measured.pop().label == "mse" and before.times[0]["hours"] > 0
    prepared = prepare(experiment, workspace, Embedding(local=True))
    train(experiment, prepared, workspace)
    other = training(experiment, learning_rate=1e-5)
    after = plan_training(other, workspace, Request(local=True), refresh=False)
    assert not measured and "  as similar stages took here" in after.remarks
    assert after.times[0]["hours"] > 0
    done = plan_training(chosen, workspace, Request(local=True), refresh=False)
    assert done.times[0]["training"] == 0
    few = sweep_of(experiment, workspace.root)
    few = dataclasses.replace(few, space=dataclasses.replace(few.space, first={"learning_rate": 3e-4}))
    many = dataclasses.replace(few, trials=80)
    short, long = (plan_sweep(each, workspace, Request()).times[0] for each in (few, many))
    assert long[SEARCH] > 1.5 * short[SEARCH], "the other trials are not what was trained"


def test_processes_that_do_not_fit_into_memory_are_told(
    experiment: Experiment, workspace: Workspace, measured: list[Stage], monkeypatch: pytest.MonkeyPatch
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
    found: list[tuple[list[Pace], float]] = []
    run, real = Bench._run, Bench.training_paces

    def quick(bench: Bench, function: Callable[..., Any], *given: Any) -> list[Any]:
        """Take little time, and start a process, which imports everything, for the training alone."""
        bench = bench._replace(seconds=0.2, threads=1)
        return run(bench, function, *given) if function is training_of else [function(bench, *given)]

    def paces(bench: Bench, stages: list[Stage], dim: int) -> tuple[list[Pace], float]:
        found.append(real(bench, stages, dim))
        return found[0]

    monkeypatch.setattr(Bench, "_run", quick)
    monkeypatch.setattr(Bench, "training_paces", paces)
    plan = plan_training(training(experiment), workspace, Request(local=True), refresh=False)
    (((pace,), encoding),) = found
    assert 0 < pace.example_s < 10 and encoding > 0
    assert any("the teacher embeds" in line for line in plan.remarks)
    assert any("measured now" in line for line in plan.remarks)
    prepared = prepare(experiment, workspace, Embedding(local=True))
    folder = train(experiment, prepared, workspace)
    weights = (folder / "student.safetensors").stat().st_size
    assert rows_of(plan, "students")[0]["gigabytes"] * 1e9 == pytest.approx(weights, rel=0.05)


def train(experiment: Experiment, prepared: Any, workspace: Workspace) -> Path:
    from stillhouse.training.walk import run
    from stillhouse.training.where import Where

    chosen = training(experiment)
    return run(chosen.method.plan(chosen.hp, prepared.setting), workspace, where=Where(device="cpu"))
