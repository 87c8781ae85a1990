"""A student is pooled, normalised and cut as its teacher is: modules, vectors, export and training."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from metrics_lines import read_metrics
from onnx_graphs import trace
from rows import each_row
from small_experiment import sentences

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import FloatArray, Tokens
from stillhouse.corpora.tables import write_texts
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.student_choice import StudentChoice
from stillhouse.experiments.students.recurrent import RecurrentChoice
from stillhouse.experiments.students.static import StaticChoice
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import mse, pkd
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.onnx import OnnxEncoder, export_onnx
from stillhouse.students.export.sentence_transformers import check_parity, export_student
from stillhouse.students.head import head_of, load_pooler, own_head, published_length, with_head
from stillhouse.students.transformer import TransformerStudent
from stillhouse.sweeps.document_teacher import other_model
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.store import open_store
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import find_model, open_model
from stillhouse.training.rebuild import describe, rebuild
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Model, Store

MakeModel = Callable[[str], Model]
MakeTeacher = Callable[..., Path]
TEXTS = ["The river.", "a model of the river, long enough to be cut in two", "z", "the MODEL, 0 1 2 3 4"]
HEADS = [
    ("bert", "cls", True),
    ("mpnet", "mean", False),
    ("xlm-roberta", "max", True),
    ("modernbert", "cls", False),
    ("qwen3", "last", True),
    ("bert", "raw", False),
]
"""Architecture, pooling (raw: a folder without modules), and whether the vectors are normalised."""


def with_long(*brief: int) -> list[Any]:
    """All heads, of which only these are in `make test`."""
    marks = [() if place in brief else pytest.mark.long for place in range(len(HEADS))]
    return [pytest.param(*head, marks=mark) for head, mark in zip(HEADS, marks, strict=True)]


@pytest.fixture(scope="session")
def make_teacher(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> MakeTeacher:
    """A folder as stock sentence-transformers saves it; ``raw`` is a plain Hugging Face folder."""
    made: dict[tuple[Any, ...], Path] = {}

    def make(kind: str, pooling: str, normalize: bool = False, length: int = 40) -> Path:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

        key = kind, pooling, normalize, length
        if pooling == "raw":
            return Path(make_model(kind).path)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("teacher")
            mode = {"last": "lasttoken"}.get(pooling, pooling)
            modules = [Transformer(make_model(kind).path, max_seq_length=length), Pooling(32, mode)]
            modules += [Normalize()] if normalize else []
            stock = SentenceTransformer(modules=modules, device="cpu")
            stock.save(str(made[key]), create_model_card=False)
        return made[key]

    return make


def student_of(teacher: Path, choice: StudentChoice | None = None, **given: Any) -> TransformerStudent:
    """The student of an experiment with this teacher, with all of its layers."""
    choice = choice or TransformerChoice(keep=4, **given)
    student: TransformerStudent = choice.of(TeacherChoice(str(teacher)).finder.published()).spec(0).build()
    return student


def stock_vectors(folder: Path) -> FloatArray:
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu").float().encode(TEXTS))


def cosines(first: FloatArray, second: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / lengths)


def modules_in(folder: Path) -> list[str]:
    return [each["type"].rpartition(".")[2] for each in json.loads((folder / "modules.json").read_bytes())]


@pytest.mark.parametrize(("kind", "pooling", "normalize"), HEADS)
def test_store_student_and_export_give_the_vectors_of_the_teachers_modules(
    kind: str, pooling: str, normalize: bool, make_teacher: MakeTeacher, workspace: Workspace, tmp_path: Path
) -> None:
    folder = make_teacher(kind, pooling, normalize)
    teacher = TeacherChoice(str(folder)).finder.published()
    expected = stock_vectors(folder)
    student = student_of(folder)
    assert student.pooling == {"raw": "mean"}.get(pooling, pooling) and student.normalize is normalize
    length = published_length(teacher)
    assert length == (64 if pooling == "raw" else 40)

    store = Store(write_texts(workspace, "texts", TEXTS), teacher, max_length=length, dtype="float32")
    build_stores(workspace, [store], local=True)
    reader = open_store(workspace, store)
    stored = np.asarray(reader.gather(reader.rows))
    np.testing.assert_allclose(stored, expected, rtol=1e-4, atol=2e-5)

    encoder = StudentEncoder(student, student.tokenizer.path, length)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-4, atol=2e-5)
    export_student(student, student.tokenizer.path, length, tmp_path / "export")
    assert check_parity(encoder, tmp_path / "export", TEXTS) > 0.9999
    np.testing.assert_allclose(stock_vectors(tmp_path / "export"), expected, rtol=1e-4, atol=2e-5)
    assert modules_in(tmp_path / "export") == [
        "Transformer",
        "Pooling",
        *(["Normalize"] if normalize else []),
    ]
    again = TeacherChoice(str(tmp_path / "export")).finder.published()
    assert head_of(again) == head_of(teacher)._replace(stated=True)
    assert published_length(again) == length


@pytest.mark.parametrize(("kind", "pooling", "normalize"), with_long(0, 4))
def test_another_pooling_or_norm_would_be_noticed(
    kind: str, pooling: str, normalize: bool, make_teacher: MakeTeacher
) -> None:
    """What the test above compares tells these heads apart."""
    folder = make_teacher(kind, pooling, normalize)
    expected = stock_vectors(folder)
    own = head_of(resolve_model(str(folder))).pooling
    for other in {"mean", "cls", "max", "last"} - {own}:
        student = student_of(folder, pooling=other)
        vectors = StudentEncoder(student, student.tokenizer.path, 40).encode(TEXTS)
        assert not np.allclose(vectors, expected, rtol=1e-3, atol=1e-3)
    turned = student_of(folder, normalize=not normalize)
    lengths = np.linalg.norm(StudentEncoder(turned, turned.tokenizer.path, 40).encode(TEXTS), axis=1)
    assert np.abs(lengths / np.linalg.norm(expected, axis=1) - 1).min() > 0.01


@pytest.mark.parametrize(("kind", "pooling", "normalize"), with_long(1, 4))
def test_training_lowers_the_loss_and_the_export_is_pooled_alike(
    kind: str, pooling: str, normalize: bool, make_teacher: MakeTeacher, workspace: Workspace, tmp_path: Path
) -> None:
    folder = make_teacher(kind, pooling, normalize)
    (tmp_path / "corpus.txt").write_text("\n".join(sentences(120)))
    experiment = Experiment(
        teacher=TeacherChoice(str(folder)),
        student=TransformerChoice(layers="first", keep=2),
        data=(Sentences(corpus=str(tmp_path / "corpus.txt"), count=0, held_out=20),),
        budget=Budget(distil=480, evaluations=1),
        compute="float32",
    )
    setting = prepare(experiment, workspace, Embedding(local=True)).setting
    stage = mse.plan(mse.HyperParameters(learning_rate=3e-3, batch_size=16), setting)
    assert stage.objective.kwargs["normalize"] is False  # both or neither: the student has the teacher's norm
    done = run(stage, workspace, where=Where(device="cpu", threads=1))
    losses = [
        line["metrics"]["loss"] for line in read_metrics(done / "metrics.jsonl") if "loss" in line["metrics"]
    ]
    assert losses[-1] < 0.8 * losses[0], losses
    assert export_stage(done, tmp_path / "export").parity > 0.9999
    assert ("Normalize" in modules_in(tmp_path / "export")) is normalize
    assert head_of(resolve_model(str(tmp_path / "export"))).pooling == head_of(setting.teacher).pooling


@pytest.mark.parametrize(
    "kind", ["bert", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("xlm-roberta", "mpnet"))]
)
def test_the_pooler_is_the_architectures_own(
    kind: str, make_model: MakeModel, workspace: Workspace, tmp_path: Path
) -> None:
    """SimCSE's teachers: a plain folder whose vectors are what BERT calls its pooler output."""
    from transformers import AutoModel, AutoTokenizer

    folder = make_model(kind).path
    tokenizer, stock = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
        expected = stock(inputs["input_ids"], inputs["attention_mask"]).pooler_output.numpy()
    teacher = TeacherChoice(folder, pooling="pooler").finder.published()
    store = Store(write_texts(workspace, "texts", TEXTS), teacher, max_length=62, dtype="float32")
    build_stores(workspace, [store], local=True)
    reader = open_store(workspace, store)
    np.testing.assert_allclose(np.asarray(reader.gather(reader.rows)), expected, rtol=1e-4, atol=1e-5)

    student = TransformerChoice(keep=4).of(teacher).spec(0).build()
    encoder = StudentEncoder(student, student.tokenizer.path, 62)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-4, atol=1e-5)
    assert {"pooler.weight", "pooler.bias"} <= {name for name, _ in student.named_parameters()}
    export_student(student, student.tokenizer.path, 62, tmp_path / "export")
    np.testing.assert_allclose(stock_vectors(tmp_path / "export"), expected, rtol=1e-4, atol=1e-5)
    assert modules_in(tmp_path / "export") == ["Transformer", "Pooling", "Dense"]
    # The export states a pooler, as LaBSE does; a student of it, and a live teacher, have it too.
    again = resolve_model(str(tmp_path / "export"))
    assert own_head(again).pooling == "pooler"
    assert torch.equal(load_pooler(again).weight, student.pooler.weight)
    np.testing.assert_allclose(
        StudentEncoder(TransformerStudent(again, pooling="own", normalize=None), again.path, 62).encode(
            TEXTS
        ),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )


def test_models_without_a_pooler_are_told_apart(make_model: MakeModel, make_teacher: MakeTeacher) -> None:
    with pytest.raises(BadInput, match="Take pooling=cls"):
        TeacherChoice(make_model("modernbert").path, pooling="pooler").finder.published()
    with pytest.raises(BadInput, match="Take pooling=cls"):
        student_of(make_teacher("qwen3", "last"), pooling="pooler")
    teacher = TeacherChoice(make_model("bert").path, pooling="pooler").finder.published()
    choice = TransformerChoice(keep=4, checkpoint=make_model("modernbert").path)
    assert choice.of(teacher).head.pooling == "cls"
    (remark,) = choice.of(teacher).remarks(40)
    assert "cls pooling" in remark and "student.pooling" in remark
    assert RecurrentChoice(unit=2).of(teacher).head.pooling == "cls"


def stock_head(base: Model, pooling: str, normalize: bool) -> FloatArray:
    """What stock sentence-transformers makes of a plain encoder with this head."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    transformer: Any = Transformer(base.path, max_seq_length=62)
    width = transformer.get_word_embedding_dimension()
    if pooling == "pooler":
        batch = transformer.tokenizer(
            TEXTS, padding=True, truncation=True, max_length=62, return_tensors="pt"
        )
        with torch.no_grad():
            vectors = transformer.auto_model.float().eval()(**batch).pooler_output
        return np.asarray(torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors)
    names = {"last": "lasttoken"}
    modules = [
        transformer,
        Pooling(width, pooling_mode=names.get(pooling, pooling)),
        *([Normalize()] * normalize),
    ]
    return np.asarray(SentenceTransformer(modules=modules, device="cpu").float().encode(TEXTS))


@each_row(
    ("pooling", "normalize"),
    [("cls", None), ("mean", True), ("max", False), ("last", True), ("pooler", None), ("pooler", True)],
)
def test_a_folder_without_modules_is_pooled_as_the_user_says(
    pooling: str, normalize: bool | None, make_model: MakeModel, workspace: Workspace
) -> None:
    """By the experiment's fields, and by the flags of whoever opens it by its name."""
    base = make_model("bert")
    choice = TeacherChoice(base.path, pooling, normalize)
    head = head_of(choice.finder.published())
    assert (head.pooling, head.normalize) == (pooling, bool(normalize))
    expected = stock_head(base, pooling, bool(normalize))
    vectors = load_sentence_transformer(choice.finder.published()).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    opened = open_model(base.path, workspace, pooling=pooling, normalize=normalize).encode(TEXTS)
    np.testing.assert_allclose(opened, expected, rtol=1e-4, atol=1e-5)
    remark = "".join(choice.finder.remarks(choice.finder.published()))
    assert ("no normalisation assumed" in remark) is (normalize is None)
    assert f"{pooling} pooling" not in remark


def test_a_head_is_stated_only_of_what_states_none(
    make_teacher: MakeTeacher, make_model: MakeModel, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = str(make_teacher("bert", "cls", True))
    assert find_model(stated, workspace, pooling="cls", normalize=True).identity() == (
        find_model(stated, workspace).identity()
    )
    with pytest.raises(BadInput, match="must be that of the model"):
        find_model(stated, workspace, pooling="mean")
    with pytest.raises(BadInput, match="pooling in"):
        find_model(make_model("bert").path, workspace, pooling="median")
    raw = find_model(make_model("bert").path, workspace, pooling="cls")
    assert raw.identity() != find_model(make_model("bert").path, workspace).identity()
    raw.open()
    said = capsys.readouterr().err
    assert "no normalisation assumed. `evaluate` takes --pooling (mean, cls, max, last, pooler)" in said
    assert "cls pooling" not in said


def test_the_teacher_that_a_stage_names_has_its_head(
    make_model: MakeModel, workspace: Workspace, tmp_path: Path
) -> None:
    """As ``teacher``, and by its own name; other models have theirs."""
    base = make_model("bert")
    (tmp_path / "corpus.txt").write_text("\n".join(sentences(60)))
    experiment = Experiment(
        teacher=TeacherChoice(base.path, "cls", True),
        data=(Sentences(corpus=str(tmp_path / "corpus.txt"), count=0, held_out=8),),
        budget=Budget(distil=16, evaluations=1),
        compute="float32",
    )
    setting = prepare(experiment, workspace, Embedding(local=True)).setting
    stage = run(mse.plan(mse.HyperParameters(batch_size=8), setting), workspace, where=Where("cpu", 1))
    expected = stock_head(base, "cls", True)
    for name in ("teacher", base.path):
        found = other_model(name, str(stage), workspace)
        np.testing.assert_allclose(found.open().encode(TEXTS), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(BadInput, match="--against teacher must go with a stage"):
        other_model("teacher", base.path, workspace)
    assert other_model(base.path, base.path, workspace) == find_model(base.path, workspace)
    student = other_model(str(stage), str(stage), workspace)
    assert student.form == "stage"
    with pytest.raises(BadInput, match="must be those of a published model"):
        find_model(str(stage), workspace, pooling="cls")


def test_what_is_assumed_is_said_once_and_what_contradicts_too(
    make_teacher: MakeTeacher,
    make_model: MakeModel,
    workspace: Workspace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raw = make_model("bert").path
    (tmp_path / "corpus.txt").write_text("\n".join(sentences(60)))
    experiment = Experiment(
        teacher=TeacherChoice(raw),
        data=(Sentences(corpus=str(tmp_path / "corpus.txt"), count=0, held_out=8),),
        compute="float32",
    )
    prepare(experiment, workspace, Embedding(local=True))
    said = [line for line in capsys.readouterr().err.splitlines() if "modules.json" in line]
    assert len(said) == 1 and "mean pooling and no normalisation assumed" in said[0]
    stated = make_teacher("bert", "cls", True)

    def remark(*given: Any) -> str:
        choice = TeacherChoice(str(stated), *given)
        return "".join(choice.finder.remarks(choice.finder.published()))

    assert remark() == remark("cls", True) == remark("cls") == ""
    contradiction = remark("mean", False)
    assert "mean pooling, not normalised, as given" in contradiction and "state cls pooling" in contradiction


def test_the_head_is_in_the_key_of_a_store_unless_the_folder_has_it(make_teacher: MakeTeacher) -> None:
    folder, texts = str(make_teacher("bert", "cls", True)), write_nothing()

    def key(**given: Any) -> str:
        return Store(texts, TeacherChoice(folder, **given).finder.published()).fingerprint

    assert (
        key() == key(pooling="cls") == key(normalize=True) == Store(texts, resolve_model(folder)).fingerprint
    )
    others = {key(pooling="mean"), key(pooling="max"), key(normalize=False), key(pooling="pooler")}
    assert len(others | {key()}) == 5


def write_nothing() -> Any:
    from stillhouse.values.data import TextTable

    return TextTable("0")


def test_a_contradiction_keeps_the_other_modules(make_model: MakeModel, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    modules = [Transformer(make_model("bert").path), Pooling(32, "mean"), Dense(32, 8), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "dense"), create_model_card=False)
    teacher = TeacherChoice(str(tmp_path / "dense"), "cls", False).finder.published()
    loaded = load_sentence_transformer(teacher)
    assert [type(part).__name__ for part in loaded] == ["Transformer", "Pooling", "Dense"]
    assert loaded.encode(TEXTS).shape == (4, 8) and loaded[1].pooling_mode == "cls"
    assert head_of(teacher).others == ("Dense",)
    with pytest.raises(BadInput, match="nothing after it but linear layers"):
        own_head(teacher)


def with_dense(encoder: Model, folder: Path, *dense: Any) -> Path:
    """A folder as stock sentence-transformers saves it, with dense layers between the mean and the norm."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    for layer in dense:
        if layer.linear.bias is not None:
            torch.nn.init.normal_(layer.linear.bias)
    modules = [Transformer(encoder.path, max_seq_length=40), Pooling(32, "mean"), *dense, Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder


def linear(inside: int, outside: int, bias: bool = False) -> Any:
    from sentence_transformers.sentence_transformer.modules import Dense

    return Dense(inside, outside, bias=bias, activation_function=torch.nn.Identity())


DENSE = {"one": [(32, 48, False)], "with a bias": [(32, 8, True)], "two": [(32, 48, True), (48, 32, True)]}
"""Shapes of dense layers without an activation."""


@pytest.mark.parametrize("layers", DENSE.values(), ids=DENSE)
def test_linear_layers_after_the_pooling_stay(
    layers: list[tuple[int, int, bool]], make_model: MakeModel, tmp_path: Path
) -> None:
    folder = with_dense(make_model("bert"), tmp_path / "dense", *(linear(*shape) for shape in layers))
    expected = stock_vectors(folder)
    student = student_of(folder)
    assert student.dim == expected.shape[1] and student.hidden_size == 32
    encoder = StudentEncoder(student, student.tokenizer.path, 40)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-4, atol=2e-5)
    export_student(student, student.tokenizer.path, 40, tmp_path / "export")
    assert modules_in(tmp_path / "export") == ["Transformer", "Pooling", "Dense", "Normalize"]
    np.testing.assert_allclose(stock_vectors(tmp_path / "export"), expected, rtol=1e-4, atol=2e-5)
    teacher = TeacherChoice(str(folder)).finder.published()
    assert (
        head_of(teacher).dense and head_of(TeacherChoice(str(tmp_path / "export")).finder.published()).dense
    )
    assert str(head_of(teacher)) == "mean pooling, a dense layer, vectors of length 1"
    assert not TransformerChoice().of(teacher).remarks(40)
    live = TransformerStudent(teacher, pooling="own", normalize=None)
    vectors = StudentEncoder(live, live.tokenizer.path, 40).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=2e-5)


def test_a_student_goes_on_from_the_export_of_one_with_a_kept_projection(
    make_teacher: MakeTeacher, workspace: Workspace, tmp_path: Path
) -> None:
    teacher = TeacherChoice(str(make_teacher("bert", "mean", True))).finder.published()
    first = TransformerStudent(teacher, (0, 3), projection=8, freeze_words=True)
    export_student(first, first.tokenizer.path, 40, tmp_path / "first")
    expected = StudentEncoder(first, first.tokenizer.path, 40).encode(TEXTS)
    spec = TransformerChoice(checkpoint=str(tmp_path / "first"), layers="all").of(teacher).spec(0)
    again = spec.build()
    np.testing.assert_allclose(
        StudentEncoder(again, again.tokenizer.path, 40).encode(TEXTS), expected, atol=2e-5
    )
    assert again.dense.weight.requires_grad
    without = TransformerChoice(checkpoint=str(tmp_path / "first"), keep=2, dense=False).of(teacher).spec(0)
    assert without.build().dim == 32 and fingerprint(spec) != fingerprint(without)

    both: TransformerStudent = spec.replace(projection=16, seed=3).build()
    assert both.dim == 16 and both.projection is not None and both.projection.in_features == 8
    encoder = StudentEncoder(both, both.tokenizer.path, 40)
    export_student(both, both.tokenizer.path, 40, tmp_path / "both")
    assert modules_in(tmp_path / "both") == ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    np.testing.assert_allclose(stock_vectors(tmp_path / "both"), encoder.encode(TEXTS), atol=2e-5)
    rebuilt: Any = rebuild(describe(spec.replace(projection=16, seed=3)))
    np.testing.assert_allclose(
        StudentEncoder(rebuilt, both.tokenizer.path, 40).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6
    )


def test_dense_layers_that_a_student_cannot_have_are_named(make_model: MakeModel, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense

    folder = with_dense(make_model("bert"), tmp_path / "tanh", linear(32, 32), Dense(32, 8))
    teacher = TeacherChoice(str(folder)).finder.published()
    assert head_of(teacher).others == ("Dense", "Dense") and not head_of(teacher).dense
    (remark,) = TransformerChoice().of(teacher).remarks(40)
    assert remark.startswith("note: the student has no Dense, which ") and "tanh has" in remark
    with pytest.raises(BadInput, match=r"student.dense = true needs a checkpoint.*Leave student.dense out"):
        TransformerChoice(dense=True).of(teacher).spec(0)

    folder = with_dense(make_model("bert"), tmp_path / "plain", linear(32, 8))
    plain = TeacherChoice(str(folder)).finder.published()
    (remark,) = RecurrentChoice(unit=2).of(plain).remarks(40)
    assert "the student has no Dense, which " in remark
    assert StaticChoice(start="contextless").of(plain).remarks(40)
    assert not StaticChoice(pooling="mean").of(plain).remarks(40)


def test_poolings_that_no_student_has_fall_back_and_say_so(make_teacher: MakeTeacher) -> None:
    folder = make_teacher("bert", "weightedmean")
    teacher = resolve_model(str(folder))
    assert head_of(teacher).pooling == "weightedmean"
    choice = TransformerChoice()
    assert choice.of(teacher).head.pooling == "mean"
    (remark,) = choice.of(teacher).remarks(40)
    assert "weightedmean" in remark
    with pytest.raises(BadInput, match="weightedmean"):
        own_head(teacher)


@pytest.mark.parametrize("normalize", [True, False])
def test_static_and_recurrent_students_take_the_norm_and_what_they_can_of_the_pooling(
    normalize: bool, make_teacher: MakeTeacher
) -> None:
    folder = make_teacher("bert", "cls", normalize)
    recurrent = student_of(folder, RecurrentChoice(unit=2))
    static = student_of(folder, StaticChoice(start="contextless"))
    assert (recurrent.pooling, recurrent.normalize, static.normalize) == ("cls", normalize, normalize)
    model = resolve_model(str(folder))
    assert StaticChoice(start="contextless").of(model).spec(0).kwargs["pooling"] == "cls"
    turned = student_of(folder, RecurrentChoice(unit=2, pooling="max", normalize=not normalize))
    assert (turned.pooling, turned.normalize) == ("max", not normalize)
    with pytest.raises(BadInput, match=r"student\.pooling in"):
        RecurrentChoice(unit=2, pooling="pooler")
    with pytest.raises(BadInput, match=r"student\.pooling in"):
        TransformerChoice(pooling="first")


def test_a_student_of_another_checkpoint_pools_as_the_teacher(
    make_teacher: MakeTeacher, make_model: MakeModel
) -> None:
    teacher = TeacherChoice(str(make_teacher("bert", "max", True))).finder.published()
    choice = TransformerChoice(checkpoint=str(make_teacher("mpnet", "cls", length=24)))
    student = choice.of(teacher).spec(0).build()
    assert (student.pooling, student.normalize) == ("max", True)
    assert choice.of(teacher).length(40) == 24  # as much as its checkpoint reads
    assert "24 tokens" in choice.of(teacher).remarks(40)[0]
    assert replace(choice, max_length=30).of(teacher).length(40) == 30
    assert TransformerChoice().of(teacher).length(40) == 40


def test_lengths_are_those_of_the_folder(
    make_teacher: MakeTeacher, make_model: MakeModel, tmp_path: Path
) -> None:
    teacher = TeacherChoice(str(make_teacher("bert", "cls", length=24))).finder.published()
    assert Experiment(teacher=TeacherChoice(teacher.path)).of(teacher).lengths == (24,)
    assert Experiment(teacher=TeacherChoice(teacher.path), max_length=16).of(teacher).lengths == (16,)
    setting = Experiment(student=TransformerChoice(max_length=12)).of(teacher).sketch()
    assert setting.max_length == 12
    shutil.copytree(make_model("roberta").path, tmp_path / "raw")
    raw = resolve_model(str(tmp_path / "raw"))
    assert published_length(raw) == 62  # 64 positions, less the two before the first token
    config = Path(raw.path) / "config.json"
    config.write_text(
        config.read_text().replace('"max_position_embeddings": 64', '"max_position_embeddings": 80')
    )
    assert published_length(raw) == 78, "a configuration that has changed is read again"


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_for_the_last_token_of_a_decoder(
    side: str, make_teacher: MakeTeacher
) -> None:
    student = student_of(make_teacher("qwen3", "last", True)).eval()
    ids = torch.tensor([[0, 20, 8, 2]])
    mask, pads = torch.ones_like(ids), torch.ones(1, 9, dtype=torch.int64)
    order = (1, 0) if side == "left" else (0, 1)
    padded = torch.cat([(ids, pads)[place] for place in order], dim=1)
    padded_mask = torch.cat([(mask, pads * 0)[place] for place in order], dim=1)
    with torch.no_grad():
        alone = student(Tokens(ids, mask)).embedding_BD
        found = student(Tokens(padded, padded_mask)).embedding_BD
        reads_the_words = student(Tokens(ids.flip(1), mask)).embedding_BD
    torch.testing.assert_close(found, alone, rtol=0, atol=2e-6)
    assert (reads_the_words - alone).abs().max() > 0.01


@pytest.mark.parametrize(
    ("kind", "pooling", "normalize", "int8"),
    [("qwen3", "last", True, False), ("bert", "pooler", False, True)],
)
def test_onnx_exports_have_the_same_head(
    kind: str,
    pooling: str,
    normalize: bool,
    int8: bool,
    make_teacher: MakeTeacher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if int8:  # Traced in a tenth of the time; test_formats.py quantises what is exported.
        trace(monkeypatch)
    folder = make_teacher(kind, "raw" if pooling == "pooler" else pooling, normalize)
    student = student_of(folder, TransformerChoice(keep=1, pooling=pooling))
    expected = StudentEncoder(student, student.tokenizer.path, 40).encode(TEXTS)
    export_onnx(student, student.tokenizer.path, 40, tmp_path / "onnx", int8=int8)
    found = OnnxEncoder(tmp_path / "onnx").encode(TEXTS)
    assert cosines(found, expected).min() > (0.95 if int8 else 0.9999)
    lengths = np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=0.1 if int8 else 1e-3)


@pytest.mark.parametrize("kind", ["bert", "qwen3"])
def test_raw_vectors_keep_their_length_in_bfloat16(kind: str, make_teacher: MakeTeacher) -> None:
    student = student_of(make_teacher(kind, "last", False))
    plain = StudentEncoder(student, student.tokenizer.path, 40).encode(TEXTS)
    short = StudentEncoder(student, student.tokenizer.path, 40, autocast="bfloat16").encode(TEXTS)
    assert np.linalg.norm(plain, axis=1).min() > 2
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), np.linalg.norm(plain, axis=1), rtol=0.02)


def test_a_regression_normalises_both_sides_or_neither(make_teacher: MakeTeacher) -> None:
    """Of a teacher without a norm, a student with one cannot reach the vectors as they are."""
    cases = [(True, None, False), (False, None, False), (False, True, True), (True, False, False)]
    for theirs, ours, expected in cases:
        teacher = TeacherChoice(str(make_teacher("bert", "cls", theirs))).finder.published()
        experiment = Experiment(
            teacher=TeacherChoice(teacher.path), student=TransformerChoice(normalize=ours)
        )
        setting = replace(experiment.of(teacher).sketch(), teacher=teacher)
        for method in (mse, pkd):
            stage = method.plan(method.HyperParameters(), setting)
            distil = next(stage.chain())
            assert distil.objective.kwargs["normalize"] is expected, (theirs, ours, method)


def test_a_trained_student_is_reopened_with_the_head_of_its_base(make_model: MakeModel) -> None:
    base = with_head(resolve_model(make_model("bert").path), "cls", True)
    from stillhouse.core.identity import spec

    description = json.loads(json.dumps(describe(spec(TransformerStudent, base=base, pooling="own"))))
    again: Any = rebuild(description)
    assert again.pooling == "cls" and again.tokenizer.normalize is True


def test_a_decoder_saved_as_a_language_model_is_pooled_by_its_last_token(
    make_model: MakeModel, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(make_model("qwen3").path, tmp_path / "lm"))
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3ForCausalLM"]}))
    assert head_of(resolve_model(str(folder))).pooling == "last"
    expected = stock_vectors(folder)
    student = student_of(folder)
    found = StudentEncoder(student, student.tokenizer.path, 40).encode(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def test_a_choice_can_freeze_the_word_vectors(make_model: MakeModel) -> None:
    folder = Path(make_model("bert").path)
    for freeze in (True, False):
        student = student_of(folder, freeze_words=freeze)
        words = student.backbone.get_input_embeddings().weight
        assert words.requires_grad is not freeze
        assert student.backbone.embeddings.position_embeddings.weight.requires_grad
