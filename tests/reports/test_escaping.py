"""Names from elsewhere cannot become markup, code or formulas."""

import csv
import io
import re

import yaml
from rows import each_row

from stillhouse.reports.comparison_tables import as_csv, as_markdown
from stillhouse.reports.entries import Entry
from stillhouse.reports.escaping import in_code, in_csv, in_markdown, in_quotes
from stillhouse.reports.model_card import Card, Deployed, model_card

EVIL = 'a"); import os # `x`\n# Heading <script>alert(1)</script> [x](javascript:1) | =1+1'


def test_a_card_of_hostile_names_has_no_markup_of_theirs() -> None:
    card = Card(EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, sources={EVIL: EVIL}, hyper_parameters={EVIL: EVIL})
    text = model_card(card, Deployed("sentence-transformers", EVIL, 8, 16, 1.0, prompts=EVIL))
    outside_code = re.sub(r"`[^`]*`", "", text.partition("## How to use")[0]).split("---", 2)[2]
    assert "<script" not in outside_code and "](javascript" not in outside_code
    headings = [line for line in text.split("---", 2)[2].splitlines() if line.startswith("#")]
    assert not any("Heading" in line for line in headings[1:])
    assert yaml.safe_load(text.split("---")[1])["library_name"] == "sentence-transformers"
    snippet = text.partition("```python")[2].partition("```")[0]
    names: dict[str, object] = {}
    code = compile(
        snippet.replace("from sentence_transformers import SentenceTransformer", ""), "card", "exec"
    )
    opened: list[str] = []

    class Model:
        def __init__(self, path: str) -> None:
            opened.append(path)

        def encode(self, texts: list[str]) -> None:
            pass

    exec(code, {**names, "SentenceTransformer": Model})
    assert opened == [EVIL], "the path is data, whatever is in it"


def test_a_card_tells_no_secret() -> None:
    secret = "s3://AKIAKEY:hunter2hunter2@bucket/pages?token=hunter3hunter3"
    told = {secret: secret}
    card = Card(secret, secret, secret, secret, secret, secret, sources=told, hyper_parameters=told)
    for form in ("sentence-transformers", "onnx", "compact"):
        text = model_card(card, Deployed(form, secret, 8, 16, 1.0, prompts=secret))
        assert "bucket" in text and not re.search("AKIAKEY|hunter", text), form


def test_ordinary_texts_are_left_as_they_are() -> None:
    for text in (
        "IBKD (distil then finetune)",
        "x < 3 and y > 2",
        "layers 0, 2, 4 of `m`",
        "c∘d; |c−d|",
        "#1",
    ):
        assert in_markdown(text) == text


@each_row("value", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_csv_is_a_formula(value: str) -> None:
    assert in_csv(value) == f"'{value}"


@each_row("value", ["-0.5", "+3", "1e-4", "name", "", 3, -0.25, None])
def test_numbers_and_names_stay_as_they_are_in_csv(value: object) -> None:
    assert in_csv(value) == value


def test_a_comparison_of_hostile_names_is_a_page_and_a_table() -> None:
    row = Entry("=HYPERLINK(1)", "best", "<img src=x>", "finished", {"a": "<b>|"}, {"dev/x": 0.5})
    table = list(csv.reader(io.StringIO(as_csv([row]))))
    assert table[1][0] == "'=HYPERLINK(1)"
    page = as_markdown([row], "<script>")
    assert "<script" not in page and "<b>" not in page


def test_code_and_quotes() -> None:
    assert in_code("a`b\nc") == "a'b c"
    assert eval(f'"{in_quotes(EVIL)}"') == EVIL
