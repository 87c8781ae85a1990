"""Several teachers that teach as one: their vectors, the search over their weights, and what needs one."""

import json
import pickle
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rows import each_row
from small_world import write_encoder

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_mapping, changed, experiment_of, merged
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.mined_pairs import mine
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.experiments.teacher_weights import weighted
from stillhouse.losses.regression import MSE
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.preflight.examination import examine
from stillhouse.search.searcher import StudySearcher
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps.checks import check_plans, search_space
from stillhouse.sweeps.contenders import figures_of, teacher, teacher_of
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.store import open_store, open_vectors
from stillhouse.teachers.store_admin import collectable
from stillhouse.training.teacher_space import space_of
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Ensemble, Model, Store, StoreEnsemble, StoreMix, shares_of
from stillhouse.values.stage import TestSuite

LOCAL = Embedding(local=True)
WHERE = Where(device="cpu", threads=1)
Doubles = npt.NDArray[np.float64]


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Another teacher: 24 dimensions, vectors that do not have length 1."""
    folder = tmp_path_factory.mktemp("second")
    return Path(write_encoder(folder, tiny_model, hidden=24, layers=2, seed=5).path)


@pytest.fixture(scope="session")
def several(experiment: Experiment, second: Path) -> Experiment:
    """The small experiment with two teachers: 32 dimensions of length 1, and 24 of any length."""
    members = [{"name": experiment.teacher.name}, {"name": str(second), "weight": 3.0}]
    return changed(experiment, {"teacher.members": members})


@pytest.fixture(scope="module")
def stored(several: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which both teachers have embedded everything."""
    root = tmp_path_factory.mktemp("stored") / "runs"
    prepare(several, Workspace(root), LOCAL)
    return root


@pytest.fixture
def workspace(stored: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(stored, tmp_path / "runs")))


def plain_targets(each: list[Doubles], weights: list[float]) -> Doubles:
    """The targets by their definition, one row after another."""
    rows = []
    for vectors in zip(*each, strict=True):
        parts = [
            weight**0.5 * (vector / (vector @ vector) ** 0.5)
            for vector, weight in zip(vectors, weights, strict=True)
        ]
        rows.append(np.concatenate(parts))
    return np.array(rows)


def members_rows(workspace: Workspace, store: StoreEnsemble, rows: Any) -> list[Doubles]:
    return [open_store(workspace, member).gather(rows).astype(np.float64) for member in store.members]


def ensemble_of(prepared: Prepared) -> StoreEnsemble:
    store = prepared.setting[Sentences].store
    assert isinstance(store, StoreEnsemble)
    return store


def train(prepared: Prepared, workspace: Workspace, method: str = "mse", **values: Any) -> Path:
    module = load_method(method)
    plan = module.plan(hyper_parameters(module, {"batch_size": 8, **values}), prepared.setting)
    return run(plan, workspace, where=WHERE)


# What a student learns from.


def test_targets_are_the_weighted_concatenation_of_unit_vectors(
    several: Experiment, workspace: Workspace
) -> None:
    store = ensemble_of(prepare(several, workspace, LOCAL))
    assert store.weights == (0.25, 0.75)
    reader = open_vectors(workspace, store)
    assert (reader.dim, len(reader)) == (56, len(open_texts(workspace, store.texts)))
    rows = np.random.default_rng(1).permutation(reader.rows)[:20].reshape(4, 5)
    targets = reader.gather(rows)
    assert targets.dtype == np.float32 and targets.shape == (4, 5, 56)
    each = members_rows(workspace, store, rows.reshape(-1))
    assert abs(np.linalg.norm(each[1], axis=1) - 1).min() > 0.1  # one of them is not normalised
    expected = plain_targets(each, [0.25, 0.75])
    np.testing.assert_allclose(targets.reshape(-1, 56), expected, atol=1e-6)
    flat = targets.reshape(-1, 56).astype(np.float64)
    units = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in each]
    cosines = 0.25 * units[0] @ units[0].T + 0.75 * units[1] @ units[1].T
    np.testing.assert_allclose(flat @ flat.T, cosines, atol=1e-6)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reader)).gather(rows), targets)


def test_each_teacher_has_the_store_that_it_has_alone(
    several: Experiment, experiment: Experiment, second: Path, workspace: Workspace
) -> None:
    together = prepare(several, workspace, LOCAL)
    made = sorted(workspace.root.glob("stores/*/manifest.json"))
    alone = [
        prepare(changed(experiment, {"teacher.name": name}), workspace, LOCAL)
        for name in (experiment.teacher.name, str(second))
    ]
    prepare(
        changed(several, {"teacher.members": [{"name": str(second)}, {"name": experiment.teacher.name}]}),
        workspace,
        LOCAL,
    )
    assert sorted(workspace.root.glob("stores/*/manifest.json")) == made and len(made) == 6
    members = ensemble_of(together).members
    assert members == tuple(each.setting[Sentences].only_store for each in alone)
    assert not collectable(workspace, older_than=0.0)
    assert together.setting.teacher_dim == 56
    assert together.facts["teacher"] == together.setting.teacher.name
    assert "second" in together.facts["teacher"] and together.facts["teacher"].endswith("(0.75)")


def test_a_list_of_one_is_that_teacher(experiment: Experiment) -> None:
    for weight in ({}, {"weight": 0.2}):
        listed = changed(experiment, {"teacher.members": [{"name": experiment.teacher.name, **weight}]})
        assert listed == experiment
    assert TeacherChoice(members=(experiment.teacher,)) == experiment.teacher


def test_teachers_of_several_sources_are_read_in_one_order(
    several: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    sources = []
    for number, words in enumerate(("cat dog sun moon", "red green river list")):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"{a} {b} {c}\n" for a, b, c in product(words.split(), repeat=3)))
        sources.append({"corpus": str(path), "share": 0.5, "role": "query" if number else ""})
    kinds = {"sentences.sources": sources, "sentences.corpus": "pydocs", "sentences.count": 90}
    store = prepare(changed(several, kinds), workspace, LOCAL).setting[Sentences].store
    assert isinstance(store, StoreMix) and len(store.stores) == 4
    reader = open_vectors(workspace, store)
    first = store.parts[0]
    assert isinstance(first, StoreEnsemble)
    count = store.roles[0][0]
    rows = np.arange(count, count + 5)
    second_part = open_vectors(workspace, store.parts[1])
    np.testing.assert_array_equal(reader.gather(rows), second_part.gather(rows - count))
    np.testing.assert_allclose(np.linalg.norm(reader.gather(reader.rows), axis=1), 1, atol=1e-5)
    assert isinstance(store.teacher, Ensemble)


def exported(workspace: Workspace, stores: list[Store], path: Path) -> str:
    """Write the vectors of stores to a Parquet file."""
    texts: list[str] = []
    vectors: list[Any] = []
    for store in stores:
        reader = open_store(workspace, store)
        texts += list(open_texts(workspace, store.texts))
        vectors += list(reader.gather(reader.rows))
    pq.write_table(pa.table({"text": texts, "embedding": pa.array(vectors, pa.list_(pa.float32()))}), path)
    return str(path)


@pytest.fixture
def files(several: Experiment, workspace: Workspace, tmp_path: Path) -> list[dict[str, Any]]:
    """Both teachers as files of vectors."""
    prepared = prepare(several, workspace, LOCAL)
    suites = (prepared.setting.dev, prepared.test)
    read = [prepared.setting[Sentences].store, *(each.evaluators[0].kwargs["store"] for each in suites)]
    entries = []
    for number, choice in enumerate(several.teacher.each):
        path = exported(workspace, [each.stores[number] for each in read], tmp_path / f"{number}.parquet")
        entries.append({"vectors": path, "weight": choice.weight})
    return entries


@pytest.mark.parametrize("method", ["mse", pytest.param("leaf", marks=pytest.mark.long)])
def test_vectors_from_files_give_the_same_student(
    method: str, several: Experiment, files: list[dict[str, Any]], workspace: Workspace
) -> None:
    checkpoint = {"student.checkpoint": several.teacher.each[0].name}
    native = prepare(changed(several, checkpoint), workspace, LOCAL)
    imported = prepare(changed(several, {**checkpoint, "teacher.members": files}), workspace, LOCAL)
    assert imported.setting.student == native.setting.student
    folders = [train(each, workspace, method) for each in (native, imported)]
    assert folders[0] != folders[1]
    assert len({read_manifest(folder)["weights_sha256"] for folder in folders}) == 1
    mixed = [{"name": several.teacher.each[0].name}, files[1]]
    partly = prepare(changed(several, {"teacher.members": mixed}), workspace, LOCAL)
    assert partly.setting.student == native.setting.student  # it starts from the only model
    assert (
        read_manifest(train(partly, workspace, method))["weights_sha256"]
        == (read_manifest(folders[0])["weights_sha256"])
    )


def test_a_student_starts_from_the_first_teacher_that_is_a_model(
    several: Experiment, files: list[dict[str, Any]]
) -> None:
    (first, _), own = several.teacher.each, several.student
    turned = changed(several, {"teacher.members": [files[1], {"name": first.name}]})
    assert own.of(turned.teacher.finder.resolve()).base == own.of(first.finder.resolve()).base
    vectors = changed(several, {"teacher.members": files})
    with pytest.raises(BadInput, match=r"student\.checkpoint must be given where the teacher is no model"):
        check_plans(load_method("mse"), vectors, [{}])


def test_a_row_needs_a_vector_of_every_teacher(
    several: Experiment, files: list[dict[str, Any]], workspace: Workspace
) -> None:
    lost = []
    for number, entry in enumerate(files):
        whole = pq.read_table(entry["vectors"])
        pq.write_table(whole.take([row for row in range(len(whole)) if row % 7 != number]), entry["vectors"])
        lost.append({**entry, "incomplete": True})
    changes = {"teacher.members": lost, "student.checkpoint": several.teacher.each[0].name}
    prepared = prepare(changed(several, changes), workspace, LOCAL)
    store = ensemble_of(prepared)
    readers = [open_store(workspace, member) for member in store.members]
    reader = open_vectors(workspace, store)
    expected = np.intersect1d(readers[0].rows, readers[1].rows)
    assert list(reader.rows) == list(expected) and len(reader) < min(map(len, readers))
    missing = np.setdiff1d(readers[0].rows, expected)
    with pytest.raises(BadInput, match="must have a vector"):
        reader.gather(missing)
    train(prepared, workspace)


# One layer is a projection per teacher.


def test_a_layer_onto_the_targets_is_a_projection_per_teacher() -> None:
    random = torch.Generator().manual_seed(0)
    weights, dims = shares_of([1.0, 3.0, 0.5]), (5, 3, 4)
    student_BD = torch.randn(6, 7, generator=random, dtype=torch.float64).requires_grad_()
    teachers = [
        torch.nn.functional.normalize(torch.randn(6, dim, generator=random, dtype=torch.float64), dim=1)
        for dim in dims
    ]
    own = [torch.randn(dim, 7, generator=random, dtype=torch.float64) for dim in dims]
    separate = torch.stack(
        [
            weight * (student_BD @ projection.T - target).square().sum(dim=1).mean()
            for weight, projection, target in zip(weights, own, teachers, strict=True)
        ]
    ).sum()
    (expected,) = torch.autograd.grad(separate, student_BD)
    targets = torch.cat([w**0.5 * t for w, t in zip(weights, teachers, strict=True)], dim=1)
    loss = MSE(student_dim=7, teacher_dim=12, dimensions="sum").double()
    with torch.no_grad():
        blocks = torch.cat([w**0.5 * p for w, p in zip(weights, own, strict=True)])
        loss.projection.weight.copy_(blocks)  # type: ignore[operator]
    joint = loss(student_BD, targets)
    (found,) = torch.autograd.grad(joint, student_BD)
    torch.testing.assert_close(joint, separate)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("ckd", {"batch_size": 8, "bank_size": 16}),
        pytest.param("ibkd", {"distil_batch_size": 8}, marks=pytest.mark.long),
        ("hpd", {"batch_size": 8, "dim": 16}),
        pytest.param("crd", {"batch_size": 8}, marks=pytest.mark.long),
    ],
)
def test_methods_that_read_vectors_learn_from_several_teachers(
    method: str, values: dict[str, Any], several: Experiment, workspace: Workspace
) -> None:
    module = load_method(method)
    check_plans(module, several, [values])
    plan = module.plan(hyper_parameters(module, values), prepare(several, workspace, LOCAL).setting)
    folder = run(plan, workspace, where=WHERE)
    assert np.isfinite(list(read_manifest(folder)["metrics"].values())).all()


# Weights as hyper-parameters.


def context_of(prepared: Prepared, workspace: Workspace, method: str = "mse") -> Context:
    return Context(method, "paper", prepared.setting, str(workspace.root), WHERE, prepared.setting.dev.select)


def test_a_weight_changes_what_is_learnt_from_and_nothing_that_measures(
    several: Experiment, workspace: Workspace
) -> None:
    prepared = prepare(changed(several, {"selection.heldout_loss": True}), workspace, LOCAL)
    context = context_of(prepared, workspace)
    own = context.plan({"batch_size": 8})
    assert context.plan({"batch_size": 8, "teacher_weight_2": 3.0}).fingerprint == own.fingerprint
    assert context.plan({"batch_size": 8, "teacher_weight_1": 2.0, "teacher_weight_2": 6.0}) == own
    other = context.plan({"batch_size": 8, "teacher_weight_2": 1.0})
    store = other.stores["text"]
    assert isinstance(store, StoreEnsemble) and store.weights == (0.5, 0.5)
    assert other.fingerprint != own.fingerprint
    assert own.dev is not None and other.dev is not None
    assert other.dev.evaluators == own.dev.evaluators
    assert isinstance(other.dev.held_out, StoreEnsemble) and other.dev.held_out.weights == (0.5, 0.5)
    assert weighted(prepared.setting, {"batch_size": 8}) is prepared.setting
    # What the student is compared with, and what its card names.
    assert teacher_of(own, prepared.setting) == prepared.setting.teacher
    measured = teacher_of(other, prepared.setting)
    assert isinstance(measured, Ensemble) and measured.weights == (0.5, 0.5) and measured.lengths == (16, 16)


def space_file(tmp_path: Path, space: str) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(f"method: mse\nsearch:\n  space: {space}\n")
    return path


def test_optuna_searches_the_weight(several: Experiment, workspace: Workspace, tmp_path: Path) -> None:
    prepared = prepare(several, workspace, LOCAL)
    file = space_file(tmp_path, "{teacher_weight_2: {low: 0, high: 4}, learning_rate: [0.001]}")
    space = search_space(load_method("mse"), file, fixed={"batch_size": 8})
    check_plans(load_method("mse"), several, space.probes())
    context = context_of(prepared, workspace)
    search = StudySearcher(
        tmp_path / "study.db", space, trials=3, objective=context.quality, full_budget=64, seed=1
    )
    for turn in range(3):
        config = search.suggest(f"t{turn}")
        assert isinstance(config, dict)
        reports: list[dict[str, Any]] = []
        follow(config["hyper_parameters"], context, reports.append)
        search.on_trial_complete(f"t{turn}", reports[-1])
    records = search.records()
    weights = [record.hyper_parameters["teacher_weight_2"] for record in records]
    assert len(set(weights)) == 3 and all(isinstance(w, float) and 0 <= w <= 4 for w in weights)
    learnt = []
    for record in records:
        store = context.plan(dict(record.hyper_parameters)).stores["text"]
        assert isinstance(store, StoreEnsemble) and record.values
        learnt.append(store.weights[1])
    assert learnt == pytest.approx([weight / (1 + weight) for weight in weights])
    assert len(list(workspace.root.glob("stores/*/manifest.json"))) == 6  # no weight embeds anything


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("{teacher_weight_3: [1, 2]}", r"teacher_weight_3 must name one of several teachers.*teachers=2"),
        ("{teacher_weight_2: [-1, 2]}", r"weights of the teachers must be finite numbers of at least 0"),
        ("{teacher_weight_1: [0, 1], teacher_weight_2: [0, 1]}", r"at least one of them above 0"),
        ("{teacher_weight_2: [a, b]}", r"teacher_weight_2"),
        ("{teacher_weight_0: [1, 2]}", r"unknown key `teacher_weight_0`"),
    ],
)
def test_a_weight_that_cannot_be_is_refused_before_any_work(
    space: str, message: str, several: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        found = search_space(load_method("mse"), space_file(tmp_path, space))
        check_plans(load_method("mse"), several, found.probes())


def test_a_weight_needs_several_teachers(experiment: Experiment, tmp_path: Path) -> None:
    found = search_space(load_method("mse"), space_file(tmp_path, "{teacher_weight_2: [1, 2]}"))
    with pytest.raises(BadInput, match=r"one of several teachers, but got teachers=1"):
        check_plans(load_method("mse"), experiment, found.probes())
    with pytest.raises(BadInput, match=r"teacher\.weight must go with several teachers"):
        changed(experiment, {"teacher.weight": 2.0})


# How they are given.


def test_the_file_the_flag_and_the_path_say_the_same(several: Experiment, experiment: Experiment) -> None:
    entries = [{"name": each.name, "weight": each.weight} for each in several.teacher.members]
    file = {**as_mapping(experiment), "teacher": entries}
    assert experiment_of(file) == several
    assert experiment_of(merged(as_mapping(experiment), {"teacher.members": entries})) == several
    assert experiment_of(as_mapping(several)) == several
    # One teacher that is named instead takes the place of all.
    assert changed(several, {"teacher.name": experiment.teacher.name}) == experiment


@each_row(
    ("members", "message"),
    [
        ([], r"a list of teachers must have at least one entry"),
        ([{"name": "a", "weight": -1}, {"name": "b"}], r"weights.*at least 0"),
        ([{"name": "a", "weight": 0}, {"name": "b", "weight": 0}], r"at least one of them above 0"),
        ([{"name": "a", "weight": float("nan")}, {"name": "b"}], r"weight must be of type float"),
        ([{"name": "a", "weights": 1}, {"name": "b"}], r"unknown field `teacher\.members\[0\]\.weights`"),
        ([{"members": [{"name": "a"}, {"name": "b"}]}, {"name": "c"}], r"must be a single teacher"),
        (["a", "b"], r"`teacher\.members\[0\]` must map names to values"),
    ],
)
def test_a_list_that_cannot_be_is_refused(members: list[Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment_of({"teacher": members})
    with pytest.raises(BadInput, match=message):
        experiment_of(merged({}, {"teacher.members": members}))


def test_what_stands_beside_a_list_is_refused(several: Experiment) -> None:
    entries = [{"name": each.name} for each in several.teacher.members]
    with pytest.raises(BadInput, match=r"must come without further fields of the teacher.*max_length=64"):
        experiment_of({"teacher": {"members": entries, "max_length": 64}})


def test_a_teacher_is_listed_once(several: Experiment, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tiny_model)
    twice = [{"name": str(tiny_model)}, {"name": str(tmp_path / "again"), "weight": 2}]
    with pytest.raises(BadInput, match=r"each teacher must be listed once.*larger weight"):
        check_plans(load_method("mse"), changed(several, {"teacher.members": twice}), [{}])
    other = [{"name": str(tiny_model)}, {"name": str(tiny_model), "prompts": {"plain": "the "}}]
    found = changed(several, {"teacher.members": other}).teacher.finder.resolve()
    assert isinstance(found, Ensemble) and found.weights == (0.5, 0.5)


# What needs one model.


def test_methods_that_run_the_teacher_are_refused(several: Experiment) -> None:
    with pytest.raises(BadInput, match=r"pkd runs or trains the teacher in its stage pkd, so it must be one"):
        check_plans(load_method("pkd"), several, [{}])
    with pytest.raises(BadInput, match=r"needs the teacher as a model.*2 teachers"):
        several.teacher.finder.published()


def test_asymmetric_search_is_refused(several: Experiment, workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"asymmetric search must have one teacher"):
        changed(several, {"selection.by": "asymmetric"})
    folder = train(prepare(several, workspace, LOCAL), workspace, "leaf")
    with pytest.raises(BadInput, match=r"it follows several teachers at once"):
        space_of(folder)
    with pytest.raises(BadInput, match=r"it follows several teachers at once"):
        export_stage(folder, tmp_path / "export", form="asymmetric")


# What is said of them.


def test_the_ensemble_is_measured_as_a_model(several: Experiment, workspace: Workspace) -> None:
    prepared = prepare(several, workspace, LOCAL)
    encoder, module = teacher(prepared.setting.teacher, 16, "cpu")
    store = ensemble_of(prepared)
    texts = list(open_texts(workspace, store.texts)[np.arange(8)])
    np.testing.assert_allclose(
        encoder.encode(texts), open_vectors(workspace, store).gather(np.arange(8)), atol=3e-3
    )
    figures, _ = figures_of(TestSuite(prepared.test.evaluators), encoder, workspace)
    assert figures["agreement_spearman_cosine"] > 0.999
    single, _ = teacher(several.teacher.each[0].finder.published(), 16, "cpu")
    assert figures_of(prepared.test, single, workspace)[0]["agreement_spearman_cosine"] < 0.99
    assert module is not None
    parts = [teacher(each.finder.published(), 16, "cpu")[1] for each in several.teacher.each]
    count = sum(weight.numel() for part in parts if part is not None for weight in part.parameters())
    assert sum(weight.numel() for weight in module.parameters()) == count


def test_the_card_names_every_teacher_with_its_weight(
    several: Experiment, second: Path, workspace: Workspace, tmp_path: Path
) -> None:
    folder = train(prepare(several, workspace, LOCAL), workspace)
    export_stage(folder, tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    first = Path(several.teacher.each[0].name).name
    assert f"distilled from `{first} (0.25) + {second.name} (0.75)`" in card


def test_doctor_looks_at_every_teacher(several: Experiment, second: Path, workspace: Workspace) -> None:
    prepare(several, workspace, LOCAL)
    module = load_method("mse")
    findings = examine(module, hyper_parameters(module, {"batch_size": 8}), several, workspace)
    told = "\n".join(f"{finding.check} {finding.level} {finding.found}" for finding in findings)
    assert f"the teacher, {second}, has weights that were never trained" in told
    assert f"the teacher, {several.teacher.each[0].name}, has weights that were never trained" in told
    assert "computed again, agree: lowest cosine 1.0000" in told or "agree: lowest cosine 0.9999" in told
    assert "have 56 dimensions" in told
    assert f"the teacher {second} reads 16 tokens per text" in told


def test_negatives_are_mined_by_all_teachers(
    several: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    nouns = "cat dog house river water sun moon red green blue fast slow".split()
    pairs = [{"query": f"{a} and {b}", "passage": f"the {a} {b}"} for a in nouns for b in nouns if a < b]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    changes = {"pairs.path": str(tmp_path / "pairs.jsonl"), "pairs.negatives": 2, "pairs.count": 0}
    given = changed(several, {**changes, "pairs.mining.relative_margin": 0.0})
    report = mine(given, workspace, LOCAL, tmp_path / "mined.jsonl")
    assert report["pairs"] > 20 and report["teacher"] == given.teacher.finder.resolve().name
    row = json.loads((tmp_path / "mined.jsonl").read_text().splitlines()[0])
    encoder, _ = teacher(given.teacher.finder.resolve(), 16, "cpu")
    query, passage = encoder.encode([row["query"]])[0], encoder.encode([row["passage"]])[0]
    assert row["passage_cosine"] == pytest.approx(float(query @ passage), abs=5e-3)


def test_lengths_are_each_teachers_own(several: Experiment, second: Path) -> None:
    entries = [{"name": several.teacher.each[0].name, "max_length": 12}, {"name": str(second)}]
    given = replace(changed(several, {"teacher.members": entries}), max_length=0)
    found = given.teacher.finder.resolve()
    assert given.of(found).lengths == (12, 32)
    settled = found.having(lengths=given.of(found).lengths)  # how a sweep measures them
    assert settled.fingerprint == found.fingerprint
    assert isinstance(settled, Ensemble) and settled.lengths == (12, 32)
    assert given.of(found).common_length == 12  # of the teacher that the student starts from
    assert isinstance(found, Ensemble) and isinstance(found.lead, Model)
