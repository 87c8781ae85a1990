"""The model card: front matter that huggingface_hub reads, and what stands behind every number."""

import re
from dataclasses import replace
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from rows import each_row

from stillhouse.reports.model_card import Card, Deployed, model_card

CARD = Card(
    name="docs-mini",
    teacher="all-MiniLM-L6-v2",
    student="layers 0, 2, 4 of all-MiniLM-L6-v2",
    method="IBKD (distil then finetune)",
    paper="Zhang et al., ACL Findings 2023",
    corpus="pydocs",
    rows=20_000,
    pairs=8_000,
    sources={"numpy": "BSD-3-Clause", "scipy": "BSD-3-Clause", "mystery": ""},
    hyper_parameters={"temperature": 0.1, "kernel": "rbf", "a|b": "x\ny"},
    metrics={
        "teacher": {"docsearch_cosine_mrr@10": 0.61239, "sts_stsb_spearman_cosine": 1.0},
        "student": {"docsearch_cosine_mrr@10": 0.5874},
    },
    facts={
        "docsearch": {"what": "Documentation search.", "split": "test", "count": 1211, "unit": "queries"},
        "sts": {"what": "Sentences.", "split": "test", "count": 9, "unit": "pairs"},
        "sts_stsb_": {"what": "Sentences.", "split": "test", "count": 1379, "unit": "pairs"},
    },
    sizes={"teacher": {"parameters": 22_565_376.0}, "student": {"parameters": 17_241_984.0}},
    machine={"cpu": "AMD EPYC", "cores": 2, "threads": 2, "load": 0.4},
    reproducibility={"store": "0123456789abcdef", "seed": 0},
    licence="apache-2.0",
    base_models=("sentence-transformers/all-MiniLM-L6-v2",),
)
STOCK = Deployed(
    form="sentence-transformers",
    path="runs/sweeps/docs/export",
    dim=384,
    max_length=128,
    parity=0.99999,
    sizes={"megabytes_on_disk": 69.5, "sentences_per_second": 500.0},
    machine={"cpu": "AMD EPYC", "cores": 2, "threads": 1, "load": None},
)
FORMS = {
    "sentence-transformers": STOCK,
    "onnx": replace(STOCK, form="onnx"),
    "onnx-int8": replace(STOCK, form="onnx-int8", pad_id=1),
    "static": replace(STOCK, form="onnx", stock=False),
    "compact": replace(STOCK, form="compact", stock=False),
    "bilinear": replace(STOCK, form="towers", joiner="bilinear"),
    "features": replace(STOCK, form="towers", joiner="features"),
}


def front_matter(card: str) -> ModelCardData:
    """Read the front matter; the hub's own check of it needs the network."""
    data: Any = ModelCard(card).data
    assert set(data.to_dict()) <= set(vars(ModelCardData())), "the hub knows no other fields"
    assert isinstance(data, ModelCardData)
    return data


@each_row(
    ("form", "library", "tags"),
    [
        ("sentence-transformers", "sentence-transformers", {"sentence-transformers"}),
        ("onnx", "sentence-transformers", {"onnx"}),
        ("onnx-int8", "sentence-transformers", {"onnx", "int8"}),
        ("static", "onnx", {"onnx"}),
        ("compact", "stillhouse", set()),
        ("bilinear", "sentence-transformers", {"sentence-transformers"}),
    ],
)
def test_the_front_matter_is_what_hubs_read(form: str, library: str, tags: set[str]) -> None:
    data = front_matter(model_card(CARD, FORMS[form]))
    assert data.library_name == library and data.pipeline_tag == "sentence-similarity"
    assert data.base_model == ["sentence-transformers/all-MiniLM-L6-v2"]
    assert data.license == "apache-2.0" and data.language is None
    assert {"knowledge-distillation", *tags} <= set(data.tags or ())
    assert ("onnx" in (data.tags or ())) == ("onnx" in tags)


def test_what_is_unknown_is_left_out_or_called_unknown() -> None:
    bare = Card(name="bare", teacher="", student="a student", method="MSE")
    assert front_matter(model_card(replace(bare, language="de,fr"), STOCK)).language == ["de", "fr"]
    card = model_card(bare, replace(STOCK, sizes={}))
    data = front_matter(card)
    assert data.license is None and data.base_model is None and data.language is None
    assert "None were measured." in card and "None are known." in card and "Not recorded." in card
    without = model_card(replace(CARD, facts={}), STOCK)
    assert "| docsearch_cosine_mrr@10 | not recorded | 0.6124 | 0.5874 |" in without


@each_row(
    "line",
    [
        "|  | measured on | teacher | student |",
        "| docsearch_cosine_mrr@10 | 1,211 queries, test split | 0.6124 | 0.5874 |",
        "| sts_stsb_spearman_cosine | 1,379 pairs, test split | 1.0000 | – |",
        "* `docsearch`: Documentation search.",
        "|  | teacher | student | this folder (sentence-transformers) |",
        "| parameters | 22,565,376 | 17,241,984 | – |",
        "| megabytes_on_disk | – | – | 69.5 |",
        "Times of this folder were measured on AMD EPYC, 1 of 2 cores used, an unknown load.",
        "Times of the other columns were measured on AMD EPYC, 2 of 2 cores used, a load of 0.4 at that "
        "time.",
        "| temperature | 0.1 |",
        "| a\\|b | x y |",
        "| store | 0123456789abcdef |",
        "pydocs: 20,000 texts and 8,000 labelled pairs.",
        "* teacher `all-MiniLM-L6-v2`: apache-2.0",
        "* pydocs, 3 sources: BSD-3-Clause (2), unknown (1)",
        'model = SentenceTransformer("runs/sweeps/docs/export")',
        "IBKD (distil then finetune): Zhang et al., ACL Findings 2023",
        "A small text-embedding model, distilled from `all-MiniLM-L6-v2` with IBKD (distil then finetune).",
    ],
)
def test_the_content_is_there(line: str) -> None:
    assert line in model_card(CARD, STOCK).splitlines()


@each_row("form", FORMS)
def test_every_form_has_its_own_snippet_and_well_formed_tables(form: str) -> None:
    card = model_card(CARD, FORMS[form])
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert blocks and all("runs/sweeps/docs/export" in block for block in blocks)
    for block in blocks:
        compile(block, form, "exec")
    for table in card.replace("\\|", "").split("\n\n"):
        widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
        assert len(widths) <= 1, table


def test_the_snippet_of_a_graph_tokenizes_as_the_student_did() -> None:
    card = model_card(CARD, FORMS["onnx-int8"])
    for part in ("pad_id=1", "encode_batch([", "onnx/model_qint8_quantized.onnx"):
        assert part in card
    assert 'backend="onnx", model_kwargs={"file_name": "model_qint8_quantized.onnx"}' in card
    assert 'backend="onnx")' in model_card(CARD, FORMS["onnx"])
    assert "backend=" not in model_card(CARD, FORMS["static"])
    assert "not with this export" in card and "not with this export" not in model_card(CARD, STOCK)


def test_a_card_survives_json() -> None:
    assert Card(**CARD.as_json()).as_json() == CARD.as_json()
    assert model_card(Card(**CARD.as_json()), STOCK) == model_card(CARD, STOCK)
