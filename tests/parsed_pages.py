"""Tables of a page as a reader of its format finds them, not as they look to a search for substrings."""

import csv
from html.parser import HTMLParser

from markdown_it import MarkdownIt

Table = list[list[str]]
"""Rows of cells, the header first."""


def markdown_tables(text: str) -> list[Table]:
    """The tables that a parser of GitHub's Markdown finds."""
    html = MarkdownIt("commonmark").enable("table").render(text.partition("\n---\n")[2] or text)
    return html_tables(html)


def html_tables(text: str) -> list[Table]:
    """The tables of a page of HTML, whose tags must be closed in their order."""
    reader = _Tables()
    reader.feed(text)
    reader.close()
    assert reader.open == [], f"never closed: {reader.open}"
    return reader.tables


def csv_table(text: str) -> Table:
    """The rows of a file of comma-separated values."""
    return list(csv.reader(text.splitlines(), strict=True))


def shape(table: Table) -> tuple[int, int]:
    """Rows without the header, and columns, of which every row has the same number."""
    (columns,) = {len(row) for row in table}
    return len(table) - 1, columns


class _Tables(HTMLParser):
    """Collects tables, and fails where tags are not nested."""

    EMPTY = frozenset({"meta", "img", "br", "hr", "wbr", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[Table] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if any(tag in self.open for tag in ("td", "th")):
            self.tables[-1][-1][-1] += data
