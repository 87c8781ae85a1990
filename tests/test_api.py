"""The Python interface: public names, lazy imports, and the way from an experiment to an exported student."""

import inspect
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row
from small_experiment import quick_experiment, sentences

import stillhouse
from stillhouse import (
    BadInput,
    Budget,
    Experiment,
    Mining,
    Pairs,
    Sentences,
    TeacherChoice,
    TransformerChoice,
)
from stillhouse.cli.arguments import FLAGS
from stillhouse.cli.main import main, parser
from stillhouse.core.artifacts import Workspace, write_manifest
from stillhouse.core.cache import LIMIT
from stillhouse.core.identity import fingerprint
from stillhouse.core.notes import EXPORT_NOTE, SWEEP_NOTE, write_note
from stillhouse.methods import load_method, with_defaults
from stillhouse.search.options import SweepOptions
from stillhouse.sweeps import sweep as sweep_module
from stillhouse.sweeps.begun import search_of, write_experiment
from stillhouse.sweeps.planning import command_plan as plan_module
from stillhouse.sweeps.planning.command_plan import Request
from stillhouse.training.metrics_log import MetricsLog

ROOT = Path(__file__).resolve().parents[1]


def test_every_public_name_exists_and_is_documented() -> None:
    for name in stillhouse.__all__:
        assert getattr(stillhouse, name).__doc__, name
    assert set(stillhouse.__all__) <= set(dir(stillhouse))
    with pytest.raises(AttributeError, match="no attribute 'Sentence'"):
        stillhouse.Sentence  # noqa: B018


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        ("Experiment, Sentences, Pairs, Budget", "torch ray mlflow transformers numpy optuna sklearn"),
        ("embed, train, sweep, load", "ray mlflow transformers optuna sklearn"),
    ],
)
def test_importing_its_names_imports_little(names: str, heavy: str) -> None:
    program = (
        "import sys; from stillhouse import Experiment, Sentences, Pairs\n"
        "Experiment(data=(Sentences('a.txt'), Pairs('b.jsonl')))\n"
        f"from stillhouse import {names}\n"
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the addresses of a sweep's pages, for which a database is opened."""
    monkeypatch.setattr("stillhouse.tracking.reading.where_to_look", lambda *_: "nowhere")


@pytest.fixture
def experiment(tmp_path: Path, tiny_model: Path) -> Experiment:
    made: Experiment = quick_experiment(tmp_path, tiny_model)
    return made


def test_from_an_experiment_to_an_exported_student(experiment: Experiment, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    prepared = stillhouse.embed(experiment, root=root)
    assert prepared.setting[Sentences].rows == prepared.facts["sentences"] > 60
    values = {"batch_size": 16, "learning_rate": 1e-3}
    trained = stillhouse.train("mse", experiment, values=values, root=root)
    assert stillhouse.train("mse", experiment, values=values, root=root) == trained
    figures = stillhouse.evaluate(trained.folder, experiment, root=root)
    assert figures["agreement_spearman_cosine"] == pytest.approx(trained.metrics["agreement_spearman_cosine"])
    assert not (root / "openings.jsonl").exists()
    final = stillhouse.evaluate(trained.folder, experiment, final=True, root=root)
    assert final != figures and (root / "openings.jsonl").exists()
    elsewhere = tmp_path / "elsewhere"
    assert stillhouse.evaluate(trained.folder, experiment, root=elsewhere) == pytest.approx(figures)
    assert len(list((elsewhere / "stores").glob("*/manifest.json"))) == 1, "of dev alone"
    made = stillhouse.export(trained.folder, tmp_path / "student")
    assert made.folder == tmp_path / "student" and made.cosine > 0.9999 and 0 < made.megabytes < 10
    texts = ["the cat sat", "a red house"]
    trained_NE, exported_NE = (
        stillhouse.load(path, root=root, device="cpu").encode(texts)
        for path in (trained.folder, tmp_path / "student")
    )
    assert trained_NE.shape == (2, 32)
    np.testing.assert_allclose(trained_NE, exported_NE, atol=1e-5)


def test_a_list_of_texts_becomes_a_student(tmp_path: Path, tiny_model: Path) -> None:
    texts = sentences(120)
    values = {"batch_size": 16, "learning_rate": 1e-3}
    root = tmp_path / "runs"
    student = stillhouse.distil(
        str(tiny_model), texts, layers=(0, 1), examples=64, values=values, max_length=16, root=root
    )
    assert student.encode(["a red house", "the cat"]).shape == (2, 32)
    (row,) = student.figures
    assert row["after"] == student.metrics["agreement_spearman_cosine"] and -1 < row["before"] < 1
    drawn: Any = student.curve()
    dev, loss = drawn.axes
    assert dev.lines[0].get_xdata().tolist() == [16, 32, 48, 64] and len(loss.lines[0].get_xdata()) == 4
    assert drawn._repr_png_().startswith(b"\x89PNG")
    page = student._repr_html_()
    assert "agreement_spearman_cosine" in page and "data:image/png" in page and page.count("<tr>") == 2
    saved = student.save(tmp_path / "student")
    assert saved.cosine > 0.9999 and "MB, lowest cosine" in str(saved)
    experiment = Experiment(
        TeacherChoice(str(tiny_model)),
        TransformerChoice(layers=(0, 1)),
        (Sentences(texts=texts, held_out=20),),
        budget=Budget(distil=64, evaluations=5),
        max_length=16,
    )
    assert stillhouse.train("leaf", experiment, values=values, root=root) == student


def test_a_curve_runs_through_all_stages(workspace: Workspace) -> None:
    """Examples go on counting from one stage to the next."""
    before = {"agreement": 0.1}
    notes = {"label": "mse", "examples": 64, "start": before, "plan": _plan("mse")}
    first = fingerprint(notes["plan"])
    for folder, manifest in (
        (f"mse-{first}", notes),
        ("finetune-0", {"label": "finetune", "examples": 32, "plan": _plan("finetune", notes["plan"])}),
    ):
        path = workspace.root / "stages" / folder
        log = MetricsLog(path / "metrics.jsonl")
        log.append(1, 16, {"loss": 2.0})
        log.append(2, 32, {"agreement": 0.5})
        log.close()
        curve = [{"step": 2, "examples": 32, "metrics": {"agreement": 0.5}}]
        write_manifest(path, {**manifest, "evaluations": curve})
    student = stillhouse.Trained(path, {"agreement": 0.5}, 1.0)
    assert student.start == before and student.figures == [
        {"dev figure": "agreement", "before": 0.1, "after": 0.5}
    ]
    drawn: Any = student.curve()
    dev, loss = drawn.axes
    assert [line.get_xdata().tolist() for line in loss.lines] == [[16], [80]]
    assert [line.get_xdata()[0] for line in dev.lines] == [32, 96, 0], "the last is the line before training"


def _plan(label: str, before: Any = None) -> dict[str, Any]:
    dev = {"value": "DevSuite", "with": {"select": "agreement"}}
    return {"value": "Stage", "with": {"label": label, "start_from": before, "dev": dev}}


def test_tables_are_lists_of_rows() -> None:
    rows = stillhouse.Rows([{"part": "a <b>", "seconds": 12345.6}, {"part": "in all", "trials": 8}])
    assert rows[1] == {"part": "in all", "trials": 8}
    assert "<td>a &lt;b&gt;</td><td>12,346</td><td></td>" in rows._repr_html_()
    assert str(rows).splitlines()[0].split() == ["part", "seconds", "trials"]
    assert str(stillhouse.Rows()) == "no rows"


def test_a_training_and_a_sweep_are_planned(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are planned as the command does, of which tests/sweeps/test_planning.py says more."""
    asked: list[Any] = []

    def noted(work: Any, workspace: Workspace, request: Request, **_: Any) -> Any:
        asked.append((work, workspace.root, request))
        raise BadInput("planned")

    for name in ("plan_training", "plan_sweep"):
        monkeypatch.setattr(plan_module, name, noted)
    shared: dict[str, Any] = {"values": {"batch_size": 16}, "workers": 2, "root": tmp_path, "device": "cpu"}
    for trials in (0, 4):
        with pytest.raises(BadInput, match="planned"):
            stillhouse.plan("mse", experiment, trials=trials, **shared)
    (training, *_), (options, root, request) = asked
    assert training.hp.batch_size == options.space.fixed["batch_size"] == 16 and options.trials == 4
    assert root == tmp_path and request.need.workers == 2 and request.device == "cpu"


def test_invalid_values_are_refused_before_any_work(experiment: Experiment, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with pytest.raises(BadInput, match="Did you mean mse"):
        stillhouse.train("mes", experiment, root=root)
    with pytest.raises(BadInput, match="simcse must be given labelled text"):
        stillhouse.train("simcse", experiment, root=root)
    few = Experiment(data=(Sentences(), Pairs(mining=Mining(range_max=4))))
    for command in (stillhouse.train, stillhouse.sweep):
        with pytest.raises(BadInput, match="negatives=8"):
            command("ibkd", few, root=root)
    with pytest.raises(BadInput, match="number of trials; this one has"):
        stillhouse.sweep("mse", replace(experiment, budget=Budget()), sampler="grid", root=root)
    with pytest.raises(BadInput, match=r"format in \('sentence-transformers'"):
        stillhouse.export("no such stage", tmp_path / "gguf", form="gguf", root=root)
    with pytest.raises(TypeError, match="rot"):
        stillhouse.train("mse", experiment, values={"batch_size": 16}, rot=root)  # type: ignore[call-arg]
    with pytest.raises(BadInput, match="must be given texts"):
        stillhouse.distil("all-MiniLM-L6-v2", None, root=root)
    with pytest.raises(BadInput, match="either runs or --experiment"):
        stillhouse.compare(root=root)
    with pytest.raises(BadInput, match="Did you mean batch_size"):
        stillhouse.train("mse", experiment, values={"batchsize": 8}, root=root)
    with pytest.raises(BadInput, match="Did you mean asha"):
        stillhouse.sweep("mse", experiment, scheduler="ahsa", root=root)
    assert not (root / "stores").exists()


@pytest.mark.usefixtures("no_pages")
def test_a_sweep_is_the_same_by_the_interface_and_by_the_command(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both put the same options together, also where none is given."""
    asked: list[SweepOptions] = []

    def noted(options: SweepOptions) -> dict[str, Any]:
        asked.append(options)
        return {"student": None}

    monkeypatch.setattr(sweep_module, "sweep", noted)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("STILLHOUSE_DATA", raising=False)
    corpus = tmp_path / "words.txt"
    corpus.write_text("\n".join(sentences(20)))
    experiment = Experiment(TeacherChoice(str(tiny_model)), data=(Sentences(str(corpus)),), seed=3)
    stillhouse.sweep(
        "mse",
        experiment,
        values={"batch_size": 16},
        preset="repo",
        trials=5,
        sampler="random",
        scheduler="none",
        name="mine",
        root=tmp_path,
        workers=2,
        cpus_per_worker=3,
        actors=2,
        full=1,
        concurrency=2,
        register="ours",
        wait_for_nodes=60,
        device="cpu",
    )
    flags = {
        "teacher": tiny_model,
        "corpus": corpus,
        "seed": 3,
        "set": "batch_size=16",
        "preset": "repo",
        "trials": 5,
        "sampler": "random",
        "scheduler": "none",
        "name": "mine",
        "root": tmp_path,
        "workers": 2,
        "cpus-per-worker": 3,
        "actors": 2,
        "full": 1,
        "concurrency": 2,
        "register": "ours",
        "wait-for-nodes": 60,
        "device": "cpu",
    }
    given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    assert main(["sweep", "mse", *given]) == 1
    assert asked[0] == asked[1] and asked[0].space.fixed["batch_size"] == 16
    few = ["--teacher", str(tiny_model), "--corpus", str(corpus), "--root", str(tmp_path)]
    assert main(["sweep", "mse", *few]) == 1
    stillhouse.sweep("mse", replace(experiment, seed=0), root=tmp_path)
    assert asked[2] == asked[3] != asked[0]
    assert main(["sweep", "mse", *few, "--sampler", "grid"]) == 2 and len(asked) == 4
    folder = tmp_path / "sweeps" / "mine"
    folder.mkdir(parents=True)
    write_experiment(asked[0], folder)
    write_note(folder / SWEEP_NOTE, {"identity": {}, "method": "mse/repo", "search": search_of(asked[0])})
    write_note(folder / EXPORT_NOTE, {})
    monkeypatch.delenv(LIMIT, raising=False)
    for like in (["--like", "mine"], ["ckd", "--like", "mine"]):
        assert main(["sweep", *like, "--name", "again", "--root", str(tmp_path), "--cache-gb", "7"]) == 1
        assert os.environ.pop(LIMIT) == "7.0"
        method = "ckd" if like[0] == "ckd" else ""
        stillhouse.sweep(method, like="mine", name="again", root=tmp_path, cache_gb=7)
        assert float(os.environ.pop(LIMIT)) == 7 and asked[-2] == asked[-1], method
        assert asked[-1].sampler == "random" and asked[-1].experiment == asked[0].experiment


def test_the_interface_has_every_option_of_the_command() -> None:
    commands: Any = parser()._commands()  # type: ignore[attr-defined]
    own = {"file", "variant", "fractions", "local", "set", "json", "verify", "help"}
    for name, declared in (("sweep", stillhouse.Search), ("train", stillhouse.FromFile)):
        flags = {action.dest for action in commands[name]._actions} - own - set(FLAGS)
        flags -= {"like"} if name == "train" else set()
        keywords = {*inspect.signature(getattr(stillhouse, name)).parameters, *declared.__annotations__}
        assert flags <= keywords, flags - keywords


FILE = """
method: mse
preset: paper_52m
values: {batch_size: 32, learning_rate: 1e-3}
teacher: {name: TEACHER}
student: {layers: [0, 1]}
sentences: {corpus: $STILLHOUSE_DATA/words.txt, count: 0, held_out: 20}
budget: {distil: 4096, evaluations: 1}
max_length: 16
compute: float32
variants:
  two: {}
  one: {student: {layers: [1]}, preset: paper_110m}
  cosine: {method: ckd, preset: paper, values: {bank_size: 0, learning_rate: 1e-4}}
scale:
  small:
    values: {batch_size: 16}
    budget: {distil: 512}
search:
  space: {learning_rate: [1e-4, 1e-3]}
"""


@each_row(
    ("variant", "scale", "named"),
    [
        *product(["two", "one", "cosine"], ["", "small"], [{}]),
        ("one", "", {"preset": "paper"}),
        ("two", "small", {"method": "hpd"}),
    ],
)
def test_a_file_is_trained_as_by_the_command(
    variant: str,
    scale: str,
    named: dict[str, str],
    tmp_path: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both roads plan the same: method, preset, values, scale, variant and the folder of the data."""
    (tmp_path / "words.txt").write_text("\n".join(sentences(120)))
    (tmp_path / "file.yaml").write_text(FILE.replace("TEACHER", str(tiny_model)))
    planned: list[tuple[Any, ...]] = []

    def record(shares: Any, method: Any, hp: Any, experiment: Experiment, *_: Any, **__: Any) -> None:
        planned.append((shares, method.__name__, hp, experiment))
        raise BadInput("planned")

    monkeypatch.setattr("stillhouse.sweeps.curve.train_at", record)
    monkeypatch.setenv("STILLHOUSE_ROOT", str(tmp_path / "runs"))
    flags = ["--file", str(tmp_path / "file.yaml"), "--variant", variant, "--scale", scale, "--local"]
    flags += ["--data-root", str(tmp_path), "--set", "optimizer=adam"]
    flags += ["--preset", named["preset"]] if "preset" in named else []
    assert main(["train", *filter(None, [named.get("method")]), *flags]) == 2
    with pytest.raises(BadInput, match="planned"):
        stillhouse.train(
            file=tmp_path / "file.yaml",
            variant=variant,
            scale=scale,
            data_root=tmp_path,
            values={"optimizer": "adam"},
            **named,  # type: ignore[arg-type]
        )
    command, function = planned
    assert command == function
    preset = {"two": 1e-5, "one": 5e-5, "cosine": 5e-5}
    given = command[2]
    if not named:
        assert given.finetune_learning_rate == preset[variant]
        assert given.batch_size == (16 if scale else 32)
        assert given.learning_rate == (1e-4 if variant == "cosine" else 1e-3)
    assert command[3].budget.distil == (512 if scale else 4096)
    read = stillhouse.read_experiment(
        tmp_path / "file.yaml", variant=variant, scale=scale, data_root=tmp_path
    )
    assert command[3] == with_defaults(load_method(command[1].rpartition(".")[2]), read)


def test_a_call_is_for_one_variant(tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "file.yaml").write_text(FILE.replace("TEACHER", str(tiny_model)))
    with pytest.raises(BadInput, match=r"variants two, one, cosine\. Name one"):
        stillhouse.train(file=tmp_path / "file.yaml", data_root=tmp_path)
    with pytest.raises(BadInput, match="unknown variant 'ones'"):
        stillhouse.train(file=tmp_path / "file.yaml", variant="ones", data_root=tmp_path)
    with pytest.raises(BadInput, match="a method must be named"):
        stillhouse.train()
    with pytest.raises(BadInput, match="--scale must go with an experiment file"):
        stillhouse.train("mse", scale="small")


@pytest.mark.usefixtures("no_pages")
def test_a_sweep_of_a_file_takes_its_method_preset_and_scale(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.txt").write_text("\n".join(sentences(120)))
    (tmp_path / "file.yaml").write_text(FILE.replace("TEACHER", str(tiny_model)))
    seen: list[SweepOptions] = []

    def record(options: SweepOptions) -> dict[str, Any]:
        seen.append(options)
        return {"student": None}

    monkeypatch.setattr(sweep_module, "sweep", record)
    where = {"space": tmp_path / "file.yaml", "scale": "small", "data_root": tmp_path, "trials": 2}
    stillhouse.sweep(**where, root=tmp_path / "runs", scheduler="none")  # type: ignore[arg-type]
    flags = ["--space", str(tmp_path / "file.yaml"), "--scale", "small", "--data-root", str(tmp_path)]
    main(["sweep", *flags, "--trials", "2", "--scheduler", "none", "--root", str(tmp_path / "runs")])
    function, command = seen
    assert (function.method, function.preset, function.experiment) == ("mse", "paper_52m", command.experiment)
    assert (command.method, command.preset, command.space) == ("mse", "paper_52m", function.space)
    assert function.experiment.budget.distil == 512
