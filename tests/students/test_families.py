"""Today's families of embedding models, tiny and random, as teachers and as what students start from.

Each teacher has the modules and the prompts with which models of its family are published.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY, Prompts
from stillhouse.core.types import FloatArray, encode_as
from stillhouse.corpora.tables import write_texts
from stillhouse.experiments.preparation import teacher_store
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.formats import write_format
from stillhouse.students.head import published_length
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.store import open_store
from stillhouse.values.data import TORCH, Model

MakeModel = Callable[[str], Model]
TEXTS = ["The river.", "a model of the river, long enough to be cut in two", "z", "the MODEL, 0 1 2 3 4"]


@dataclass(frozen=True)
class Family:
    """How models of a family are published.

    Attributes:
        kind: The architecture.
        pooling: Pooling by stock's name.
        prompts: The folder's prompts.
        default: The folder's ``default_prompt_name``.
        include_prompt: Whether the prompt's tokens are pooled.
        dense: Widths of dense layers after the pooling.
    """

    kind: str
    pooling: str = "mean"
    prompts: tuple[tuple[str, str], ...] = ()
    default: str | None = None
    include_prompt: bool = True
    dense: tuple[int, ...] = ()
    normalize: bool = True


FAMILIES = {
    "bge": Family("bert", "cls", (("query", "the model of a query: "), ("document", ""))),
    "instructor": Family(
        "bert", prompts=(("query", "query of the river: "), ("document", "text: ")), include_prompt=False
    ),
    "mpnet": Family("mpnet", normalize=False),
    "e5": Family("xlm-roberta", prompts=(("query", "query: "), ("document", "passage: "))),
    "nomic": Family(
        "modernbert",
        "cls",
        (("query", "search query: "), ("document", "search document: "), ("sts", "a: ")),
        default="sts",
    ),
    "qwen3": Family("qwen3", "lasttoken", (("query", "instruct: the river\nquery:"), ("document", ""))),
    "embeddinggemma": Family(
        "gemma3",
        prompts=(("query", "task: search | query: "), ("document", "title: none | text: "), ("sts", "sts: ")),
        dense=(48, 32),
    ),
    "embeddinggemma2": Family("embedding-gemma2", prompts=(("query", "task: "), ("document", "text: "))),
}


@pytest.fixture(scope="session")
def make_family(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a family's teacher as stock sentence-transformers saves it."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

        if name not in made:
            family, made[name] = FAMILIES[name], tmp_path_factory.mktemp(name)
            modules: list[Any] = [Transformer(make_model(family.kind).path, max_seq_length=40)]
            modules += [Pooling(32, family.pooling, include_prompt=family.include_prompt)]
            widths = zip((32, *family.dense), family.dense, strict=False)
            flat: Any = {"bias": False, "activation_function": torch.nn.Identity()}
            modules += [Dense(*width, **flat) for width in widths]
            modules += [Normalize()] if family.normalize else []
            stock = SentenceTransformer(
                modules=modules,
                device="cpu",
                prompts=dict(family.prompts) or None,
                default_prompt_name=family.default,
            )
            stock.save(str(made[name]), create_model_card=False)
        return made[name]

    return make


def stock_vectors(folder: Path) -> dict[str, FloatArray]:
    """What stock sentence-transformers makes of the texts in each role."""
    from sentence_transformers import SentenceTransformer

    stock: Any = SentenceTransformer(str(folder), device="cpu").float()
    return {
        QUERY: np.asarray(stock.encode_query(TEXTS)),
        DOCUMENT: np.asarray(stock.encode_document(TEXTS)),
        PLAIN: np.asarray(stock.encode(TEXTS)),
    }


def lowest_cosine(first: FloatArray, second: FloatArray) -> float:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(((first * second).sum(axis=1) / lengths).min())


def stored(workspace: Workspace, teacher: Model, role: str, runtime: str = TORCH) -> FloatArray:
    """Embed the texts in a role, through a store of the workspace."""
    return stored_in(workspace, teacher, [role], runtime)[role]


def stored_in(
    workspace: Workspace, teacher: Model, roles: Iterable[str], runtime: str = TORCH
) -> dict[str, FloatArray]:
    """Embed the texts in each role, by a teacher that is loaded once."""
    texts, stores = write_texts(workspace, "texts", TEXTS), {}
    length = published_length(teacher)
    for role in roles:
        (store,) = teacher_store(texts, teacher, role, lengths=[length], compute="float32").stores
        stores[role] = replace(store, dtype="float32", runtime=runtime)
    build_stores(workspace, list(dict.fromkeys(stores.values())), local=True)
    readers = {role: open_store(workspace, store) for role, store in stores.items()}
    return {role: np.asarray(reader.gather(reader.rows)) for role, reader in readers.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_store_has_the_vectors_of_stock_queries_and_documents(
    name: str, make_family: Callable[[str], Path], workspace: Workspace
) -> None:
    expected = stock_vectors(make_family(name))
    teacher = TeacherChoice(str(make_family(name))).finder.published()
    found = stored_in(workspace, teacher, expected)
    for role in expected:
        assert lowest_cosine(found[role], expected[role]) > 0.9999, role
        np.testing.assert_allclose(found[role], expected[role], rtol=1e-3, atol=1e-3)
    # Roles that are swapped would be noticed.
    prompts = prompts_of(teacher)
    different = {vectors.tobytes() for vectors in found.values()}
    assert len({prompts.of(role) for role in expected}) == len(different)
    for one, other in ((QUERY, DOCUMENT), (DOCUMENT, QUERY), (QUERY, PLAIN)):
        if prompts.of(one) != prompts.of(other):
            assert lowest_cosine(found[one], expected[other]) < 0.999


@pytest.mark.parametrize(
    "name",
    [
        # Those of BERT and of each pooling are also exported in test_head.py and test_conformance.py.
        pytest.param(name, marks=pytest.mark.long if name in ("bge", "instructor", "nomic") else ())
        for name in FAMILIES
    ],
)
def test_an_exported_student_has_its_own_prompts_in_stock_too(
    name: str, make_family: Callable[[str], Path], tmp_path: Path
) -> None:
    teacher = TeacherChoice(str(make_family(name))).finder.published()
    prompts = Prompts("query of a student: ", "its text: ", "nothing: ")
    choice = TransformerChoice(layers=(0, 3), prompts=prompts)
    if name == "embeddinggemma2":
        with pytest.raises(BadInput, match="keep all of its layers"):
            choice.of(teacher).spec(0).build()
        choice = TransformerChoice(keep=4, prompts=prompts)
    student: Any = choice.of(teacher).spec(0).build()
    encoder = StudentEncoder(student, student.tokenizer.path, 40, prompts=prompts)
    assert write_format("sentence-transformers", encoder, tmp_path / "export", TEXTS) > 0.9999
    expected = stock_vectors(tmp_path / "export")
    for role in expected:
        assert lowest_cosine(encode_as(encoder, role, TEXTS), expected[role]) > 0.9999
    assert lowest_cosine(encoder.encode_query(TEXTS), expected[DOCUMENT]) < 0.999
    again = TeacherChoice(str(tmp_path / "export")).finder.published()
    assert prompts_of(again) == prompts and again.prompts == prompts


def test_all_layers_and_the_dense_ones_are_the_teacher(make_family: Callable[[str], Path]) -> None:
    folder = make_family("embeddinggemma")
    student: Any = TransformerChoice(keep=4).of(TeacherChoice(str(folder)).finder.published()).spec(0).build()
    encoder = StudentEncoder(student, student.tokenizer.path, 40)
    assert lowest_cosine(encoder.encode(TEXTS), stock_vectors(folder)[PLAIN]) > 0.9999


@pytest.mark.parametrize("name", ["e5", "embeddinggemma", "mpnet"])
def test_a_shorter_vector_has_length_one_where_the_whole_one_has(
    name: str, make_family: Callable[[str], Path], workspace: Workspace
) -> None:
    folder = make_family(name)
    whole = stock_vectors(folder)[DOCUMENT]
    expected = whole[:, :8]
    if FAMILIES[name].normalize:
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    teacher = TeacherChoice(str(folder), dimension=8).finder.published()
    np.testing.assert_allclose(stored(workspace, teacher, DOCUMENT), expected, rtol=1e-3, atol=1e-4)
    loaded: Any = load_sentence_transformer(teacher)
    np.testing.assert_allclose(loaded.encode_document(TEXTS), expected, rtol=1e-3, atol=1e-4)
    assert loaded.get_embedding_dimension() == 8
    assert (
        TeacherChoice(str(folder), dimension=32).finder.published()
        == TeacherChoice(str(folder)).finder.published()
    )
    with pytest.raises(BadInput, match="dimensions of the teacher"):
        TeacherChoice(str(folder), dimension=33).finder.published()


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_openvino_gives_the_vectors_of_pytorch_or_says_why_not(
    name: str, make_family: Callable[[str], Path], workspace: Workspace
) -> None:
    teacher = TeacherChoice(str(make_family(name))).finder.published()
    if not FAMILIES[name].include_prompt:
        with pytest.raises(BadInput, match=r"leaves the prompt's tokens out.*--teacher-runtime torch"):
            stored(workspace, teacher, QUERY, runtime="openvino")
        return
    expected = stored(workspace, teacher, QUERY)
    found = stored(workspace, teacher, QUERY, runtime="openvino")
    assert lowest_cosine(found, expected) > 0.9999
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


LONG = [f"the {word} begins here{' and a model' * 30} ends at the sea" for word in ("river", "model")]


def altered(folder: Path, file: str, **settings: Any) -> Path:
    """The copy of a folder with other settings in one of its files."""
    copy = folder.with_name(f"{folder.name}-{'-'.join(settings)}")
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    stated = json.loads((copy / file).read_text()) if (copy / file).exists() else {}
    (copy / file).write_text(json.dumps(stated | settings))
    return copy


def test_a_teacher_that_cuts_on_the_left_has_the_ends_in_store_and_export(
    make_family: Callable[[str], Path], workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TEXTS", LONG)
    folder = altered(make_family("mpnet"), "tokenizer_config.json", truncation_side="left")
    expected = stock_vectors(folder)[PLAIN]
    assert lowest_cosine(expected, stock_vectors(make_family("mpnet"))[PLAIN]) < 0.999
    teacher = TeacherChoice(str(folder)).finder.published()
    assert lowest_cosine(stored(workspace, teacher, PLAIN), expected) > 0.99999
    student: Any = TransformerChoice(keep=4).of(teacher).spec(0).build()
    encoder = StudentEncoder(student, student.tokenizer.path, 40)
    assert lowest_cosine(encoder.encode(LONG), expected) > 0.99999
    # A graph of such a teacher is compared in test_onnx_stock.py.
    assert write_format("sentence-transformers", encoder, tmp_path / "export", LONG) > 0.9999
    written = json.loads((tmp_path / "export" / "tokenizer.json").read_text())["truncation"]
    assert (written["max_length"], written["direction"]) == (40, "Left")
    config = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text())
    assert (config["model_max_length"], config["truncation_side"]) == (40, "left")
