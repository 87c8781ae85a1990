from typing import Any

import pytest
import yaml

from stillhouse.reports.model_card import model_card

CONTENT: dict[str, Any] = {
    "name": "docs-mini",
    "teacher": "all-MiniLM-L6-v2",
    "student": "layers 0, 2, 4 of all-MiniLM-L6-v2, mean pooling",
    "dim": 384,
    "max_length": 128,
    "method": "IBKD",
    "paper": "Zhang et al., ACL Findings 2023",
    "corpus": "docstrings of installed packages",
    "rows": 20_000,
    "sources": {"numpy": "BSD-3-Clause", "mystery": ""},
    "hyper_parameters": {"temperature": 0.1, "kernel": "rbf", "a|b": "x\ny"},
    "metrics": {
        "teacher": {"docsearch_cosine_mrr@10": 0.61239, "agreement_spearman_cosine": 1.0},
        "student": {"docsearch_cosine_mrr@10": 0.5874},
    },
    "sizes": {"teacher": {"parameters": 22_565_376}, "student": {"parameters": 17_241_984}},
    "reproducibility": {"store": "0123456789abcdef", "seed": 0},
    "licence": "apache-2.0",
    "base_model": "sentence-transformers/all-MiniLM-L6-v2",
}


def front_matter(card: str) -> dict[str, Any]:
    _, matter, _ = card.split("---\n", 2)
    fields: dict[str, Any] = yaml.safe_load(matter)
    return fields


def test_the_front_matter_can_be_read_by_model_hubs() -> None:
    fields = front_matter(model_card(**CONTENT))
    assert fields["library_name"] == "sentence-transformers"
    assert fields["pipeline_tag"] == "sentence-similarity"
    assert fields["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert fields["license"] == "apache-2.0"
    assert "knowledge-distillation" in fields["tags"]


def test_unknown_facts_are_omitted_or_marked_unknown() -> None:
    card = model_card(**{**CONTENT, "licence": "", "base_model": "", "hyper_parameters": {}, "metrics": {}})
    assert not {"license", "base_model"} & set(front_matter(card))
    assert "| mystery | unknown |" in card
    assert "None were measured." in card and "None are known." in card


@pytest.mark.parametrize(
    "line",
    [
        "|  | teacher | student |",
        "| docsearch_cosine_mrr@10 | 0.6124 | 0.5874 |",
        "| agreement_spearman_cosine | 1 | – |",
        "| parameters | 22,565,376 | 17,241,984 |",
        "| temperature | 0.1 |",
        "| a\\|b | x y |",
        "| store | 0123456789abcdef |",
        "docstrings of installed packages: 20,000 texts.",
        'model = SentenceTransformer("docs-mini")',
        "IBKD: Zhang et al., ACL Findings 2023",
    ],
)
def test_the_card_contains(line: str) -> None:
    assert line in model_card(**CONTENT).splitlines()


def test_every_row_of_a_table_has_the_same_number_of_cells() -> None:
    card = model_card(**CONTENT).replace("\\|", "")
    for block in card.split("\n\n"):
        widths = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(widths) <= 1, block


def test_licence_notes_name_the_teacher() -> None:
    text = " ".join(model_card(**CONTENT).split())
    assert "derive from those of `all-MiniLM-L6-v2`" in text and "(apache-2.0) applies to them too" in text
