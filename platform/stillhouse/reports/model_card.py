"""The model card of an exported student: Markdown with the front matter that model hubs read.

What is known of the student is a `Card`; what is particular to one export of it is a `Deployed`. A sweep
keeps the card of its best student, so that every later export of it says the same.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from stillhouse.core.roles import ASYMMETRIC
from stillhouse.evaluation.suites import fact_of
from stillhouse.reports.escaping import in_code, in_markdown, in_quotes
from stillhouse.reports.layout import markdown_table
from stillhouse.students.export.asymmetric import QUERY_ONNX
from stillhouse.students.export.folder_modules import COMPACT, ONNX, ONNX_INT8, ROUTED, STOCK, TOWERS
from stillhouse.students.export.onnx import GRAPHS

_KEPT = {"left": "; the last ones of longer texts"}

_STOCK_USAGE = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{path}"{backend})
vectors = model.encode(["First sentence.", "Second sentence."])  # (2, {dim})
```"""

_PROMPTS = (
    "It was trained with prompts: {prompts}. `encode_query` and `encode_document` put them before the texts; "
    "a runtime without these functions must be given texts that begin with them."
)

_GRAPH_USAGE = """\
```python
import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("{path}/tokenizer.json")
tokenizer.enable_padding(pad_id={pad_id})
session = InferenceSession("{path}/onnx/{graph}")

encoded = tokenizer.encode_batch(["First sentence.", "Second sentence."])
inputs = {{
    "input_ids": np.array([each.ids for each in encoded]),
    "attention_mask": np.array([each.attention_mask for each in encoded]),
}}
(vectors,) = session.run(["sentence_embedding"], inputs)  # (2, {dim})
```"""

_OWN_USAGE = """\
```python
from stillhouse import load

model = load("{path}")
vectors = model.encode(["First sentence.", "Second sentence."])  # (2, {dim})
```"""

_ROUTED_USAGE = """\
Queries are embedded by the student, documents by its teacher, `{teacher}`; `encode` without a role is the
teacher's.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{path}")
vectors = model.encode_document(["First document.", "Second document."])  # (2, {dim})
scores = model.similarity(model.encode_query(["A query."]), vectors)  # (1, 2)
```"""

_QUERIES_ONLY = """\
A machine that embeds queries alone needs `{folder}/` and nothing else:

{graph}"""

_BILINEAR_USAGE = """\
A score is the inner product of the two vectors: any index of inner products serves it.

```python
import faiss
from sentence_transformers import SentenceTransformer

claims = SentenceTransformer("{path}/claims")
documents = SentenceTransformer("{path}/documents")
vectors = documents.encode(["A document.", "Another one."])  # (2, {dim})
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
scores, rows = index.search(claims.encode(["A claim."]), 2)
```"""

_JOINED_USAGE = """\
With c and d, the vectors of the two folders, a score is wᵀ [{parts}]; w is `weight` in `joiner.safetensors`.
It is no inner product, so no index serves it: candidates are scored one by one.

```python
from stillhouse import load

model = load("{path}")
vectors = model.encode(["A document.", "Another one."])  # (2, {dim})
scores = model.score(["A claim.", "A claim."], ["A document.", "Another one."])
```"""
_PARTS = {"features": "c; d; c∘d; |c−d|", "concat": "c; d"}

_ASYMMETRIC = (
    "In figures named `asymmetric`, the documents were embedded by the teacher, and only the queries by the "
    "model of the column."
)

_LICENCES = """\
These weights derive from those of the models above and were trained on the teacher's outputs, so their
licences apply. The training text was only read; none of it is in this folder. Check that all of them permit
your use."""


@dataclass(frozen=True)
class Card:
    """The known facts of a trained student.

    Attributes:
        name: Its name.
        teacher: Name of the teacher.
        student: Description such as "layers 0, 2, 4 of all-MiniLM-L6-v2".
        method: Name of the method, such as ``IBKD (distil then finetune)``.
        paper: Authors, title, venue and identifier of the method's paper; empty if unknown.
        corpus: Description such as "docstrings of installed Python packages".
        rows: Number of training texts; 0 if unknown.
        pairs: Number of labelled pairs that it was trained on.
        sources: Source of the text to its licence; an empty licence is unknown.
        hyper_parameters: Values by name.
        metrics: Model (``teacher``, ``student``, ``untrained``, ``baseline``) to its figures by name.
        facts: What the figures are computed from; see `evaluation.suites.figure_facts`.
        sizes: The same models to their sizes and speeds by name.
        machine: Where the speeds were measured; see `core.machine`.
        reproducibility: Facts by name: store key, seed, versions, ….
        licence: SPDX identifier of the teacher's licence, or several joined by "and"; empty if unknown.
        base_models: Ids on the hub of the models whose weights or outputs it was made from.
        language: ISO codes of the languages that the experiment names, separated by commas; empty if it names
            none.
        verdict: How sure it is that the student is better than the others, in sentences.
    """

    name: str
    teacher: str
    student: str
    method: str
    paper: str = ""
    corpus: str = ""
    rows: int = 0
    pairs: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    hyper_parameters: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    machine: Mapping[str, object] = field(default_factory=dict)
    reproducibility: Mapping[str, object] = field(default_factory=dict)
    licence: str = ""
    base_models: Sequence[str] = ()
    language: str = ""
    verdict: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain data, which ``Card(**data)`` reads again."""
        return dataclasses.asdict(self)


class DevChange(NamedTuple):
    """The dev figure that selected a student: its name, and its values for the student and for its export."""

    figure: str
    trained: float
    exported: float

    def __str__(self) -> str:
        """``dev ndcg@10 0.4312 (-0.0038 to the trained student)``."""
        change = self.exported - self.trained
        return f"dev {self.figure} {self.exported:.4f} ({change:+.4f} to the trained student)"


@dataclass(frozen=True)
class Deployed:
    """The facts of one export of a student.

    Attributes:
        form: One of the formats of `students.export.formats`, ``towers``, or ``asymmetric``.
        path: Name of the folder, which is valid wherever it is copied to.
        dim: D.
        max_length: Maximum number of tokens per text; longer texts are truncated.
        parity: The lowest cosine to the vectors of the trained student.
        sizes: Its own size and speed, in its own runtime.
        machine: Where the speed was measured; see `core.machine`.
        stock: Whether sentence-transformers loads it: the folder itself, or its ONNX graph.
        pad_id: Token id that an ONNX graph's batches are padded with.
        side: Where longer texts are cut: ``right`` or ``left``.
        joiner: The joiner of two towers.
        prompts: Its prompts by role, in words; empty for none.
        graph: Whether it has an ONNX graph; of an asymmetric one, its queries' side.
        dev: Its dev figure beside the trained student's, of a form that may change it.
    """

    form: str
    path: str
    dim: int
    max_length: int
    parity: float
    sizes: Mapping[str, float] = field(default_factory=dict)
    machine: Mapping[str, object] = field(default_factory=dict)
    stock: bool = True
    pad_id: int = 0
    side: str = "right"
    joiner: str = ""
    prompts: str = ""
    graph: bool = False
    dev: DevChange | None = None


def model_card(card: Card, export: Deployed) -> str:
    """Write the card of one export, as Markdown."""
    made = f", distilled from `{in_code(card.teacher)}`" if card.teacher else ""
    about = {
        "Form": export.form,
        "Vectors": f"{export.dim} dimensions",
        "Maximum length": f"{export.max_length} tokens{_KEPT.get(export.side, '')}",
        "Made from": card.student,
        "Lowest cosine to the trained student": f"{export.parity:.6f}",
        **({"Measured in this form": str(export.dev)} if export.dev else {}),
    }
    method = in_markdown(f"{card.method}{f': {card.paper}' if card.paper else ''}")
    sections = [
        _front_matter(card, export),
        f"# {in_markdown(card.name)}",
        f"A small text-embedding model{made} with {in_markdown(card.method)}.",
        _pairs(("", ""), about),
        "## How to use\n\n" + usage(export, card.teacher),
        *([_PROMPTS.format(prompts=in_markdown(export.prompts))] if export.prompts else []),
        "## Figures\n\n" + _figures(card, export),
        "## Size and speed\n\n" + _sizes(card, export),
        f"## Method\n\n{method}",
        "### Hyper-parameters\n\n" + _pairs(("Name", "Value"), card.hyper_parameters),
        "## Data\n\n" + _data(card),
        "## Licences\n\n" + _licences(card),
        "## Reproducing it\n\n" + _pairs(("Fact", "Value"), card.reproducibility),
    ]
    return "\n\n".join(sections) + "\n"


def usage(export: Deployed, teacher: str = "the teacher") -> str:
    """Describe in Markdown how an export is used, with its own path."""
    path, dim = in_quotes(export.path), export.dim
    match export.form:
        case "sentence-transformers":
            return _STOCK_USAGE.format(path=path, dim=dim, backend="")
        case "compact":
            return _OWN_USAGE.format(path=path, dim=dim)
        case "towers" if export.joiner == "bilinear":
            return _BILINEAR_USAGE.format(path=path, dim=dim)
        case "towers":
            return _JOINED_USAGE.format(path=path, dim=dim, parts=_PARTS[export.joiner])
        case "asymmetric":
            whole = _ROUTED_USAGE.format(path=path, dim=dim, teacher=in_code(teacher))
            folder = f"{path}/{QUERY_ONNX}"
            alone = _QUERIES_ONLY.format(folder=QUERY_ONNX, graph=_graph_usage(export, folder, ONNX))
            return f"{whole}\n\n{alone}" if export.graph else whole
    graph = _graph_usage(export, path, export.form)
    if not export.stock:
        return f"{graph}\n\n`stillhouse.load` opens it too. sentence-transformers does not load this graph."
    name = GRAPHS[export.form]
    kwargs = f', model_kwargs={{"file_name": "{name}"}}' if export.form == ONNX_INT8 else ""
    stock = _STOCK_USAGE.format(path=path, dim=dim, backend=f', backend="onnx"{kwargs}')
    return f"{graph}\n\nOr with sentence-transformers and optimum-onnx:\n\n{stock}"


def _graph_usage(export: Deployed, path: str, form: str) -> str:
    return _GRAPH_USAGE.format(path=path, dim=export.dim, pad_id=export.pad_id, graph=GRAPHS[form])


def _front_matter(card: Card, export: Deployed) -> str:
    library = "sentence-transformers"
    if export.form == COMPACT or not export.stock:
        library = "stillhouse" if export.form in (COMPACT, TOWERS) else "onnx"
    tags = [
        *(["sentence-transformers"] if library == "sentence-transformers" else []),
        "sentence-similarity",
        "feature-extraction",
        "knowledge-distillation",
        "stillhouse",
        *(["onnx"] if export.form in GRAPHS else []),
        *(["asymmetric"] if export.form == ROUTED else []),
        *(["int8"] if export.form == ONNX_INT8 else []),
    ]
    fields: dict[str, object] = {
        **({"language": card.language.split(",")} if card.language else {}),
        "library_name": library,
        "pipeline_tag": "sentence-similarity",
        "tags": tags,
    }
    if card.base_models:
        fields["base_model"] = list(card.base_models)
    if card.licence and " " not in card.licence:  # several licences have no identifier together
        fields["license"] = card.licence
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _figures(card: Card, export: Deployed) -> str:
    """One row per figure: what it was measured on and every model's value; then what the figures are."""
    names = list(dict.fromkeys(name for column in card.metrics.values() for name in column))
    if not names:
        return "None were measured."
    known = {name: fact_of(name, card.facts) for name in names}
    rows = [
        [
            name,
            _measured_on(known[name]),
            *(f"{column[name]:.4f}" if name in column else "–" for column in card.metrics.values()),
        ]
        for name in names
    ]
    what = {name.partition("_")[0]: fact["what"] for name, fact in known.items() if fact}
    text = [markdown_table(["", "measured on", *card.metrics], rows, {0, 1})]
    text += ["\n".join(f"* {in_markdown(sentence)}" for sentence in card.verdict)] if card.verdict else []
    text += ["\n".join(f"* `{start}`: {meaning}" for start, meaning in what.items())] if what else []
    text += [_ASYMMETRIC] if any(f"_{ASYMMETRIC}_" in name for name in names) else []
    other = "" if export.form in (STOCK, TOWERS) else ", not with this export"
    text.append(
        f"The figures were measured with the trained student in torch{other}: "
        f"`stillhouse evaluate {in_code(export.path)}` measures this folder in its own runtime."
    )
    return "\n\n".join(text)


def _measured_on(fact: Mapping[str, Any]) -> str:
    return f"{fact['count']:,} {fact['unit']}, {fact['split']} split" if fact else "not recorded"


def _sizes(card: Card, export: Deployed) -> str:
    """One row per size or speed, one column per model, and where the times were taken."""
    sizes = {**card.sizes, **({f"this folder ({export.form})": export.sizes} if export.sizes else {})}
    names = list(dict.fromkeys(name for column in sizes.values() for name in column))
    if not names:
        return "None were measured."
    rows = [
        [name, *(_shown(column[name]) if name in column else "–" for column in sizes.values())]
        for name in names
    ]
    text = [markdown_table(["", *sizes], rows)]
    if export.form == ROUTED:
        text.append("The sizes of this folder are those of both sides together; its times are of queries.")
    machines = {"this folder": export.machine, "the other columns": card.machine if card.sizes else {}}
    known = {what: _machine(machine) for what, machine in machines.items() if machine}
    if len(set(known.values())) == 1:
        text.append(f"Times were measured on {next(iter(known.values()))}.")
    else:
        text += [f"Times of {what} were measured on {machine}." for what, machine in known.items()]
    return "\n\n".join(text)


def _machine(machine: Mapping[str, object]) -> str:
    load = machine.get("load")
    busy = "an unknown load" if load is None else f"a load of {load} at that time"
    return f"{machine['cpu']}, {machine['threads']} of {machine['cores']} cores used, {busy}"


def _data(card: Card) -> str:
    if not card.corpus:
        return "Not recorded."
    rows = f"{card.rows:,} texts" if card.rows else "an unknown number of texts"
    return f"{in_markdown(card.corpus)}: {rows}{f' and {card.pairs:,} labelled pairs' if card.pairs else ''}."


def _licences(card: Card) -> str:
    """One line per origin; the sources of a corpus are summed up by licence."""
    lines = (
        [f"* teacher `{in_code(card.teacher)}`: {in_markdown(card.licence or 'unknown')}"]
        if card.teacher
        else []
    )
    kinds = Counter(licence or "unknown" for licence in card.sources.values())
    if len(card.sources) > 1:
        summed = ", ".join(f"{licence} ({count})" for licence, count in kinds.most_common())
        lines.append(in_markdown(f"* {card.corpus}, {len(card.sources)} sources: {summed}"))
    else:
        lines += [
            in_markdown(f"* {source}: {licence or 'unknown'}") for source, licence in card.sources.items()
        ]
    return "\n".join(lines) + f"\n\n{_LICENCES}" if lines else "None are known."


def _pairs(header: tuple[str, str], values: Mapping[str, object]) -> str:
    rows = [[name, _shown(value)] for name, value in values.items()]
    return markdown_table(header, rows, {0, 1}) if rows else "None are known."


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
