"""Everything that a pre-flight check must find is found, and an experiment in order gives notes alone."""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from rows import each_row
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from small_experiment import sentences

import stillhouse
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, read_json, sha256_of, write_json
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.tables import ROWS_PER_SHARD, sample_of
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_mapping, changed, experiment_of, merged
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.source import Source
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import hyper_parameters, known_methods, load_method, with_defaults
from stillhouse.preflight import contrast, disk_and_memory, examination
from stillhouse.preflight.contrast import Softmax, judge, labelled_saturation
from stillhouse.preflight.finding import Finding, from_the_worst, print_concerns
from stillhouse.preflight.planned import SAMPLE, Planned, read, sketched
from stillhouse.preflight.trained_weights import checkpoints_of, student_weights, teacher_weights
from stillhouse.search.trial import Context
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.store import StoreReader
from stillhouse.values.data import Ensemble, Mined, Model
from stillhouse.values.stage import Stage

Examine = Callable[..., list[Finding]]


@pytest.fixture(scope="module")
def stored(healthy: Experiment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Prepared]:
    """A workspace in which the teacher has embedded everything."""
    root = tmp_path_factory.mktemp("stored") / "runs"
    return root, prepare(healthy, Workspace(root), Embedding(local=True))


@pytest.fixture
def examine(workspace: Workspace) -> Examine:
    """Examine a method on an experiment in the test's workspace."""

    def run(experiment: Experiment, method: str = "ckd", **values: Any) -> list[Finding]:
        module = load_method(method)
        point = hyper_parameters(module, {"batch_size": 16, "bank_size": 0, **values})
        return examination.examine(module, point, experiment, workspace)

    return run


@pytest.fixture
def glance(workspace: Workspace) -> Examine:
    """Run the checks that stand at the start of every run, which read no text."""

    def run(experiment: Experiment) -> list[Finding]:
        module, teacher = load_method("mse"), experiment.teacher.finder.resolve()
        point = hyper_parameters(module, {"batch_size": 16})
        return from_the_worst(examination.at_start(module, point, experiment, workspace, teacher))

    return run


@pytest.fixture
def teacher_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what runs the teacher, which takes most of an examination, as where it does not fit."""
    monkeypatch.setattr(examination, "available_memory", lambda: 0)


def concerns(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.check, finding.level) for finding in findings if finding.level != "note"]


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


@pytest.mark.parametrize(
    ("method", "values"),
    [("ckd", {"bank_size": 0}), ("mse", {}), pytest.param("ibkd", {}, marks=pytest.mark.long)],
)
def test_an_experiment_in_order_gives_notes_alone_within_a_minute(
    method: str,
    values: dict[str, Any],
    healthy: Experiment,
    stored: tuple[Path, Prepared],
    workspace: Workspace,
) -> None:
    shutil.copytree(stored[0], workspace.root)
    module = load_method(method)
    start = time.monotonic()
    point = hyper_parameters(module, values)
    findings = examination.examine(module, point, healthy, workspace)
    assert time.monotonic() - start < 60
    assert not concerns(findings), findings
    checks = {finding.check for finding in findings}
    assert {"device", "disk", "memory", "lengths", "vectors", "cosines"} <= checks
    assert ("temperature" in checks) is (method in ("ckd", "ibkd"))
    (vectors,) = of(findings, "vectors")
    assert "words-train (64), words-dev (13), computed" in vectors.found
    assert "lowest cosine 1.0000" in vectors.found


def test_without_a_store_yet_nothing_is_wrong(healthy: Experiment, examine: Examine) -> None:
    findings = examine(healthy)
    assert not concerns(findings)
    assert "no vectors of this teacher are stored yet" in of(findings, "vectors")[0].found


def test_a_random_teacher_is_an_error(experiment: Experiment, glance: Examine) -> None:
    findings = glance(experiment)
    assert findings[0].level == "error" and findings[0].check == "weights"
    assert "the teacher" in findings[0].found and len(of(findings, "weights")) == 1


def test_a_random_student_is_an_error(healthy: Experiment, tiny_model: Path, glance: Examine) -> None:
    findings = glance(changed(healthy, {"student.checkpoint": str(tiny_model)}))
    assert concerns(findings) == [("weights", "error")]
    assert "the checkpoint of the student" in findings[0].found and "trained checkpoint" in findings[0].remedy


def test_a_student_that_keeps_trained_layers_of_a_partly_random_checkpoint_is_in_order(
    healthy: Experiment, trained_model: Path, tmp_path: Path, glance: Examine
) -> None:
    folder = tmp_path / "partly"
    shutil.copytree(trained_model, folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    for name, tensor in weights.items():
        if "layer.3." in name:
            fresh = 0.02 * torch.randn(tensor.shape) if tensor.ndim == 2 else torch.zeros_like(tensor)
            weights[name] = torch.ones_like(tensor) if name.endswith("LayerNorm.weight") else fresh
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    partly = changed(healthy, {"student.checkpoint": str(folder), "student.layers": [0, 2]})
    assert not of(glance(partly), "weights"), "it keeps layers 0 and 2"
    findings = glance(changed(partly, {"student.layers": [0, 3]}))
    assert concerns(findings) == [("weights", "warning")] and "layer.3" in findings[0].found


def test_parts_that_are_random_by_design_are_a_note(healthy: Experiment, examine: Examine) -> None:
    module = load_method("ibkd")
    spec = healthy.student.of(healthy.teacher.finder.resolve()).spec(0).replace(projection=8)
    assert module is not None
    from stillhouse.preflight.trained_weights import _by_design

    (finding,) = _by_design(spec)
    assert finding.level == "note" and "projection to 8 dimensions" in finding.found
    assert not _by_design(spec.replace(projection=None)) and not _by_design(spec, fitted=True)
    (whole,) = _by_design(spec.replace(projection=None, pretrained=False))
    assert "pretrained=False" in whole.found


def shuffle(folder: Path, moved: list[int]) -> None:
    """Give some rows of a store's first shard each other's vectors, and make its checksums agree."""
    manifest = read_json(folder / "manifest.json")
    shard = manifest["shards"][0]
    path = folder / shard["name"]
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        rows = list(range(batch.num_rows))
        for row, other in zip(moved, moved[1:] + moved[:1], strict=True):
            rows[row] = other
        embedding = batch["embedding"].take(pa.array(rows))
        mixed = pa.record_batch([batch["row"], embedding], schema=batch.schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, mixed.schema) as writer:
        writer.write_batch(mixed)
    shard |= {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    manifest["files"][shard["name"]] = shard["sha256"]
    write_json(folder / "manifest.json", manifest)


@pytest.mark.parametrize("moved", [pytest.param(slice(None), marks=pytest.mark.long), slice(0, 20)])
def test_shuffled_vectors_are_an_error(
    moved: slice,
    healthy: Experiment,
    stored: tuple[Path, Prepared],
    workspace: Workspace,
    examine: Examine,
) -> None:
    shutil.copytree(stored[0], workspace.root)
    folder = workspace.path(stored[1].setting[Sentences].only_store)
    shuffle(folder, list(range(len(StoreReader(folder))))[moved])
    findings = examine(healthy)
    assert concerns(findings) == [("vectors", "error")]
    assert folder.name in findings[0].found and "embed again" in findings[0].remedy


def test_a_check_that_cannot_be_made_is_an_error_and_the_others_go_on(
    healthy: Experiment, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> list[Finding]:
        raise BadInput("the store must be readable, but is not.")

    monkeypatch.setattr(examination, "stored_vectors", refuse)
    findings = examine(healthy)
    assert concerns(findings) == [("vectors", "error")] and of(findings, "temperature")


@pytest.fixture
def e5(trained_model: Path, tmp_path: Path) -> Path:
    """The trained model with a card that asks for prompts, which its folder does not name."""
    folder = tmp_path / "multilingual"
    shutil.copytree(trained_model, folder)
    card = 'Each input text should start with "query: " or "passage: ".\n'
    (folder / "README.md").write_text(card)
    return folder


def with_prompts(folder: Path, prompts: dict[str, str], default: str | None = None) -> str:
    file = folder / "config_sentence_transformers.json"
    settings = {**read_json(file), "prompts": prompts, "default_prompt_name": default}
    write_json(file, settings)
    return str(folder)


def test_a_prompt_that_the_card_wants_is_missed(healthy: Experiment, e5: Path, glance: Examine) -> None:
    findings = glance(changed(healthy, {"teacher.name": str(e5)}))
    assert concerns(findings) == [("prompts", "warning")]
    assert "by its card" in findings[0].found and 'teacher.prompts.plain="query: "' in findings[0].remedy
    for given in ("query: ", ""):
        chosen = changed(healthy, {"teacher.name": str(e5), "teacher.prompts.plain": given})
        assert not concerns(glance(chosen)), "the user has decided"


@pytest.mark.parametrize(
    ("prompts", "default", "missed"),
    [
        ({"s2p": "find: "}, None, "names prompts, 's2p', and none as its default"),
        ({"s2p": "find: "}, "s2p", ""),
        ({"query": "q: ", "document": "d: "}, None, "a prompt for queries and one for documents"),
        ({"query": "q: ", "document": ""}, None, ""),
        ({"query": "", "document": ""}, None, ""),
    ],
)
def test_prompts_of_the_folder_that_no_text_gets_are_missed(
    prompts: dict[str, str],
    default: str | None,
    missed: str,
    healthy: Experiment,
    trained_model: Path,
    tmp_path: Path,
    glance: Examine,
) -> None:
    shutil.copytree(trained_model, tmp_path / "model")
    name = with_prompts(tmp_path / "model", prompts, default)
    findings = glance(changed(healthy, {"teacher.name": name}))
    assert concerns(findings) == ([("prompts", "warning")] if missed else [])
    assert missed in findings[0].found
    role = changed(healthy, {"teacher.name": name, "sentences.role": "document"})
    assert ("default" in missed and "queries" not in missed) or not concerns(glance(role))


@pytest.mark.parametrize(
    ("temperature", "level"),
    [(0.05, "note"), (0.005, "warning"), (0.0005, "error"), (5, "note")],
)
def test_a_temperature_that_saturates_is_found(
    temperature: float, level: str, healthy: Experiment, examine: Examine
) -> None:
    findings = examine(healthy, temperature=temperature)
    (finding,) = of(findings, "temperature")
    assert finding.level == level, finding
    assert f"τ={temperature:g}" in finding.found
    assert ("saturated" in finding.found) is (level != "note")
    assert ("nearly the same" in finding.found) is (temperature == 5)
    assert concerns(findings) == ([] if level == "note" else [("temperature", level)])


PAIRED = [(f"{text} {number}", f"the {text}") for number, text in enumerate(sentences(24, 5))]


@pytest.mark.parametrize(
    ("temperature", "level"),
    [
        (0.02, "warning"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((0.05, "note"), (1e-5, "error"))),
    ],
)
def test_a_temperature_of_labelled_pairs_that_saturates_is_found(
    temperature: float, level: str, healthy: Experiment, tmp_path: Path, workspace: Workspace
) -> None:
    """The new student's own vectors of queries and passages, compared by stock sentence-transformers."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"query": q, "passage": p}) + "\n" for q, p in PAIRED))
    given = {"pairs.path": str(pairs), "pairs.count": 0, "pairs.negatives": 0, "student.layers": [0, 1, 2, 3]}
    method = load_method("simcse")
    point = hyper_parameters(method, {"batch_size": 16, "temperature": temperature})
    findings = examination.examine(method, point, changed(healthy, given), workspace)
    (finding,) = of(findings, "temperature")
    assert finding.level == level and f"τ={temperature:g}" in finding.found
    assert "over 16 candidates" in finding.found
    stock: Any = SentenceTransformer(healthy.teacher.name, device="cpu")
    stock.max_seq_length = 16
    queries, passages = (
        torch.nn.functional.normalize(torch.from_numpy(stock.encode([pair[side] for pair in PAIRED[:16]])))
        for side in (0, 1)
    )
    expected = Softmax.of(queries.double() @ passages.double().T / temperature)
    shown = float(finding.found.partition("leaves ")[2].split()[0])
    assert shown == pytest.approx(expected.outside, rel=0.2)


def test_scores_of_a_reranker_that_saturate_are_found(
    healthy: Experiment, tmp_path: Path, workspace: Workspace
) -> None:
    """Their span against the temperature of the KL divergence, beside the student's own contrast."""
    file = tmp_path / "scores.jsonl"
    rows = [
        {"query": q, "positive": p, "negative": f"{PAIRED[at - 1][1]} {at}", "scores": [30.0, 0.0]}
        for at, (q, p) in enumerate(PAIRED)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    method = load_method("rerank_kd")
    given = with_defaults(method, changed(healthy, {"scores.path": str(file)}))

    def examined(**values: Any) -> list[Finding]:
        point = hyper_parameters(method, {"batch_size": 16, **values}, "contrastive_kl")
        planned = read(method, point, given, workspace, given.teacher.finder.resolve(), "cpu")
        return from_the_worst(labelled_saturation(planned))

    saturated, own = examined(temperature=1.0)
    assert saturated.level == "warning" and "9.4e-14 of a query's softmax over 2" in saturated.found
    assert "T=6 " in saturated.remedy
    assert own.level == "note" and "over 32 candidates" in own.found, "the negatives of all, shared"
    _, softened = examined(temperature=6.0)
    assert softened.level == "note" and "0.0067 of a query's softmax" in softened.found
    (alone,) = examined(loss="kl", temperature=6.0)
    assert "the reranker's scores" in alone.found
    (contrast_alone,) = examined(weight=0.0, contrast_temperature=1e-7)
    assert contrast_alone.level == "error", contrast_alone


def test_the_contrast_between_languages_is_judged_by_the_teachers_cosines(
    healthy: Experiment, tmp_path: Path, workspace: Workspace
) -> None:
    file = tmp_path / "xx.tsv"
    file.write_text("".join(f"{first}\t{second}\n" for first, second in PAIRED * 3))
    lines = {f"{q} {row}": p for row, (q, p) in enumerate(PAIRED * 3)}
    file.write_text("".join(f"{first}\t{second} {first}\n" for first, second in lines.items()))
    parallel = {"parallel.corpora": f"xx={file}", "parallel.held_out": 5, "sentences": None}
    given = experiment_of(
        {**merged(as_mapping(healthy), parallel), "student": {"checkpoint": healthy.teacher.name}}
    )
    method = load_method("crosslingual")
    levels = []
    for temperature in (0.05, 1e-5):
        values = {"batch_size": 16, "unit": 2, "bottleneck": 0, "contrast": "ce", "temperature": temperature}
        findings = examination.examine(method, hyper_parameters(method, values), given, workspace)
        (finding,) = of(findings, "temperature")
        assert "at the first step of contrast" in finding.found
        levels.append(finding.level)
    assert levels == ["note", "error"]


def test_the_share_outside_the_largest_entry_is_exact_where_float32_has_lost_it() -> None:
    logits_BB = torch.tensor([[50.0, 0.0], [0.0, 50.0]])
    assert Softmax.of(logits_BB).outside == pytest.approx(1.9287e-22, rel=1e-3)
    uniform = Softmax.of(torch.zeros(8, 8))
    assert uniform.outside == pytest.approx(7 / 8) and uniform.effective == pytest.approx(8)
    assert uniform.loss == pytest.approx(2.0794, rel=1e-4)
    assert judge(uniform, "distil", 1.0).level == "note"
    assert judge(Softmax(contrast.SATURATED * 1.01, 2, 64, 0.1), "distil", 1.0).level == "note"
    assert judge(Softmax(contrast.SATURATED * 0.99, 2, 64, 0.1), "distil", 1.0).level == "warning"


@pytest.mark.usefixtures("teacher_at_rest")
def test_a_bank_that_holds_all_of_the_text_is_a_warning(healthy: Experiment, examine: Examine) -> None:
    findings = examine(healthy, bank_size=4096)
    assert concerns(findings) == [("bank", "warning")] and "bank_size=4,096" in findings[0].found
    assert not concerns(examine(healthy, bank_size=64))


@pytest.mark.usefixtures("teacher_at_rest")
def test_texts_that_are_cut_are_a_warning(healthy: Experiment, examine: Examine) -> None:
    findings = examine(changed(healthy, {"max_length": 5, "student.max_length": 16}))
    assert concerns(findings) == [("lengths", "warning")]
    assert "the teacher reads 5 tokens" in findings[0].found and "teacher.max_length" in findings[0].remedy


@pytest.mark.usefixtures("teacher_at_rest")
def test_a_disk_that_is_really_full_is_an_error(healthy: Experiment, small_disk: Path) -> None:
    """Nine times the student's weights, of 40 k parameters, are more than the disk holds."""
    module = load_method("mse")
    workspace = Workspace(small_disk / "runs")
    findings = examination.examine(module, module.PRESETS["paper"], healthy, workspace)
    assert ("disk", "error") in concerns(findings)


@pytest.mark.usefixtures("teacher_at_rest")
@pytest.mark.parametrize(("megabytes", "level"), [(0.01, "error"), (1000, "note")])
def test_the_disk_is_compared_with_the_need(
    megabytes: float,
    level: str,
    healthy: Experiment,
    examine: Examine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disk_and_memory, "free_bytes", lambda _: int(megabytes * 1e6))
    (finding,) = of(examine(healthy), "disk")
    assert finding.level == level


def test_the_memory_of_a_step_counts_the_texts_that_are_read(
    shared_context: Context, healthy: Experiment
) -> None:
    """Negatives of each pair, fewer of them, micro-batches, batches by tokens, the average, the padding."""
    context, method = shared_context, load_method("rerank_kd")
    workspace, pairs = Workspace(Path(context.root)), context.setting[Pairs]
    assert isinstance(pairs.examples.origin, Mined)
    origin = dataclasses.replace(pairs.examples.origin, negatives=7)
    mined = dataclasses.replace(pairs, examples=dataclasses.replace(pairs.examples, origin=origin))
    setting = context.setting.having(Pairs, mined)

    def states(stage: Stage) -> int:
        return disk_and_memory._kept_states(stage, 10)

    def planned(**values: Any) -> Stage:
        return method.plan(hyper_parameters(method, {"batch_size": 16, **values}), setting)

    whole = planned()
    assert states(planned(candidates=2)) * 9 == states(whole) * 3, "a query with 8 or 2 candidates"
    assert states(dataclasses.replace(whole, accumulate=4)) * 4 == states(whole)
    mse = load_method("mse")
    (plain, *_) = mse.plan(hyper_parameters(mse, {"batch_size": 16}), context.setting).chain()
    by_tokens = dataclasses.replace(plain, batch_tokens=1600)
    assert states(by_tokens) == 10 * states(plain), "1600 tokens, not 16 texts of 10"
    averaged = dataclasses.replace(plain, average=0.9)
    here = Planned(healthy, healthy.teacher.finder.resolve(), context.setting, plain, workspace)
    more = disk_and_memory.training_bytes(here, averaged) - disk_and_memory.training_bytes(here, plain)
    assert more == 4 * disk_and_memory._parameters(plain.student)
    texts = sample_of(workspace, plain.examples.columns["text"], SAMPLE)[1]
    lengths = FastTokenizer(Path(tokenizer_of(plain).path), plain.max_length).whole_lengths(texts)
    assert lengths.mean() < disk_and_memory._longest(here, plain) == min(plain.max_length, lengths.max())


def test_memory_that_does_not_suffice_is_an_error_and_the_teacher_is_not_run(
    healthy: Experiment, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_and_memory, "available_memory", lambda: 10_000)
    monkeypatch.setattr(examination, "available_memory", lambda: 10_000)
    monkeypatch.setattr(examination, "stored_vectors", lambda *_: pytest.fail("the teacher is run"))
    findings = examine(healthy)
    assert concerns(findings) == [("memory", "error")]
    assert "were not checked" in of(findings, "vectors")[0].found


def test_of_a_store_that_is_streamed_two_windows_of_shards_need_room(
    healthy: Experiment, workspace: Workspace
) -> None:
    assert disk_and_memory.held_rows(1_000_000, 0) == 1_000_000
    assert disk_and_memory.held_rows(1_000_000, 3) == 2 * 3 * ROWS_PER_SHARD
    assert disk_and_memory.held_rows(2_000_000, 1) == 2 * 2 * ROWS_PER_SHARD, "later shards are larger"
    assert disk_and_memory.held_rows(100, 3) == 100
    teacher, method = healthy.teacher.finder.resolve(), load_method("mse")
    whole = sketched(method, method.PRESETS["paper"], healthy, workspace, teacher, "cpu")
    many = changed(healthy, {"sentences.count": 30_000_000})
    whole = dataclasses.replace(whole, experiment=many, is_read=False)
    streamed = dataclasses.replace(whole, experiment=changed(many, {"budget.shard_window": 8}))
    vectors = [
        disk_and_memory.vector_bytes(rows, whole.setting.teacher_dim)
        for rows in (30_000_000, 256 * ROWS_PER_SHARD)
    ]
    assert (
        disk_and_memory._stored_bytes(whole) - disk_and_memory._stored_bytes(streamed)
        == vectors[0] - vectors[1]
    )


@pytest.mark.usefixtures("teacher_at_rest")
def test_a_gpu_that_is_not_used_is_a_warning(
    healthy: Experiment, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert concerns(examine(healthy)) == [("device", "warning")]


def test_at_the_start_of_a_run_only_concerns_are_printed_and_little_time_is_spent(
    healthy: Experiment,
    experiment: Experiment,
    workspace: Workspace,
    capfd: pytest.CaptureFixture[str],
) -> None:
    module = load_method("mse")
    for given, printed in ((healthy, ""), (experiment, "stillhouse: error (weights): the teacher")):
        teacher = given.teacher.finder.resolve()
        start = time.process_time()
        print_concerns(examination.at_start(module, module.PRESETS["paper"], given, workspace, teacher))
        assert time.process_time() - start < 2
        errors = capfd.readouterr().err
        assert errors.startswith(printed) and bool(errors) is bool(printed)


def test_a_folder_that_cannot_be_read_is_an_error_of_the_check_and_stops_no_run(
    healthy: Experiment, trained_model: Path, tmp_path: Path, workspace: Workspace
) -> None:
    """A run refuses it at its own time, with its own message."""
    shutil.copytree(trained_model, tmp_path / "model")
    broken = changed(healthy, {"teacher.name": str(tmp_path / "model")})
    teacher, module = broken.teacher.finder.resolve(), load_method("mse")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"no weights")
    planned = sketched(module, module.PRESETS["paper"], broken, workspace, teacher, "cpu")
    findings = examination.at_start(module, module.PRESETS["paper"], broken, workspace, teacher)
    assert not of(findings, "weights")
    (finding,) = examination.checked("weights", lambda: teacher_weights(planned))
    assert finding.level == "error" and "model.safetensors" in finding.found


def flags(experiment: Experiment, root: Path) -> list[str]:
    source: Any = experiment.source
    return [
        *("--root", str(root), "--teacher", experiment.teacher.name, "--corpus", source.corpus),
        *("--sentences", "0", "--set", "sentences.held_out=20", "--max-length", "16"),
        *("--compute", "float32", "--set", "batch_size=16"),
    ]


def test_the_command_prints_findings_writes_json_and_exits_with_1_if_there_is_an_error(
    healthy: Experiment, experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, root = tmp_path / "report.json", tmp_path / "runs"
    assert main(["doctor", "mse", "--local", "--json", str(report), *flags(healthy, root)]) == 0
    (data,) = (each for each in json.loads(report.read_text()) if each["check"] == "data")
    assert data["data"]["read"] == data["data"]["kept"] + data["data"]["duplicates"] > 0
    assert "text, one per line" in data["found"] and "text      <- line" in data["found"]
    assert "0 errors, 0 warnings" in capsys.readouterr().out
    assert {finding["level"] for finding in json.loads(report.read_text())} == {"note"}
    assert not (root / "stages").exists() and not (root / "stores").exists()
    assert main(["doctor", "mse", "--json", str(report), *flags(experiment, root)]) == 1
    assert "error (weights): the teacher" in capsys.readouterr().out
    first = json.loads(report.read_text())[0]
    assert first["level"] == "error" and set(first) == {"check", "level", "found", "remedy"}
    assert main(["doctor", "mse", *flags(healthy, root), "--set", "learning_rat=1"]) == 2


def test_a_training_run_says_at_its_start_what_is_wrong(
    experiment: Experiment, healthy: Experiment, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for given, found in ((experiment, True), (healthy, False)):
        command = ["train", "mse", "--local", "--distil-budget", "16", *flags(given, tmp_path / "runs")]
        assert main(command) == 0
        assert ("error (weights)" in capfd.readouterr().err) is found


def test_the_interface_returns_the_findings(healthy: Experiment, tmp_path: Path) -> None:
    findings = stillhouse.doctor("mse", healthy, values={"batch_size": 16}, root=tmp_path / "runs")
    assert findings and all(isinstance(finding, stillhouse.Finding) for finding in findings)
    assert not concerns(findings)


def test_a_large_corpus_that_was_not_read_yet_is_only_looked_at(
    healthy: Experiment, tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillhouse.corpora.reading.ingest.SMALL_BYTES", 10)
    corpus = tmp_path / "large.txt"
    corpus.write_text("\n".join(sentences(400, 4)))
    large = changed(healthy, {"sentences.corpus": str(corpus)})
    findings = examine(large)
    assert not concerns(findings) and "256 texts of" in of(findings, "lengths")[0].found
    few = changed(large, {"sentences.count": 100_000})
    assert concerns(examine(few, bank_size=100_000)) == [("bank", "warning")]


def test_every_source_of_sentences_is_looked_at(
    healthy: Experiment, e5: Path, tmp_path: Path, workspace: Workspace, examine: Examine
) -> None:
    sources = []
    for seed, role in ((1, "query"), (2, "document")):
        corpus = tmp_path / f"{role}.txt"
        corpus.write_text("\n".join(sentences(100, seed)))
        sources.append(Source(str(corpus), role=role))
    data = Sentences(sources=tuple(sources), count=120, held_out=20)
    mixed = dataclasses.replace(healthy, data=(data,), teacher=TeacherChoice(str(e5)))
    findings = examine(mixed)
    assert concerns(findings) == [("prompts", "warning")]
    assert "queries and documents without any" in findings[0].found
    prepared = prepare(mixed, workspace, Embedding(local=True))
    first, second = prepared.setting[Sentences].store.stores
    assert concerns(examine(mixed)) == [("prompts", "warning")]
    folder = workspace.path(second)
    shuffle(folder, list(range(len(StoreReader(folder)))))
    found = of(examine(mixed), "vectors")[0].found
    assert folder.name in found and workspace.path(first).name not in found


@each_row("name", known_methods())
def test_the_plan_of_every_method_is_looked_at_and_its_own_random_words_are_no_error(
    name: str, experiment: Experiment, shared_context: Context
) -> None:
    """The words of the small experiment are random, and lie in the workspace, as those that a run makes."""
    method, workspace = load_method(name), Workspace(Path(shared_context.root))
    setting = dataclasses.replace(shared_context.setting, distil_budget=4096, finetune_budget=4096)
    teacher = experiment.teacher.finder.resolve()
    # The small models have four layers of 32 dimensions.
    narrow = {"bottleneck": 8, "unit": 2} if name == "crosslingual" else {}
    stage = method.plan(hyper_parameters(method, narrow), setting)
    planned = Planned(experiment, teacher, setting, stage, workspace)
    assert not concerns(student_weights(planned))
    for check in (disk_and_memory.disk_space, disk_and_memory.memory):
        (finding,) = check(planned)
        assert finding.level == "note", finding
    for words in (model for part in planned.stages for model in checkpoints_of(part.student)):
        if words == setting.get(WordVectors):
            elsewhere = dataclasses.replace(planned, workspace=Workspace(workspace.root / "elsewhere"))
            assert ("weights", "error") in concerns(student_weights(elsewhere))


@pytest.mark.usefixtures("teacher_at_rest")
@pytest.mark.parametrize("method", ["ibkd", "ckd", "leaf"])
def test_a_student_that_keeps_its_projection_has_the_dimension_of_its_teacher(
    method: str, healthy: Experiment, workspace: Workspace
) -> None:
    module = load_method(method)
    kept = {} if method == "leaf" else {"keep_projection": True}
    findings = examination.examine(
        module,
        hyper_parameters(module, {"bank_size": 0, **kept} if method == "ckd" else kept),
        healthy,
        workspace,
    )
    assert not concerns(findings)
    assert "its projection to 32 dimensions" in of(findings, "weights")[0].found


def test_time_that_is_up_leaves_a_few_texts_of_everything(
    healthy: Experiment, stored: tuple[Path, Prepared], workspace: Workspace
) -> None:
    shutil.copytree(stored[0], workspace.root)
    module = load_method("ckd")
    point = hyper_parameters(module, {"bank_size": 0})
    findings = examination.examine(module, point, healthy, workspace, seconds=0.0)
    assert "words-train (8), words-dev (8), computed" in of(findings, "vectors")[0].found
    assert "8 different texts" in of(findings, "cosines")[0].found


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("leaf", "lives in its teacher's 32-d space: yes, so its queries can search"),
        ("mse", "lives in its teacher's 32-d space: yes"),
        ("hpd", "lives in its teacher's 32-d space: no, its vectors have 128 dimensions"),
    ],
)
def test_it_says_whether_the_student_lives_in_its_teachers_space(
    method: str, answer: str, healthy: Experiment, workspace: Workspace
) -> None:
    module, teacher = load_method(method), healthy.teacher.finder.resolve()
    planned = sketched(module, module.PRESETS["paper"], healthy, workspace, teacher, "cpu")
    (finding,) = examination.same_space(planned)
    assert (finding.check, finding.level) == ("space", "note") and answer in finding.found
    assert isinstance(teacher, Model)
    both = dataclasses.replace(planned, teacher=Ensemble((teacher, teacher), (0.5, 0.5)))
    assert "space of its teachers: no, it follows several" in examination.same_space(both)[0].found


def test_the_recipe_for_queries_beside_a_teacher_is_one_command(trained_model: Path, tmp_path: Path) -> None:
    said = [f"{text.capitalize()}." for text in sentences(600, 5)]
    passages, found = tmp_path / "passages.jsonl", tmp_path / "found.json"
    lines = [json.dumps({"text": " ".join(said[at : at + 4])}) for at in range(0, len(said), 4)]
    passages.write_text("\n".join(lines))
    recipe = Path(__file__).parents[2] / "search_spaces/recipes/asymmetric.yaml"
    given = ["--teacher", str(trained_model), "--corpus", str(passages), "--column", "text"]
    where = ["--root", str(tmp_path / "runs"), "--json", str(found)]
    assert main(["doctor", "--file", str(recipe), *given, *where]) == 0
    findings = read_json(found)
    (answer,) = [each["found"] for each in findings if each["check"] == "space"]
    assert answer.startswith("this student lives in its teacher's 32-d space: yes")
    assert not any(each["level"] == "error" for each in findings)
