"""Plans: counts are those of the artifacts, seconds follow from rates and budgets, bad input is refused."""

import dataclasses
import json
import re
import time
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
from stillhouse.sweeps.planning import bench, counting, note
from stillhouse.sweeps.planning import plan as planning
from stillhouse.sweeps.planning.arithmetic import (
    DELIVERY,
    EMBEDDING,
    READING,
    REFITS,
    START,
    TRAINING,
    StageWork,
    TableWork,
    Work,
    estimated,
    expected_share,
    makespan,
    stage_seconds,
)
from stillhouse.sweeps.planning.nodes import Nodes, checked_price, chosen_nodes, parse_nodes, price_of
from stillhouse.sweeps.planning.page import lines_of
from stillhouse.sweeps.planning.plan import Request, plan_embedding, plan_sweep, plan_training
from stillhouse.sweeps.planning.rates import HERE, Rates, StageRate, read_rates
from stillhouse.sweeps.runs import Training
from stillhouse.sweeps.sweep import plan_identity

DISTIL = StageRate(examples_per_second=10.0, setup_s=2.0, save_s=1.0, megabytes=40.0)
RATES = Rates(
    cpus=2,
    gpus=0,
    start_s=4.0,
    load_s=3.0,
    embedding=100.0,
    encoding=50.0,
    tested_student=80.0,
    tested_teacher=40.0,
    training={"distil": DISTIL},
    process_mb=500.0,
    teacher="",
    source="made up",
)
HERE_2 = [Nodes(1, HERE, RATES)]
STAGE = StageWork("distil", examples=400, evaluations=2)
WORK = Work(
    tables=(TableWork("texts", rows=100, tokens=4000, shards=4),),
    trial=(STAGE,),
    trials=4,
    full=4,
    baseline=(STAGE,),
    baselines=2,
    refit=(dataclasses.replace(STAGE, examples=4000),),
    refits=1,
    dev_tokens=500,
    test_tokens=1000,
    tested=3,
)


def seconds(
    work: Work = WORK, nodes: list[Nodes] | None = None, need: Need | None = None, **more: Any
) -> Any:
    return estimated(work, nodes or HERE_2, need or Need(gpus=0), "cpu", **more).seconds


def rates(**changes: Any) -> list[Nodes]:
    return [Nodes(1, HERE, dataclasses.replace(RATES, **changes))]


def test_jobs_go_to_whatever_is_free_first() -> None:
    assert makespan([[3.0]] * 3, [2]) == 6
    assert makespan([[3.0], [1.0], [1.0], [1.0]], [2]) == 3
    assert makespan([[3.0]] * 3, [3], ready=5.0) == 8
    assert makespan([[4.0, 8.0]] * 2, [1, 1]) == 8, "the second job is on the slower kind"
    assert makespan([], [2], ready=5.0) == 0


def test_a_stage_is_its_start_steps_checkpoints_and_evaluations() -> None:
    assert stage_seconds(STAGE, RATES, dev_tokens=500) == 2 + 400 / 10 + 3 * 1.0 + 2 * 500 / 50
    longer = dataclasses.replace(STAGE, examples=1300)
    assert stage_seconds(longer, RATES, 500) == 2 + 130 + (3 + 2) * 1.0 + 20, "one more each minute"
    assert stage_seconds(STAGE, RATES, 500, processes=2) == 2 + 20 + 3 + 10
    with pytest.raises(BadInput, match="cover every stage"):
        stage_seconds(dataclasses.replace(STAGE, label="finetune"), RATES, 500)


def test_every_part_by_hand() -> None:
    one = 65.0
    found = seconds()
    assert found[EMBEDDING] == 4 * 1.5 + 3 + 2 * 1000 / 100, "four shards on two teachers"
    assert found[TRAINING] == 4 + 3 * one, "two baselines and four trials on two CPUs"
    assert found[REFITS] == 4 + 2 + 200 + (2 + 1 + 3) + 2 * 500 / 100, "alone, with both CPUs"
    assert found[DELIVERY] == 3 * 1000 / 80 + 1500 / 40 + 2 * 3 + 3 * 2 + 1 + 4
    assert found[READING] == 0 and found[START] == 6


def test_each_rate_moves_its_own_part() -> None:
    plain = seconds()
    faster = seconds(nodes=rates(embedding=200.0))
    assert faster[EMBEDDING] == plain[EMBEDDING] - 10 and faster[TRAINING] == plain[TRAINING]
    quick = {"distil": dataclasses.replace(DISTIL, examples_per_second=20.0)}
    faster = seconds(nodes=rates(training=quick))
    assert faster[TRAINING] == plain[TRAINING] - 3 * 20 and faster[EMBEDDING] == plain[EMBEDDING]
    faster = seconds(nodes=rates(encoding=100.0))
    assert faster[TRAINING] == plain[TRAINING] - 3 * 10 and faster[EMBEDDING] == plain[EMBEDDING]
    assert faster[DELIVERY] == plain[DELIVERY]
    faster = seconds(nodes=rates(tested_student=160.0, tested_teacher=80.0))
    assert faster == {**plain, DELIVERY: plain[DELIVERY] - 3 * 6.25 - 18.75}


def test_time_grows_with_budgets_and_shrinks_with_nodes() -> None:
    plain = seconds()
    twice = dataclasses.replace(STAGE, examples=500)
    longer = seconds(dataclasses.replace(WORK, trial=(twice,), baseline=(twice,)))
    assert longer[TRAINING] == plain[TRAINING] + 3 * 10
    more = estimated(WORK, [Nodes(3, HERE, RATES)], Need(gpus=0), "cpu")
    assert more.at_once == 4 and more.teachers == 6
    assert more.seconds[TRAINING] == 4 + 65, "all at once"
    assert more.seconds[EMBEDDING] == plain[EMBEDDING] - 10, "a shard each"
    assert seconds(limit=1)[TRAINING] == 4 + 4 * 65, "the baseline is done beside the trials"
    assert seconds(teachers=1)[EMBEDDING] == plain[EMBEDDING] + 20
    together = seconds(need=Need(2, gpus=0))
    assert together[TRAINING] == 4 + 6 * (2 + 20 + 3 + 10), "one run at a time, by two processes"
    stopped = seconds(dataclasses.replace(WORK, full=2, share=0.4))
    assert stopped[TRAINING] == 4 + 2 * 65 + 26
    shared = seconds(dataclasses.replace(WORK, shared=(STAGE,), tokenising_s=7.0))
    assert shared[TRAINING] == plain[TRAINING] + 65 + 7
    large = dataclasses.replace(WORK, large_tokenising_s=12.0)
    assert seconds(large)[TRAINING] == plain[TRAINING] + 12 / 2, "by both CPUs of the node"
    assert seconds(dataclasses.replace(large, ray=False))[TRAINING] == (
        seconds(dataclasses.replace(WORK, ray=False))[TRAINING] + 12
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="a trial must fit on a node"):
        seconds(need=Need(cpus=4, gpus=0))
    gpus = [Nodes(2, "big", dataclasses.replace(RATES, cpus=16, gpus=4))]
    found = estimated(WORK, gpus, Need().on("cuda"), "cuda")
    assert found.teachers == 8 and found.at_once == 4


def test_the_expected_share_of_a_trial_that_may_be_stopped() -> None:
    third = 1 / 3
    rungs = (0.25, 0.75)
    assert expected_share([0.5, 1.0], rungs, continue_p=third, last=0.9) == pytest.approx(0.5 + third * 0.5)
    found = expected_share([0.25, 0.5, 0.75, 1.0], rungs, continue_p=third, last=0.9)
    assert found == pytest.approx(0.25 + third * 0.5 + third**2 * 0.25)
    assert expected_share([1.0], rungs, continue_p=third, last=0.9) == 1
    assert expected_share([0.2, 1.0], (), continue_p=third, last=0.9) == 1


def test_nodes_are_numbers_and_kinds() -> None:
    assert parse_nodes(["8xg6.4xlarge", "1xhere"]) == [(8, "g6.4xlarge"), (1, "here")]
    for wrong in ("g6.4xlarge", "0xg6", "-1xg6", "8x", "8 g6", "xg6"):
        with pytest.raises(BadInput, match="numbers and kinds of nodes"):
            parse_nodes([wrong])
    with pytest.raises(BadInput, match="each kind once"):
        parse_nodes(["1xa", "2xa"])
    nodes = chosen_nodes([(8, "a"), (1, "b")], {"a": RATES, "b": RATES})
    assert price_of(nodes, {"a": 2.0, "b": 0.5, "c": 9.0}) == 16.5
    for price in (0, -1.0, "2", True, float("nan")):
        with pytest.raises(BadInput, match="must be a positive number"):
            checked_price(price)
    with pytest.raises(BadInput, match="name every kind"):
        price_of(nodes, {"a": 2.0})


def test_rates_that_were_written_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    file.write_text(json.dumps({"rates": {"g6": RATES.as_json()}, "seconds": {}}))
    assert read_rates(file) == {"g6": RATES}
    for change, message in (
        ({"source": " "}, "state their source"),
        ({"embedding": -1}, "embedding of g6 must be a positive number"),
        ({"process_mb": 0}, "process_mb of g6 must be a positive number"),
        ({"embedding": "fast"}, "positive number"),
        ({"training": {"distil": {"setup_s": 1}}}, "the stage distil of g6"),
        ({"speed": 3}, "the rates of g6 must be"),
    ):
        file.write_text(json.dumps({"g6": {**RATES.as_json(), **change}}))
        with pytest.raises(BadInput, match=message):
            read_rates(file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--nodes", "8xg6.4xlarge"],
            "rates of every kind of node must be known, but got unknown=['g6.4xlarge']",
        ),
        (["--nodes", "g6.4xlarge"], "such as 8xg6.4xlarge"),
        (["--price-per-hour", "0"], "must be a positive number"),
        (["--price-per-hour", "-2"], "must be a positive number"),
        (["--price-per-hour", "cheap"], "--price-per-hour must be a number"),
        (["--prices", "/nowhere.json"], "--prices must name a file"),
        (["--rates", "/nowhere.json"], "--rates must name a file"),
        (["--for", "mine"], "--for must be one of sweep, train, embed"),
        (["--local"], "--local must go with"),
        (["--corpus", "/nowhere.txt"], "does not exist"),
        (["--for", "train", "--local", "--nodes", "1xhere"], "--nodes must go with work on a cluster"),
    ],
)
def test_bad_input_is_one_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "mse", "--root", str(tmp_path / "runs"), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("stillhouse:") == 1
    assert not list(tmp_path.glob("runs/*/*/manifest.json"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Rates:
    """Rates that stand for those of this machine."""
    stages = {label: DISTIL for label in ("mse", "distil", "finetune")}
    found = dataclasses.replace(RATES, training=stages)
    monkeypatch.setattr(planning, "calibrated", lambda sample, **_: found)
    monkeypatch.setattr(planning, "cpus_here", lambda: 2.0)
    return found


def training(experiment: Experiment, **values: Any) -> Training:
    method = load_method("mse")
    chosen = with_defaults(method, experiment)
    hp = hyper_parameters(method, {"batch_size": 16, **values})
    return Training("", method, hp, chosen, chosen.teacher.resolve())


def test_counts_and_sizes_are_those_of_the_finished_artifacts(
    experiment: Experiment, workspace: Workspace, measured: Rates
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


def test_rates_of_an_embedding_do_not_plan_a_training(
    experiment: Experiment, workspace: Workspace, measured: Rates
) -> None:
    """They were refused by the embedding that they had been written by."""
    workspace.claim()
    rates = {"g6": dataclasses.replace(measured, encoding=0.0, tested_student=0.0, tested_teacher=0.0)}
    request = Request(nodes=((2, "g6"),), rates=rates)
    assert plan_embedding(experiment, workspace, request, refresh=False).estimate.seconds[EMBEDDING] > 0
    lacking = "the rates of g6 must be those of a plan like this one, but got lacking="
    with pytest.raises(BadInput, match=re.escape(f"{lacking}['encoding']")):
        plan_training(training(experiment), workspace, request, refresh=False)
    with pytest.raises(
        BadInput, match=re.escape(f"{lacking}['encoding', 'tested_student', 'tested_teacher']")
    ):
        plan_sweep(sweep_of(experiment, workspace.root), workspace, request)
    slow = {"g6": dataclasses.replace(measured, embedding=0.0)}
    with pytest.raises(BadInput, match=re.escape(f"{lacking}['embedding']")):
        plan_embedding(experiment, workspace, Request(nodes=((2, "g6"),), rates=slow), refresh=False)


def _known(prepared: Any, workspace: Workspace) -> counting.Counted:
    return counting.Counted(prepared, (), workspace, 1.0, 0.0)


def test_of_a_large_corpus_some_is_read_and_the_rest_estimated(
    experiment: Experiment,
    workspace: Workspace,
    measured: Rates,
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
    assert any("estimated from" in line for line in lines_of(plan))
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
    experiment: Experiment, workspace: Workspace, measured: Rates
) -> None:
    workspace.claim()
    options = sweep_of(experiment, workspace.root)
    plan = plan_sweep(options, workspace, Request(price=3.6))
    students = {each.name: each for each in plan.made if "students" in each.name}
    assert students["students of the stage mse"].count == 8 + 3
    assert students["students of the stage mse"].gigabytes == pytest.approx(11 * 0.04)
    assert plan.estimate.at_once == 2 and plan.estimate.cost == pytest.approx(plan.estimate.total / 1000)
    assert "asha" in plan.remarks[0] and "first 3" in plan.remarks[0]
    full = plan_sweep(dataclasses.replace(options, scheduler="none"), workspace, Request())
    assert full.estimate.total > plan.estimate.total and full.estimate.cost is None
    refits = changed(
        experiment, {"budget.refit.distil": 640, "budget.refit.top": 2, "budget.refit.evaluations": 2}
    )
    longer = plan_sweep(dataclasses.replace(options, experiment=refits), workspace, Request())
    assert longer.estimate.seconds[REFITS] > 60 and plan.estimate.seconds[REFITS] == 0
    described = Request(nodes=((4, "g6"),), rates={"g6": dataclasses.replace(measured, source="x")})
    more = plan_sweep(options, workspace, described)
    assert more.estimate.at_once == 8 and more.nodes == "4 x g6"
    other = Request(nodes=((4, "g6"),), rates={"g6": dataclasses.replace(measured, teacher="another")})
    with pytest.raises(BadInput, match="those of this teacher"):
        plan_sweep(options, workspace, other)


def test_processes_that_do_not_fit_into_memory_are_told(
    experiment: Experiment, workspace: Workspace, measured: Rates, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(planning, "cpus_here", lambda: 1.0)
    monkeypatch.setattr(bench, "SECONDS", 4.0)
    request = Request(local=True, logs=workspace.root / "logs")
    plan = plan_training(training(experiment), workspace, request, refresh=False)
    found = plan.rates[HERE]
    rate = found.training["mse"]
    assert found.embedding > 100 and rate.examples_per_second > 10 and found.encoding > 100
    assert found.start_s > 0.1 and found.load_s > 0 and found.process_mb > 100
    prepared = prepare(experiment, workspace, Embedding(local=True))
    folder = train(experiment, prepared, workspace)
    weights = sum((folder / f"{name}.safetensors").stat().st_size for name in ("student", "objective"))
    assert rate.megabytes * 1e6 == pytest.approx(weights, rel=0.05)


def train(experiment: Experiment, prepared: Any, workspace: Workspace) -> Path:
    from stillhouse.training.walk import run
    from stillhouse.training.where import Where

    chosen = training(experiment)
    return run(chosen.method.plan(chosen.hp, prepared.setting), workspace, where=Where(device="cpu"))


def test_a_sweep_compares_its_plan_with_its_outcome_once(tmp_path: Path, experiment: Experiment) -> None:
    options = sweep_of(experiment, tmp_path)
    identity = plan_identity(options)
    assert identity != plan_identity(dataclasses.replace(options, trials=9))
    took = {EMBEDDING: 30.0, TRAINING: 90.0, READING: 0.2}
    assert note.outcome_lines(tmp_path, identity, took) == [], "nothing was planned"
    content = {"seconds": {EMBEDDING: 20.0, TRAINING: 100.0, READING: 0.0}}
    note.keep_plan(tmp_path, identity, content)
    assert note.outcome_lines(tmp_path, "another", took) == []
    lines = note.outcome_lines(tmp_path, identity, took)
    assert lines[-1].startswith("  load of this machine: ")
    assert lines[:-1] == [
        "plan and outcome:",
        "  embedding: planned 20 s, took 30 s (1.50 times)",
        "  training: planned 100 s, took 90 s (0.90 times)",
        "  in all: planned 120 s, took 120 s (1.00 times)",
    ]
    assert note.outcome_lines(tmp_path, identity, took) == [], "once"
    note.keep_plan(tmp_path, identity, content)
    assert note.outcome_lines(tmp_path, identity, took), "a new plan has a new outcome"


def test_a_clock_counts_a_part_within_another_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 4.0, 4.0, 10.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    clock = note.Clock()
    with clock.part(DELIVERY), clock.part(REFITS, within=DELIVERY):
        pass
    assert clock.seconds == {REFITS: 3.0, DELIVERY: 7.0}
