"""Each method against its paper: a plan is trained, and its steps are recomputed in float64 by plain loops.

The loops start from the texts and the published weights, so they check the whole wiring: which layers,
pooling, vectors, temperatures and weights a plan takes to which stage. The value of every term and the
gradient of every parameter must agree. Nothing of the package computes on their side.
"""

import copy
import functools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_models import (  # type: ignore[import-not-found]
    PlainBert,
    average,
    cosine,
    one_of,
    squared,
    unit,
)
from recorded_steps import Step, assert_step, train_recorded  # type: ignore[import-not-found]
from safetensors.torch import load_file
from small_world import MAX_LENGTH, World, write_encoder
from torch import Tensor
from transformers import AutoTokenizer, BertTokenizer

from stillhouse.core.artifacts import Workspace
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY, Prompts, Reading
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.shares import counted
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.teachers.embedding import build_stores
from stillhouse.training.models import encoder_in
from stillhouse.training.table import live_reader, student_reader
from stillhouse.values.data import Model, Store
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FINETUNED = {"finetune_batch_size": 6, "finetune_temperature": 0.3, "finetune_learning_rate": 1e-2}


@pytest.fixture(scope="module")
def built_world(built_world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world with the vectors of its teachers, which would otherwise be computed in each test."""
    workspace = Workspace(tmp_path_factory.mktemp("embedded") / "runs")
    shutil.copytree(built_world.workspace.root, workspace.root)
    for teacher in (built_world.teacher, built_world.wide_teacher):
        tables = built_world.data.values()
        build_stores(
            workspace, [Store(table, teacher, max_length=MAX_LENGTH) for table in tables], local=True
        )
    return replace(built_world, workspace=workspace)


def planned(name: str, setting: Setting, **values: Any) -> Stage:
    method = load_method(name)
    return method.plan(hyper_parameters(method, values), setting)


def bert(model: Model, layers: Sequence[int]) -> PlainBert:
    return copy.deepcopy(opened(Path(model.path), tuple(layers)))


@functools.cache
def opened(folder: Path, layers: tuple[int, ...]) -> PlainBert:
    """A model that is copied rather than opened once more, which takes longer."""
    return PlainBert(folder, layers, MAX_LENGTH)


def assert_stored(world: World, step: Step, column: str, table: str, teacher: Model) -> None:
    """Check that a column's stored vectors are the teacher's own of these texts, with their length."""
    layers = range(3 if teacher == world.wide_teacher else 6)
    encoder, vectors = bert(teacher, layers), step.teacher(column)
    texts = world.texts(table, torch.tensor(step.rows(column)).flatten())
    assert len(texts) == len(vectors) and vectors.norm(dim=1).min() > 1.5
    for text, vector in zip(texts, vectors, strict=True):
        expected = encoder.mean(text).detach()
        assert (vector - expected).abs().max() < 2e-3 * expected.norm()


# The losses, one text after another.


def contrastive(
    anchors: Sequence[Tensor],
    keys: Sequence[Tensor],
    rows: Sequence[int],
    bank: Sequence[tuple[int, Tensor]],
    tau: Any,
) -> Tensor:
    """DistilCSE eq. 4 and 5: an anchor's own text is a negative nowhere, and the batch's none of the bank."""
    losses = []
    for i, anchor in enumerate(anchors):
        negatives = [cosine(anchor, key) / tau for j, key in enumerate(keys) if rows[j] != rows[i]]
        negatives += [cosine(anchor, key) / tau for row, key in bank if row not in rows]
        losses.append(one_of(cosine(anchor, keys[i]) / tau, negatives))
    loss: Tensor = average(losses)
    return loss


def supervised(vectors: dict[str, list[Any]], step: Step, tau: Any, *, shared: bool) -> Tensor:
    """IBKD eq. 10, or with the hard negatives of the whole batch DistilCSE eq. 7."""
    queries, passages, negatives = (step.rows(column) for column in ("query", "passage", "negatives"))
    losses = []
    for i, query in enumerate(vectors["query"]):
        answers = {passages[j] for j in range(len(passages)) if queries[j] == queries[i]}
        others = [vectors["passage"][j] for j in range(len(passages)) if passages[j] not in answers]
        for j in range(len(negatives)) if shared else [i]:
            others += [vectors["negatives"][j][k] for k, row in enumerate(negatives[j]) if row not in answers]
        losses.append(
            one_of(
                cosine(query, vectors["passage"][i]) / tau, [cosine(query, other) / tau for other in others]
            )
        )
    loss: Tensor = average(losses)
    return loss


def hsic(inputs: Sequence[Tensor], outputs: Sequence[Tensor], gamma: float) -> Tensor:
    """IBKD eq. 6 and 7 on vectors of length 1: tr(K H L H) / l² with every matrix written out."""
    count = len(inputs)
    kernels = [
        torch.stack(
            [torch.stack([(-gamma * squared(unit(a), unit(b))).exp() for b in points]) for a in points]
        )
        for points in (inputs, outputs)
    ]
    centre = torch.eye(count, dtype=torch.float64) - 1.0 / count
    return torch.trace(kernels[0] @ centre @ kernels[1] @ centre) / count**2


def labelled_vectors(world: World, step: Step, encode: Any) -> dict[str, list[Any]]:
    tables = {"query": "queries", "passage": "passages"}
    vectors: dict[str, list[Any]] = {
        column: [encode(text) for text in world.texts(table, step.rows(column))]
        for column, table in tables.items()
    }
    vectors["negatives"] = [
        [encode(text) for text in world.texts("passages", rows)] for rows in step.rows("negatives")
    ]
    return vectors


def assert_fine_tuned(world: World, steps: Sequence[Step], student: PlainBert, tau: float = 0.3) -> None:
    """Check stage 2 of DistilCSE (eq. 7) on the student of the stage before."""
    for step in steps:
        student.load(step.state)
        vectors = labelled_vectors(world, step, student.mean)
        assert_step(step, {"nce": supervised(vectors, step, tau, shared=True)}, student.parameters())


def assert_continues(world: World, stage: Stage, step: Step) -> None:
    """Check that a stage starts from the student that the stage before it has trained."""
    assert stage.start_from is not None
    trained = load_file(world.workspace.path(stage.start_from) / "student.safetensors")
    for name, weight in trained.items():
        assert torch.equal(step.state[f"student.{name}"], weight), name


# DistilCSE and its baselines.


def test_ckd_with_a_bank(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 4 to 6: M, a teacher whose vectors have any length, and the bank over three epochs; then eq. 7."""
    setting = world.setting(world.wide_teacher)
    values = {"batch_size": 8, "bank_size": 11, "temperature": 0.2, "learning_rate": 1e-2, "layers": (1, 4)}
    plan = planned("ckd", setting, **values, **FINETUNED)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student, pushed = bert(world.base, (1, 4)), list[tuple[int, Tensor]]()
    for number, step in enumerate(steps["ckd"]):
        if number:
            student.load(step.state)
        assert_stored(world, step, "text", "sentences", world.wide_teacher)
        rows, keys, M = step.rows("text"), list(step.teacher("text")), step.objective("nce.projection.weight")
        assert (M @ M.T - torch.eye(24)).abs().max() > 0.1, "M maps 16 dimensions to 24"
        # The newest 11 of all that was pushed; of a text only the newest.
        newest = pushed[-11:]
        bank = [
            (row, key) for at, (row, key) in enumerate(newest) if row not in [r for r, _ in newest[at + 1 :]]
        ]
        anchors = [M @ student.mean(text) for text in world.texts("sentences", rows)]
        terms = {"nce": contrastive(anchors, keys, rows, bank, 0.2)}
        assert_step(step, terms, {**student.parameters(), "objective.nce.projection.weight": M})
        pushed += list(zip(rows, keys, strict=True))
    assert number == 2 and len(pushed) - 8 > 11, "the bank was full before the last step"
    assert len({row for row, _ in pushed}) < len(pushed), "some texts were seen twice"
    assert_continues(world, plan, steps["finetune"][0])
    assert_fine_tuned(world, steps["finetune"], student)


@pytest.mark.parametrize(
    ("match", "final", "pairs"),
    [
        pytest.param("skip", False, [(1, 2), (2, 4)], marks=pytest.mark.long),
        ("skip", True, [(1, 2), (2, 4), (3, 6)]),
        ("last", False, [(1, 4), (2, 5)]),
    ],
)
def test_pkd(
    match: str, final: bool, pairs: list[tuple[int, int]], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eq. 7: a student of layers 0, 2 and 5 patiently follows a teacher of six layers, beside its vector.

    Where the student's vectors have length 1 (here with ``final``), the teacher's are scaled to it too.
    """
    values = {"batch_size": 8, "layers": (0, 2, 5), "beta": 0.7, "match": match, "match_final": final}
    fine_tuned = match == "last"
    setting = world.setting(world.teacher, world.student(normalize=final), fine_tuned=fine_tuned)
    plan = planned("pkd", setting, **values, **FINETUNED)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student, teacher = bert(world.base, (0, 2, 5)), bert(world.teacher, range(6))
    for number, step in enumerate(steps["pkd"][:2]):
        if number:
            student.load(step.state)
        outputs, layers = [], []
        for text in world.texts("sentences", step.rows("text")):
            ours = student.means(text)
            theirs = [state.detach() for state in teacher.means(text)]
            scaled = unit if final else as_it_is
            outputs.append(squared(scaled(ours[-1]), scaled(theirs[-1])))
            layers.append(sum(squared(unit(ours[j]), unit(theirs[k])) for j, k in pairs))
        terms = {"mse": average(outputs), "layers": 0.7 * average(layers)}
        assert_step(step, terms, student.parameters())
    if fine_tuned:
        assert_fine_tuned(world, steps["finetune"], student)


def test_pkd_with_a_teacher_of_another_size_and_tokenizer(
    world: World, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix for each matched layer maps the student's state; the teacher reads tokens of its own."""
    known: Any = AutoTokenizer.from_pretrained(tiny_model)
    special = [word for word in known.get_vocab() if word.startswith("[")]
    words = sorted(set(known.get_vocab()) - set(special))
    # Without every third word, which is unknown to this teacher.
    vocabulary = {
        word: row for row, word in enumerate([*special, *(w for i, w in enumerate(words) if i % 3)])
    }
    BertTokenizer(vocab=vocabulary, model_max_length=32).save_pretrained(tmp_path / "words")
    other = write_encoder(tmp_path / "other", tmp_path / "words", hidden=24, layers=4, seed=8)
    setting = replace(world.setting(other), teacher_dim=24)
    plan = planned(
        "pkd", setting, batch_size=8, layers=(0, 3), beta=0.7, match_final=True, learning_rate=1e-2
    )
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student, teacher = bert(world.base, (0, 3)), bert(other, range(4))
    for number, step in enumerate(steps["pkd"][:2]):
        if number:
            student.load(step.state)
        names = ("mse.projection.weight", "patient.projections.0.weight", "patient.projections.1.weight")
        M, *P = (step.objective(name) for name in names)
        assert [matrix.shape for matrix in (M, *P)] == [(24, 16)] * 3
        outputs, layers = [], []
        texts = world.texts("sentences", step.rows("text"))
        for text in texts:
            ours = student.means(text)
            theirs = [state.detach() for state in teacher.means(text)]
            outputs.append(squared(M @ ours[-1], theirs[-1]))
            layers.append(
                sum(
                    squared(unit(P[at] @ ours[j]), unit(theirs[k]))
                    for at, (j, k) in enumerate([(1, 2), (2, 4)])
                )
            )
        read, own_read = step.batch.tokens["text"], step.batch.live_tokens["text"]
        assert read.input_ids_BT.tolist() != own_read.input_ids_BT.tolist()
        terms = {"mse": average(outputs), "layers": 0.7 * average(layers)}
        own = {f"objective.{name}": matrix for name, matrix in zip(names, (M, *P), strict=True)}
        assert_step(step, terms, {**student.parameters(), **own})
    assert_continues(world, plan, steps["finetune"][0])
    assert not any(name.startswith("objective.patient") for name in steps["finetune"][0].state)


@pytest.mark.parametrize(
    "read_as", [*(pytest.param(role, marks=pytest.mark.long) for role in (PLAIN, QUERY)), DOCUMENT]
)
def test_pkd_reads_with_the_teachers_own_prompts_and_length(
    read_as: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Student and teacher share a tokenizer; each has prompts of its own for the role of the texts."""
    theirs_of = {QUERY: "big dogs ", DOCUMENT: "two houses and ", PLAIN: "a river "}
    ours_of = {QUERY: "", DOCUMENT: "one cat ", PLAIN: "the cats "}
    prompted = replace(
        world.setting(world.teacher, fine_tuned=False),
        prompts=Prompts(*ours_of.values()),
        teacher_reading=Reading(MAX_LENGTH + 5, Prompts(*theirs_of.values())),
    )
    setting = prompted.having(Sentences, replace(prompted[Sentences], role=read_as))
    plan = planned("pkd", setting, batch_size=8, layers=(0, 3), beta=0.7, match_final=True)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student = bert(world.base, (0, 3))
    teacher = PlainBert(Path(world.teacher.path), range(6), MAX_LENGTH + 5)
    outputs, layers, cut = [], [], 0
    step = steps["pkd"][0]
    for text in world.texts("sentences", step.rows("text")):
        ours = student.means(ours_of[read_as] + text)
        theirs = [state.detach() for state in teacher.means(theirs_of[read_as] + text)]
        cut += len(teacher.states(theirs_of[read_as] + text)[0]) > MAX_LENGTH
        outputs.append(squared(ours[-1], theirs[-1]))
        layers.append(sum(squared(unit(ours[j]), unit(theirs[k])) for j, k in [(1, 3), (2, 6)]))
    assert cut, "some texts are longer than the student reads"
    terms = {"mse": average(outputs), "layers": 0.7 * average(layers)}
    assert_step(step, terms, student.parameters())


def test_a_live_teacher_that_reads_as_the_student_does_changes_no_stage(world: World) -> None:
    """Same prompts, same length, same tokens: the stage has the name that it had, and one table of tokens."""
    known = world.setting(world.teacher)
    same = replace(known, teacher_reading=Reading(MAX_LENGTH))
    plans = [planned("pkd", setting, batch_size=8) for setting in (known, same)]
    assert plans[0].fingerprint == plans[1].fingerprint
    for other in (Reading(MAX_LENGTH + 1), Reading(MAX_LENGTH, Prompts(plain="a "))):
        changed = planned("pkd", replace(known, teacher_reading=other), batch_size=8)
        assert changed.fingerprint != plans[0].fingerprint
        (first, *_) = changed.chain()
        student = student_reader(first, world.base)
        live = live_reader(first, student)
        assert live is not None and (live.tokenizer, live.reading) == (world.teacher, other)
    (first, *_) = plans[1].chain()
    assert live_reader(first, student_reader(first, world.base)) is None


@pytest.mark.parametrize("centred", [True, False])
def test_hpd(centred: bool, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """P is fitted around the mean of all stored vectors, which is subtracted if ``centred``."""
    setting = world.setting(world.wide_teacher, fine_tuned=False)
    plan = planned("hpd", setting, batch_size=8, dim=4, centred=centred)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    teacher, student = bert(world.wide_teacher, range(3)), bert(world.base, (0, 3))
    every = torch.stack([teacher.mean(text).detach() for text in world.texts("sentences", range(20))])
    mean = every.mean(dim=0)
    components = torch.linalg.svd(every - mean)[2][:4]
    for number, step in enumerate(steps["hpd"][:2]):
        if number:
            student.load(step.state)
        fitted = step.state["objective.target.components_DE"].double()
        for own, component in zip(fitted, components, strict=True):
            # A component has no sign of its own.
            assert abs(cosine(own, component).item()) > 0.999
            assert own[own.abs().argmax()] > 0
        W, b = (
            step.state[f"student.projection.{name}"].double().requires_grad_() for name in ("weight", "bias")
        )
        losses = []
        vectors = zip(world.texts("sentences", step.rows("text")), step.teacher("text"), strict=True)
        for text, vector in vectors:
            target = fitted @ (vector - mean if centred else vector)
            losses.append(squared(torch.tanh(W @ student.mean(text) + b), target) / 4)
        own_head = {"student.projection.weight": W, "student.projection.bias": b}
        # The stored vectors are in float16, and the mean is theirs.
        assert_step(step, {"mse": average(losses)}, {**student.parameters(), **own_head}, tolerance=3e-3)


@pytest.mark.parametrize("normalize", [pytest.param(False, marks=pytest.mark.long), True])
def test_metakd(normalize: bool, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head g learns the task of the labelled text; the student follows it, and g does not follow back."""
    setting = world.setting(world.wide_teacher, world.student(normalize=normalize))
    scaled = unit if normalize else as_it_is
    plan = planned("metakd", setting, batch_size=6, temperature=0.4, beta=0.6, learning_rate=1e-2)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student = bert(world.base, (0, 3))
    for number, step in enumerate(steps["metakd"][:2]):
        if number:
            student.load(step.state)
        for column in ("query", "passage", "negatives"):
            table = "queries" if column == "query" else "passages"
            assert_stored(world, step, column, table, world.wide_teacher)
        g, M = step.objective("head.weight"), step.objective("mse.projection.weight")
        assert (g - torch.eye(24)).norm() == 0 if number == 0 else (g - torch.eye(24)).norm() > 0
        texts = flat(list(labelled_vectors(world, step, str).values()))
        heads: dict[str, list[Any]] = {
            column: [g @ vector for vector in step.teacher(column)]
            for column in ("query", "passage", "negatives")
        }
        follows = [
            squared(scaled(M @ scaled(student.mean(text))), scaled(target.detach())) / 24
            for text, target in zip(texts, flat(list(heads.values())), strict=True)
        ]
        heads["negatives"] = [heads["negatives"][at : at + 2] for at in range(0, 12, 2)]
        terms = {"teacher": supervised(heads, step, 0.4, shared=True), "mse": 0.6 * average(follows)}
        own = {"objective.head.weight": g, "objective.mse.projection.weight": M}
        assert_step(step, terms, {**student.parameters(), **own})


def test_metakd_on_unlabelled_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head learns from the labelled text and is then fixed; student, g and M go on from there."""
    setting = counted(world.setting(world.wide_teacher, world.student(normalize=False)), world.workspace)
    epochs = 12 / setting.rows_of(setting[Pairs].examples)
    values = {
        "batch_size": 6,
        "head_epochs": epochs,
        "beta": 0.6,
        "learning_rate": 1e-2,
        "text": "unlabelled",
    }
    plan = planned("metakd", setting, **values, **FINETUNED)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    assert list(steps) == ["metakd", "distil", "finetune"] and len(steps["metakd"]) == 2
    assert plan.start_from is not None and plan.start_from.start_from is not None
    learnt = load_file(world.workspace.path(plan.start_from.start_from) / "objective.safetensors")
    assert_continues(world, plan.start_from, steps["distil"][0])
    student = bert(world.base, (0, 3))
    for number, step in enumerate(steps["distil"][:2]):
        student.load(step.state)
        assert_stored(world, step, "text", "sentences", world.wide_teacher)
        g, M = step.objective("head.weight"), step.objective("mse.projection.weight")
        assert torch.equal(g.float(), learnt["head.weight"]) and (g - torch.eye(24)).norm() > 0
        assert number or torch.equal(M.float(), learnt["mse.projection.weight"])
        texts = world.texts("sentences", step.rows("text"))
        follows = [
            squared(M @ student.mean(text), (g @ vector).detach()) / 24
            for text, vector in zip(texts, step.teacher("text"), strict=True)
        ]
        own = {"objective.mse.projection.weight": M}
        assert_step(step, {"mse": 0.6 * average(follows)}, {**student.parameters(), **own})
    assert_continues(world, plan, steps["finetune"][0])


def as_it_is(vector: Tensor) -> Tensor:
    return vector


def flat(values: Any) -> list[Any]:
    """The elements of a list and of the lists in it."""
    return [each for value in values for each in flat(value)] if isinstance(values, list) else [values]


@pytest.mark.parametrize(
    ("normalize", "wide"),
    [
        (False, False),
        (True, True),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((False, True), (True, False))),
    ],
)
def test_mse(normalize: bool, wide: bool, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 2 and 3: the mean over the dimensions, with M where these differ; a unit student, unit targets."""
    scaled, teacher = unit if normalize else as_it_is, world.wide_teacher if wide else world.teacher
    setting = world.setting(teacher, world.student(normalize=normalize), fine_tuned=False)
    plan = planned("mse", setting, batch_size=8, learning_rate=1e-2)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student = bert(world.base, (0, 3))
    for number, step in enumerate(steps["mse"][:2]):
        if number:
            student.load(step.state)
        own = {}
        if wide:
            own["objective.mse.projection.weight"] = step.objective("mse.projection.weight")
        M = own.get("objective.mse.projection.weight", torch.eye(16, dtype=torch.float64))
        texts = world.texts("sentences", step.rows("text"))
        losses = [
            squared(scaled(M @ scaled(student.mean(text))), scaled(vector)) / len(vector)
            for text, vector in zip(texts, step.teacher("text"), strict=True)
        ]
        assert_step(step, {"mse": average(losses)}, {**student.parameters(), **own})


@pytest.mark.parametrize("normalize", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_kept_m_is_the_last_layer_of_mse(
    normalize: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eq. 2 and 3 with M in the student, where a norm comes after it; the fine-tuning continues with M."""
    setting = world.setting(world.wide_teacher, world.student(normalize=normalize))
    scaled = unit if normalize else as_it_is
    plan = planned("mse", setting, batch_size=8, learning_rate=1e-2, keep_projection=True, **FINETUNED)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student = bert(world.base, (0, 3))
    for number, step in enumerate(steps["mse"][:2]):
        if number:
            student.load(step.state)
        M = step.state["student.projection.weight"].double().requires_grad_()
        losses = [
            squared(scaled(M @ student.mean(text)), scaled(vector)) / 24
            for text, vector in zip(
                world.texts("sentences", step.rows("text")), step.teacher("text"), strict=True
            )
        ]
        parameters = {**student.parameters(), "student.projection.weight": M}
        assert_step(step, {"mse": average(losses)}, parameters)
    assert_continues(world, plan, steps["finetune"][0])
    (step, *_) = steps["finetune"]
    student.load(step.state)
    M = step.state["student.projection.weight"].double().requires_grad_()
    vectors = labelled_vectors(world, step, lambda text: M @ student.mean(text))
    terms = {"nce": supervised(vectors, step, 0.3, shared=True)}
    assert_step(step, terms, {**student.parameters(), "student.projection.weight": M})


# LEAF.


@pytest.mark.parametrize(
    ("normalize", "wide"),
    [
        (False, False),
        (True, True),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((False, True), (True, False))),
    ],
)
def test_leaf(normalize: bool, wide: bool, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All terms, through W_out, which the student keeps; the teacher's vectors have any length."""
    teacher = world.wide_teacher if wide else world.teacher
    setting = world.setting(teacher, world.student(normalize=normalize))
    scaled, dim = (unit if normalize else as_it_is), 24 if wide else 16
    weights = {"relational_weight": 3.0, "cosine_weight": 0.5, "spread_weight": 0.2}
    values = {"batch_size": 8, "learning_rate": 1e-2, "layers": (1, 4), **weights}
    plan = planned("leaf", setting, **values)
    (recorded,) = train_recorded(plan, world.workspace, monkeypatch).values()
    student, spread = bert(world.base, (1, 4)), []
    for number, step in enumerate(recorded):
        if number:
            student.load(step.state)
        W_out = step.state["student.projection.weight"].double().requires_grad_()
        rows, targets = step.rows("text"), list(step.teacher("text"))
        outputs = [scaled(W_out @ student.mean(text)) for text in world.texts("sentences", rows)]
        pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
        gaps = [cosine(outputs[i], outputs[j]) - cosine(targets[i], targets[j]) for i, j in pairs]
        apart = [cosine(outputs[i], outputs[j]) for i, j in pairs if rows[i] != rows[j]]
        excess = average([each**2 for each in apart]) - 1 / dim
        spread.append(excess.item())
        both = list(zip(outputs, targets, strict=True))
        terms = {
            "mse": average([squared(s, scaled(t)) for s, t in both]),
            "cosine": 0.5 * average([1 - cosine(s, t) for s, t in both]),
            "relational": 3.0 * average([gap**2 for gap in gaps]),
            "spread": 0.2 * (average(apart) ** 2 + torch.relu(excess)),
        }
        assert_step(step, terms, {**student.parameters(), "student.projection.weight": W_out})
    assert max(spread) > 0 and number == 2


# IBKD.


def test_ibkd(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 8 with eq. 5 to 7; then eq. 9 with eq. 10, from the student without W, with values of its own."""
    values = {
        "distil_batch_size": 8,
        "distil_temperature": 0.2,
        "distil_learning_rate": 1e-2,
        "beta1": 1.7,
        "gamma": 0.6,
        "beta2": 0.4,
        "finetune_gamma": 0.9,
        "finetune_input_layer": "penultimate",
        "layers": (0, 2, 4),
        **FINETUNED,
    }
    plan = planned("ibkd", world.setting(world.wide_teacher), **values)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student = bert(world.base, (0, 2, 4))
    for number, step in enumerate(steps["distil"][:2]):
        if number:
            student.load(step.state)
        texts, W = world.texts("sentences", step.rows("text")), step.objective("nce.projection.weight")
        means = [student.means(text) for text in texts]
        keys = [unit(vector) for vector in step.teacher("text")]
        losses = []
        for i, states in enumerate(means):
            anchor = W @ unit(states[-1])
            others = [(anchor * key).sum() / 0.2 for j, key in enumerate(keys) if j != i]
            losses.append(one_of((anchor * keys[i]).sum() / 0.2, others))
        kept = hsic([states[0] for states in means], [states[-1] for states in means], 0.6)
        terms = {"nce": average(losses), "hsic": 1.7 * kept}
        assert_step(step, terms, {**student.parameters(), "objective.nce.projection.weight": W})
    assert_continues(world, plan, steps["finetune"][0])
    for step in steps["finetune"]:
        student.load(step.state)
        vectors = labelled_vectors(world, step, student.mean)
        means = [student.means(text) for text in world.texts("queries", step.rows("query"))]
        kept = hsic([states[-2] for states in means], [states[-1] for states in means], 0.9)
        terms = {"nce": supervised(vectors, step, 0.3, shared=False), "hsic": 0.4 * kept}
        assert_step(step, terms, student.parameters())


def test_simcse(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 5 of SimCSE: the student alone, from the published weights."""
    plan = planned("simcse", world.setting(world.teacher), batch_size=6, temperature=0.3)
    (first, *_) = train_recorded(plan, world.workspace, monkeypatch)["simcse"]
    student = bert(world.base, (0, 3))
    vectors = labelled_vectors(world, first, student.mean)
    assert_step(first, {"nce": supervised(vectors, first, 0.3, shared=True)}, student.parameters())


@pytest.mark.parametrize("loss", ["margin_mse", pytest.param("kl", marks=pytest.mark.long), "contrastive_kl"])
def test_rerank_kd(loss: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded scores of the passage and its negatives, and the student's in the same order."""
    losses = {"loss": loss, "temperature": 2.0, "weight": 0.7, "contrast_temperature": 0.3}
    plan = planned(
        "rerank_kd",
        world.setting(world.teacher),
        batch_size=6,
        teacher_batch_size=6,
        teacher_held_out=0.2,
        similarity="cosine",
        scale=5.0,
        learning_rate=1e-2,
        **losses,
    )
    steps = train_recorded(plan, world.workspace, monkeypatch)
    assert list(steps) == ["teacher", "rerank_kd"]
    reranker, student = encoder_in(world.workspace.path(next(plan.chain()))), bert(world.base, (0, 3))
    for number, step in enumerate(steps["rerank_kd"][:2]):
        if number:
            student.load(step.state)
        terms: list[Tensor] = []
        vectors, scores = labelled_vectors(world, step, student.mean), step.batch.values["scores"].double()
        texts = labelled_vectors(world, step, str)
        for i, query in enumerate(vectors["query"]):
            read = [texts["passage"][i], *texts["negatives"][i]]
            expected = reranker.score([texts["query"][i]] * len(read), read)[:, 0]
            assert scores[i].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
            own = [5 * cosine(query, each) for each in (vectors["passage"][i], *vectors["negatives"][i])]
            given = list(scores[i])
            if loss == "margin_mse":
                margins = [(own[0] - s) - (given[0] - t) for s, t in zip(own[1:], given[1:], strict=True)]
                terms.append(average([margin**2 for margin in margins]))
            else:
                p, q = (torch.stack([(value / 2).exp() for value in each]) for each in (given, own))
                p, q = p / p.sum(), q / q.sum()
                terms.append(4 * sum(a * (a.log() - b.log()) for a, b in zip(p, q, strict=True)))
        found = {"soft": average(terms)}
        if loss == "contrastive_kl":
            found = {"nce": supervised(vectors, step, 0.3, shared=True), "soft": 0.7 * found["soft"]}
        assert_step(step, found, student.parameters())


def test_crd(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """§3.2 with a bank: a critic tells the right teacher vector from those of other texts."""
    values = {"batch_size": 8, "bank_size": 19, "dim": 5, "temperature": 0.5, "learning_rate": 1e-2}
    plan = planned("crd", world.setting(world.wide_teacher, fine_tuned=False), **values)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    student, pushed = bert(world.base, (0, 3)), list[tuple[int, Tensor]]()
    for number, step in enumerate(steps["crd"]):
        if number:
            student.load(step.state)
        names = [f"crd.{side}_head.{part}" for side in ("student", "teacher") for part in ("weight", "bias")]
        own = {f"objective.{name}": step.objective(name) for name in names}
        W_s, b_s, W_t, b_t = own.values()
        rows, vectors = step.rows("text"), list(step.teacher("text"))
        newest = pushed[-19:]
        bank = [(row, t) for at, (row, t) in enumerate(newest) if row not in [r for r, _ in newest[at + 1 :]]]
        losses = []
        for i, text in enumerate(world.texts("sentences", rows)):
            anchor = unit(W_s @ student.mean(text) + b_s)
            others = [t for j, t in enumerate(vectors) if rows[j] != rows[i]]
            others += [t for row, t in bank if row not in rows]
            chance = len(others) / 20

            critics = [((unit(W_t @ t + b_t) * anchor).sum() / 0.5).exp() for t in [vectors[i], *others]]
            accepted = [critic / (critic + chance) for critic in critics]
            refused = [(1 - h).log() for h in accepted[1:]]
            losses.append(-accepted[0].log() - torch.stack(refused).sum())
        assert_step(step, {"crd": average(losses)}, {**student.parameters(), **own})
        pushed += list(zip(rows, vectors, strict=True))
    assert number == 2
