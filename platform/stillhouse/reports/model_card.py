"""The model card of an exported student: Markdown with the front matter that model hubs read."""

from collections.abc import Mapping

_USAGE = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["First sentence.", "Second sentence."])  # (2, {dim})
```"""

_LICENCES = """\
These weights derive from those of `{teacher}` and were trained on its outputs, so its licence{licence}
applies to them too. The training text was only read, and none of it is in this folder; each source keeps its
own licence, listed above where it is known. Check that both permit your use."""


def model_card(
    *,
    name: str,
    teacher: str,
    student: str,
    dim: int,
    max_length: int,
    method: str,
    paper: str,
    corpus: str,
    rows: int,
    sources: Mapping[str, str],
    hyper_parameters: Mapping[str, object],
    metrics: Mapping[str, Mapping[str, float]],
    sizes: Mapping[str, Mapping[str, float]],
    reproducibility: Mapping[str, object],
    licence: str = "",
    base_model: str = "",
    language: str = "en",
    usage: str = "",
) -> str:
    """Write the card.

    Args:
        name: Name under which users load the student.
        teacher: Name of the teacher.
        student: Description such as "layers 0, 2, 4 of all-MiniLM-L6-v2, mean pooling".
        dim: Dimension of its vectors.
        max_length: Maximum number of tokens per text; longer texts are truncated.
        method: Name of the method, such as ``IBKD``.
        paper: Authors, title, venue and identifier of the method's paper.
        corpus: Description such as "docstrings of installed Python packages".
        rows: Number of training texts.
        sources: Source of the text to its licence; an empty licence is shown as unknown.
        hyper_parameters: Values by name.
        metrics: Model (``teacher``, ``student``, ``untrained``, ``baseline``) to its figures by name.
        sizes: The same models to their sizes and speeds by name.
        reproducibility: Facts by name: store key, seed, versions, revision, ….
        licence: SPDX identifier of the teacher's licence; empty if unknown.
        base_model: The teacher's id on the hub; empty if it has none.
        language: ISO code of the language.
        usage: Markdown that says how to use it, if it is not one folder with one encoder.

    Returns:
        Markdown.
    """
    facts = {"Vectors": f"{dim} dimensions", "Maximum length": f"{max_length} tokens", "Made from": student}
    sections = [
        _front_matter(licence, base_model, language),
        f"# {name}",
        f"A small text-embedding model, distilled from `{teacher}` with {method}.",
        _pairs(("", ""), facts),
        "## How to use\n\n" + (usage or _USAGE.format(name=name, dim=dim)),
        "## Figures\n\n" + _comparison(metrics),
        "## Size and speed\n\n" + _comparison(sizes),
        f"## Method\n\n{method}: {paper}",
        "### Hyper-parameters\n\n" + _pairs(("Name", "Value"), hyper_parameters),
        f"## Data\n\n{corpus}: {rows:,} texts.\n\n"
        + _pairs(("Source", "Licence"), {source: kind or "unknown" for source, kind in sources.items()}),
        "## Licences\n\n" + _LICENCES.format(teacher=teacher, licence=f" ({licence})" if licence else ""),
        "## Reproducing it\n\n" + _pairs(("Fact", "Value"), reproducibility),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(licence: str, base_model: str, language: str) -> str:
    import yaml

    fields: dict[str, object] = {
        "language": language,
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": [
            "sentence-transformers",
            "sentence-similarity",
            "feature-extraction",
            "knowledge-distillation",
            "stillhouse",
        ],
    }
    if base_model:
        fields["base_model"] = base_model
    if licence:
        fields["license"] = licence
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _comparison(figures: Mapping[str, Mapping[str, float]]) -> str:
    """A table with one row per figure and one column per model; a dash where a model lacks the figure."""
    names = list(dict.fromkeys(name for column in figures.values() for name in column))
    rows = [
        [name, *(_shown(column[name]) if name in column else "–" for column in figures.values())]
        for name in names
    ]
    return _table(["", *figures], rows, right=True) if names else "None were measured."


def _pairs(header: tuple[str, str], values: Mapping[str, object]) -> str:
    rows = [[name, _shown(value)] for name, value in values.items()]
    return _table(list(header), rows, right=False) if rows else "None are known."


def _table(header: list[str], rows: list[list[str]], *, right: bool) -> str:
    rule = ["---", *(["---:"] if right else ["---"]) * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in [header, rule, *rows])


def _cell(text: str) -> str:
    """Text that stays in its cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
