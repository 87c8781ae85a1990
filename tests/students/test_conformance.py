"""One folder, one model: what a folder says holds in every path that runs it, or is refused by its name.

Each layout is a tiny random model. Its vectors in a store, as a live teacher, in an evaluation and in every
export are compared with those of stock sentence-transformers in float32. `docs/howto/conformance.md` is the
table of what is expected here.
"""

import functools
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.types import FloatArray, encode_as
from stillhouse.corpora.tables import write_texts
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.evaluation.retrieval import unit
from stillhouse.evaluation.search.exact import search
from stillhouse.experiments.preparation import teacher_store
from stillhouse.losses.pair_head import Joiner
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.asymmetric import export_asymmetric
from stillhouse.students.export.compact import write_compact
from stillhouse.students.export.folder_modules import ONNX, ONNX_INT8, STOCK
from stillhouse.students.export.formats import write_format
from stillhouse.students.export.tower_folders import export_towers
from stillhouse.students.head import published_length
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.towers import SimpleCNN
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.store import open_store
from stillhouse.training.models import find_model
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "conformance.md"
STATED, SETTINGS = "config_sentence_transformers.json", "sentence_bert_config.json"
TOKENIZER = "tokenizer_config.json"
LONG = [f"the {word} begins here{' and a model' * 30} ends at the {word} 9" for word in ("river", "z")]
TEXTS = [
    "The RIVER.",
    "z",
    "a model of the river, 0 1 2 3 4",
    "Ünï 漢字 🙂 [SEP] river",
    "<new> river",
    *LONG,
]


@dataclass(frozen=True)
class Layout:
    """A way in which a folder may be laid out.

    Attributes:
        says: What is particular to it, for the table.
        of: The layout that it differs from in this alone: its vectors or rankings must be others.
        kind: The architecture.
        pooling: Pooling by stock's name, or several.
        after: Makes the modules after the pooling.
        prompts: Prompts of the folder.
        edits: Settings that are changed, by file.
        alter: Changes the saved folder further.
        refused: What a refusal by every path says; empty where it is honoured.
        live: What the refusal of a live or fine-tuned teacher says, which needs its states.
    """

    says: str
    of: str = ""
    kind: str = "bert"
    pooling: str | tuple[str, ...] = "mean"
    after: Callable[[], list[Any]] = list
    prompts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    include_prompt: bool = True
    edits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alter: Callable[[Path], None] | None = None
    refused: str = ""
    live: str = ""


def normalize() -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Normalize

    return [Normalize()]


def dense(*widths: int, activation: Any = None, **settings: Any) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Dense

    torch.manual_seed(1)
    kind = activation or torch.nn.Identity
    pairs = zip((32, *widths), widths, strict=False)
    return [Dense(*pair, activation_function=kind(), **settings) for pair in pairs]


def layer_norm() -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    made = LayerNorm(32)
    torch.nn.init.uniform_(made.norm.weight)
    return [made]


def dropout() -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Dropout

    return [Dropout(0.5)]


def saved_again(folder: Path, **options: Any) -> None:
    """Save the weights of the transformer in another way."""
    from transformers import AutoModel

    dtype = options.pop("dtype", torch.float32)
    model = AutoModel.from_pretrained(folder, dtype=dtype)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, **options)


def in_a_folder(folder: Path) -> None:
    """Move the transformer into a folder of its own, as the first releases of sentence-transformers did."""
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [each for each in folder.iterdir() if each.is_file()]:
        if file.name not in ("modules.json", STATED):
            file.rename(inner / file.name)
    set_module(folder, 0, path="0_Transformer")


def set_module(folder: Path, place: int, **values: str) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[place] |= values
    (folder / "modules.json").write_text(json.dumps(modules))


def plain(folder: Path) -> None:
    for name in ("modules.json", STATED, SETTINGS):
        (folder / name).unlink(missing_ok=True)


def edit_tokenizer(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    change(tokenizer)
    file.write_text(json.dumps(tokenizer))


def cased(folder: Path) -> None:
    edit_tokenizer(folder, lambda tokenizer: tokenizer.update(normalizer=None))


def cut_left_by_itself(folder: Path) -> None:
    cut = {"direction": "Left", "max_length": 40, "strategy": "LongestFirst", "stride": 0}
    edit_tokenizer(folder, lambda tokenizer: tokenizer.update(truncation=cut))


def added_token(folder: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    tokenizer.add_tokens(["<new>"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model.resize_token_embeddings(len(tokenizer))
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')


def router(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    sides = [list(SentenceTransformer(str(folder), device="cpu")) for _ in range(2)]
    shutil.rmtree(folder)
    routes = Router.for_query_document(query_modules=sides[0], document_modules=sides[1])
    SentenceTransformer(modules=[routes], device="cpu").save(str(folder), create_model_card=False)


def asymmetric(folder: Path) -> None:
    """A student of two layers for the queries, and the model for the documents."""
    teacher = TeacherChoice(str(folder)).finder.published()
    queries = StudentEncoder(TransformerStudent(teacher, layers=(0, 2)), folder, 40)
    routed = folder.with_name("routed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stillhouse.students.export.asymmetric.why_not", lambda student, form: "no graph")
        export_asymmetric(queries, load_sentence_transformer(teacher), prompts_of(teacher), routed, TEXTS)
    shutil.rmtree(folder)
    routed.rename(folder)


def compact(folder: Path) -> None:
    """A student that repeats a layer, whose tied weights the folder has once."""
    base = folder.rename(folder.with_name("base"))
    student = RecurrentStudent(TeacherChoice(str(base)).finder.published(), unit=1, repeats=2)
    write_compact(student, base, 40, folder)


def towers(folder: Path) -> None:
    """A convolution over words of its own for each side, and the joiner of their vectors."""
    shutil.rmtree(folder)
    words = folder.with_name("words")
    write_vocabulary("the model of a river".split(), words, dim=6)
    student = SimpleCNN(Model("words", path=str(words)), filters=5, width=3, train_words=True)
    export_towers(student, Joiner(claim_dim=5, kind="bilinear"), 12, folder)


def table(folder: Path, direction: str = "", **tensors: Any) -> None:
    """Replace the model by a table of token vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    if direction:
        tokenizer.enable_truncation(12, direction=direction)
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(tokenizer.get_vocab_size(), 32, generator=random)
    shutil.rmtree(folder)
    module = StaticEmbedding(tokenizer, embedding_weights=rows)
    SentenceTransformer(modules=[module, *normalize()], device="cpu").save(
        str(folder), create_model_card=False
    )


def model2vec(folder: Path) -> None:
    """A table as model2vec saves it: rows that several tokens share, and a weight for each token."""
    from safetensors.torch import load_file, save_file

    table(folder)
    rows = load_file(folder / "model.safetensors")["embedding.weight"]
    mapping = torch.arange(len(rows)) // 2
    tensors = {"embeddings": rows[: len(rows) // 2 + 1], "mapping": mapping, "weights": torch.rand(len(rows))}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')


NOT_LIVE = "live or fine-tuned teacher"
CUT = {SETTINGS: {"max_seq_length": 40}}
QUERIES = {"query": "query: ", "document": "the text: "}
LAYOUTS = {
    "mean": Layout("mean pooling, vectors of length 1", after=normalize),
    "plain": Layout("a Hugging Face encoder without `modules.json`", alter=plain),
    "0_Transformer": Layout("the transformer in `0_Transformer`", after=normalize, alter=in_a_folder),
    "sharded": Layout(
        "weights in several files", after=normalize, alter=partial(saved_again, max_shard_size="20KB")
    ),
    "bfloat16": Layout(
        "weights in bfloat16", of="mean", after=normalize, alter=partial(saved_again, dtype=torch.bfloat16)
    ),
    "float16": Layout(
        "weights in float16", of="mean", after=normalize, alter=partial(saved_again, dtype=torch.float16)
    ),
    "cls": Layout("`cls` pooling", of="mean", pooling="cls"),
    "max": Layout("`max` pooling", of="mean", pooling="max"),
    "sqrt": Layout("`mean_sqrt_len_tokens` pooling", pooling="mean_sqrt_len_tokens", live=NOT_LIVE),
    "weighted": Layout("`weightedmean` pooling", of="mean", pooling="weightedmean", live=NOT_LIVE),
    "last": Layout("`lasttoken` pooling of an encoder", of="mean", pooling="lasttoken"),
    "twofold": Layout("two poolings, joined", of="mean", pooling=("cls", "mean"), live=NOT_LIVE),
    "prompts": Layout("prompts for queries and documents", of="mean", after=normalize, prompts=QUERIES),
    "default prompt": Layout(
        "a default prompt",
        of="mean",
        after=normalize,
        prompts={"query": "a query: ", "document": "the model: ", "sts": "z: "},
        default="sts",
    ),
    "include_prompt": Layout(
        "`include_prompt: false`",
        of="prompts",
        after=normalize,
        prompts=QUERIES,
        include_prompt=False,
        live="pool the tokens of its prompt",
    ),
    "dense": Layout(
        "a dense layer with tanh",
        of="mean",
        after=partial(dense, 24, activation=torch.nn.Tanh),
        live=NOT_LIVE,
    ),
    "two dense": Layout(
        "two linear layers and a norm", of="mean", after=lambda: [*dense(48, 24), *normalize()]
    ),
    "residual": Layout(
        "a dense layer with `use_residual`",
        of="mean",
        after=partial(dense, 32, use_residual=True),
        live=NOT_LIVE,
    ),
    "layer norm": Layout("a LayerNorm module", of="mean", after=layer_norm, live=NOT_LIVE),
    "dropout": Layout("a Dropout module, which does nothing", after=dropout),
    "roberta": Layout("RoBERTa", kind="roberta"),
    "xlm-roberta": Layout("XLM-RoBERTa with prompts", kind="xlm-roberta", after=normalize, prompts=QUERIES),
    "mpnet": Layout("MPNet", kind="mpnet"),
    "distilbert": Layout("DistilBERT", kind="distilbert"),
    "modernbert": Layout("ModernBERT", kind="modernbert", pooling="cls"),
    "t5": Layout("the encoder of T5", kind="t5", live="must be an encoder with layers"),
    "qwen3": Layout("Qwen3, the last token", kind="qwen3", pooling="lasttoken", after=normalize),
    "qwen3 left": Layout(
        "Qwen3 with `padding_side: left`",
        kind="qwen3",
        pooling="lasttoken",
        after=normalize,
        edits={TOKENIZER: {"padding_side": "left"}},
    ),
    "no pad token": Layout(
        "a decoder without a token for padding",
        kind="qwen3",
        pooling="lasttoken",
        after=normalize,
        edits={TOKENIZER: {"pad_token": None}},
    ),
    "gemma3": Layout(
        "Gemma 3 in both directions, two linear layers",
        kind="gemma3",
        after=lambda: [*dense(48, 32, bias=False), *normalize()],
    ),
    "length": Layout(
        "`max_seq_length`", of="mean", after=normalize, edits={SETTINGS: {"max_seq_length": 12}}
    ),
    "null length": Layout(
        "`max_seq_length: null`, the length in `model_max_length`",
        of="mean",
        after=normalize,
        edits={SETTINGS: {"max_seq_length": None}, TOKENIZER: {"model_max_length": 12}},
    ),
    "longer": Layout(
        "`max_seq_length` above `model_max_length`",
        of="null length",
        after=normalize,
        edits={SETTINGS: {"max_seq_length": 30}, TOKENIZER: {"model_max_length": 12}},
    ),
    "left": Layout(
        "`truncation_side: left`", of="mean", after=normalize, edits={TOKENIZER: {"truncation_side": "left"}}
    ),
    "left by itself": Layout(
        "a `tokenizer.json` that cuts on the left", of="mean", after=normalize, alter=cut_left_by_itself
    ),
    "left with prompts": Layout(
        "`truncation_side: left` and prompts",
        of="prompts",
        after=normalize,
        prompts=QUERIES,
        edits={TOKENIZER: {"truncation_side": "left"}},
    ),
    "cased": Layout("a tokenizer that tells case apart", of="mean", after=normalize, alter=cased),
    "lower": Layout(
        "`do_lower_case`", of="cased", after=normalize, edits={SETTINGS: {"do_lower_case": True}}, alter=cased
    ),
    "added token": Layout("added tokens", of="mean", after=normalize, alter=added_token),
    "truncate_dim": Layout(
        "`truncate_dim`",
        of="mean",
        after=normalize,
        edits={STATED: {"truncate_dim": 16}},
        live="keep all of its dimensions",
    ),
    "truncate_dim left": Layout(
        "`truncate_dim` and `truncation_side: left`",
        of="left",
        edits={STATED: {"truncate_dim": 16}, TOKENIZER: {"truncation_side": "left"}},
        live="keep all of its dimensions",
    ),
    "dot, length 1": Layout(
        "`similarity_fn_name: dot`, vectors of length 1",
        after=normalize,
        edits={STATED: {"similarity_fn_name": "dot"}},
    ),
    "dot": Layout(
        "`similarity_fn_name: dot`, not normalised",
        of="sqrt",
        pooling="mean_sqrt_len_tokens",
        edits={STATED: {"similarity_fn_name": "dot"}},
        refused="similarity_fn_name",
    ),
    "manhattan": Layout(
        "`similarity_fn_name: manhattan`",
        of="mean",
        after=normalize,
        edits={STATED: {"similarity_fn_name": "manhattan"}},
        refused="similarity_fn_name",
    ),
    "padding left": Layout(
        "`padding_side: left` with absolute positions",
        of="mean",
        after=normalize,
        edits={TOKENIZER: {"padding_side": "left"}},
        refused="padding_side: left",
    ),
    "static": Layout("a table of token vectors", alter=table, live=NOT_LIVE),
    "static right": Layout(
        "a table that cuts texts", of="static", alter=partial(table, direction="right"), live=NOT_LIVE
    ),
    "static left": Layout(
        "a table that cuts texts on the left",
        of="static right",
        alter=partial(table, direction="left"),
        live=NOT_LIVE,
    ),
    "model2vec": Layout(
        "model2vec with `mapping` and `weights`", of="static", alter=model2vec, live=NOT_LIVE
    ),
    "router": Layout("a Router", alter=router, refused="is a Router"),
    "asymmetric": Layout(
        "an asymmetric export, a Router of student and teacher",
        of="router",
        after=normalize,
        prompts=QUERIES,
        alter=asymmetric,
        refused="is a Router",
    ),
    "compact": Layout("a compact export", alter=compact, refused="is a compact export"),
    "towers": Layout("an export of two towers", alter=towers, refused="is an export of two towers"),
    "adapter": Layout("a LoRA adapter", alter=adapter, refused=r"adapter.*merge_and_unload"),
    "sparse": Layout(
        "a sparse encoder",
        edits={STATED: {"model_type": "SparseEncoder"}},
        refused="model_type: SparseEncoder",
    ),
    "bag of words": Layout(
        "a module that is not known",
        alter=lambda f: set_module(f, 1, type="sentence_transformers.models.BoW"),
        refused="the module BoW",
    ),
    "asym": Layout(
        "Asym, the Router of old releases",
        alter=lambda f: set_module(f, 1, type="sentence_transformers.models.Asym"),
        refused="the module Asym",
    ),
    "unknown key": Layout(
        "a setting that is not known", edits={STATED: {"whitening": 64}}, refused="whitening"
    ),
    "arguments": Layout(
        "`tokenizer_args`",
        edits={SETTINGS: {"tokenizer_args": {"truncation_side": "left"}}},
        refused="truncation_side",
    ),
    "processing": Layout(
        "`processing_kwargs`",
        edits={SETTINGS: {"processing_kwargs": {"text": {"max_length": 8}}}},
        refused="processing_kwargs",
    ),
    "chat": Layout(
        "a plain decoder with a chat template",
        kind="qwen3",
        edits={TOKENIZER: {"chat_template": "{{ messages[0]['content'] }}"}},
        alter=plain,
        refused="chat_template",
    ),
    "quantised": Layout(
        "quantised weights",
        edits={"config.json": {"quantization_config": {"quant_method": "gptq"}}},
        refused="quantization_config",
    ),
}


@pytest.fixture(scope="session")
def make_layout(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a layout, created on first use."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("layout") / "model"
            write_layout(LAYOUTS[name], make_model, made[name])
        return made[name]

    return make


@pytest.fixture(scope="session")
def stock(make_layout: Callable[[str], Path]) -> "Callable[[str], Stock]":
    """Return what stock sentence-transformers makes of a layout, computed on first use."""
    return functools.cache(lambda name: by_stock(make_layout(name)))


def write_layout(layout: Layout, make_model: MakeModel, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(make_model(layout.kind).path, max_seq_length=40)
    pooling = Pooling(32, layout.pooling, include_prompt=layout.include_prompt)
    stock = SentenceTransformer(
        modules=[transformer, pooling, *layout.after()],
        device="cpu",
        prompts=dict(layout.prompts) or None,
        default_prompt_name=layout.default,
    )
    stock.save(str(folder), create_model_card=False)
    for file, settings in layout.edits.items():
        stated = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**stated, **settings}))
    if layout.alter is not None:
        layout.alter(folder)


@dataclass(frozen=True)
class Stock:
    """What stock sentence-transformers makes of the texts: vectors by role, and how it ranks them."""

    vectors: Mapping[str, FloatArray]
    ranking: Any


def by_stock(folder: Path) -> Stock:
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(folder), device="cpu").float()
    if getattr(model.tokenizer, "pad_token", "") is None:
        model.tokenizer.pad_token = "[SEP]"
    vectors = {
        QUERY: np.asarray(model.encode_query(TEXTS)),
        DOCUMENT: np.asarray(model.encode_document(TEXTS)),
    }
    return Stock(vectors, model.similarity(*vectors.values()).argsort(descending=True, stable=True))


def stored(workspace: Workspace, teacher: Model, roles: Iterable[str]) -> dict[str, FloatArray]:
    """The vectors of stores in each role, by a teacher that is loaded once."""
    texts, stores = write_texts(workspace, "texts", TEXTS), {}
    lengths = [published_length(teacher)]
    for role in roles:
        (store,) = teacher_store(texts, teacher, role, lengths=lengths, compute="float32").stores
        stores[role] = replace(store, dtype="float32")
    build_stores(workspace, list(dict.fromkeys(stores.values())), local=True)
    readers = {role: open_store(workspace, store) for role, store in stores.items()}
    return {role: np.asarray(reader.gather(reader.rows)) for role, reader in readers.items()}


def assert_equal(found: FloatArray, expected: FloatArray) -> None:
    assert found.shape == expected.shape
    assert lowest_cosine(found, expected) >= 0.99999


def lowest_cosine(first: FloatArray, second: FloatArray) -> float:
    one, other = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / lengths).min())


def live(teacher: Model) -> StudentEncoder:
    """The teacher as it runs while a stage trains, as an encoder."""
    from stillhouse.methods.stages import check_live

    check_live(teacher)
    student: Any = TransformerStudent(teacher, pooling="own", normalize=None)
    length = published_length(teacher)
    return StudentEncoder(student, student.tokenizer.path, length, prompts=prompts_of(teacher))


MEASURED = ("router", "asymmetric", "compact", "towers")
"""Refused as teachers, and read by `evaluate`."""
HONOURED = [name for name, layout in LAYOUTS.items() if not layout.refused]
LIVE = [name for name in HONOURED if not LAYOUTS[name].live]
SEEN = {
    *("mpnet", "xlm-roberta", "modernbert", "qwen3", "gemma3"),
    *("float16", "longer", "left with prompts", "truncate_dim left"),
}
"""Left to the long run: architectures that test_head.py and test_families.py compare with stock, and layouts
whose settings others have."""
ALIKE = {"plain", "0_Transformer", "sharded", "dropout", "dot, length 1"}
"""Layouts that leave a student like that of ``mean``: their exports are left to the long run."""


def briefly(name: str, long: bool, *more: str) -> Any:
    return pytest.param(name, *more, marks=pytest.mark.long if long else ())


@pytest.mark.parametrize("name", [briefly(name, name in SEEN) for name in HONOURED])
def test_every_path_gives_the_vectors_of_stock(
    name: str, make_layout: Callable[[str], Path], stock: Callable[[str], Stock], workspace: Workspace
) -> None:
    folder, layout, expected = str(make_layout(name)), LAYOUTS[name], stock(name).vectors
    teacher, measured = TeacherChoice(folder).finder.published(), find_model(folder, workspace).open()
    of_role = {role: np.asarray(encode_as(measured, role, TEXTS)) for role in expected}
    for role, vectors in stored(workspace, teacher, expected if layout.prompts else (QUERY,)).items():
        assert_equal(of_role[role], expected[role])
        assert_equal(vectors, expected[role])
    _, found = search(unit(of_role[QUERY]), unit(of_role[DOCUMENT]), len(TEXTS))
    np.testing.assert_array_equal(found, stock(name).ranking.numpy())
    if layout.live:
        with pytest.raises(BadInput, match=layout.live):
            live(teacher)
    else:
        encoder = live(teacher)
        for role, vectors in expected.items():
            assert_equal(encode_as(encoder, role, TEXTS), vectors)


@each_row("name", [name for name, layout in LAYOUTS.items() if layout.of])
def test_each_setting_changes_a_vector_or_a_ranking(name: str, stock: Callable[[str], Stock]) -> None:
    one, other = stock(name), stock(LAYOUTS[name].of)
    same = all(np.array_equal(one.vectors[role], other.vectors[role]) for role in one.vectors)
    assert not same or not torch.equal(one.ranking, other.ranking)


@each_row("name", [name for name, layout in LAYOUTS.items() if layout.refused])
def test_what_is_not_honoured_is_refused_by_name(
    name: str, make_layout: Callable[[str], Path], workspace: Workspace
) -> None:
    folder, refused = str(make_layout(name)), LAYOUTS[name].refused
    with pytest.raises(BadInput, match=refused):
        TeacherChoice(folder).finder.published()
    if name not in MEASURED:
        with pytest.raises(BadInput, match=refused):
            find_model(folder, workspace)


@pytest.mark.parametrize("name", ["router", "asymmetric"])
def test_an_evaluation_runs_both_routes_as_stock_does(
    name: str, make_layout: Callable[[str], Path], stock: Callable[[str], Stock], workspace: Workspace
) -> None:
    measured = find_model(str(make_layout(name)), workspace).open()
    for role, expected in stock(name).vectors.items():
        assert_equal(np.asarray(encode_as(measured, role, TEXTS)), expected)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        # Graphs take long to write. Some are compared in test_onnx_stock.py, cut on either side.
        briefly(name, form != STOCK or name in SEEN | ALIKE, form)
        for name, form in itertools.product(LIVE, (STOCK, ONNX, ONNX_INT8))
    ],
)
def test_every_export_of_the_whole_teacher_is_the_teacher(
    name: str,
    form: str,
    make_layout: Callable[[str], Path],
    stock: Callable[[str], Stock],
    tmp_path: Path,
    workspace: Workspace,
) -> None:
    encoder = live(TeacherChoice(str(make_layout(name))).finder.published())
    write_format(form, encoder, tmp_path / "export", TEXTS)
    read = find_model(str(tmp_path / "export"), workspace).open()
    for role, vectors in stock(name).vectors.items():
        found = np.concatenate([encode_as(read, role, [text]) for text in TEXTS])
        assert lowest_cosine(found, vectors) >= (0.95 if form == ONNX_INT8 else 0.99999)


def test_the_page_has_the_table() -> None:
    if not PAGE.exists() or page() != PAGE.read_text():
        PAGE.write_text(page())
        pytest.fail(f"{PAGE} was out of date, and is written anew: look at it, and commit it.")


def page() -> str:
    rows = [
        "| layout | store, `evaluate`, search | live or fine-tuned teacher, exports of it |",
        "|---|---|---|",
    ]
    for name, layout in LAYOUTS.items():
        every = f"refused, naming `{layout.refused.split('.*')[0]}`" if layout.refused else "equal"
        every += "; `evaluate` reads it" if name in MEASURED else ""
        alone = "" if layout.refused else "refused" if layout.live else "equal"
        rows.append(f"| {layout.says} | {every} | {alone} |")
    return HEAD + "\n".join(rows) + "\n"


HEAD = """# What a model's folder says

A folder of sentence-transformers or Hugging Face is read once, into one value (`core/model_folder.py`). The
tokenizer, the store, a live teacher, an evaluation and an export take that value. Whatever in a folder
changes a vector, or how vectors are compared, is honoured by all of them or refused by its name before any
work. A key or a module that is not known is refused too.

`tests/students/test_conformance.py` writes this table. It makes a tiny random model in each layout and
compares it with stock `encode_query` and `encode_document` in float32. *Equal* means the same dimension and
a cosine of at least 0.99999 for every text. Among the texts are two that are longer than the limit, with
unlike beginnings and ends. A live or fine-tuned teacher runs as a student with all of its layers, so it
must have the pooling and the modules that students have. Such a model is exported in each form and read by
that form's own client.

Opening a teacher for a store compares a dozen texts with stock, too, some of them with each prompt. With two
prompts this takes 0.1 s of one CPU thread for the tiny model, 0.4 s for the shape of MiniLM-L6, 1.9 s for
BERT-base and 6.4 s for BERT-large, once per process that embeds.

"""
