"""Reports as HTML pages: tables and figures in one template, which escapes whatever it is given.

A page is one file that opens without a network, also inside MLflow: plotly's own code (4.8 MB) is in it where
it has figures.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically

_NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Figure:
    """A figure of a page, by plotly; its name is its anchor in the page."""

    name: str
    title: str
    plot: Any

    @property
    def json(self) -> Any:
        """Plotly's JSON, safe inside a script element: plotly writes ``<``, ``>`` and ``/`` as escapes."""
        from markupsafe import Markup
        from plotly.io.json import to_json_plotly

        return Markup(to_json_plotly(self.plot, engine="json"))


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        header: Names of the columns.
        rows: One text per column.
        left: Columns that are aligned to the left; numbers go to the right.
        marked: Rows that are highlighted.
        dimmed: Rows in grey.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Set[int] = frozenset({0})
    marked: Set[int] = frozenset()
    dimmed: Set[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it: a paragraph per line, then tables, then figures."""

    title: str
    text: str = ""
    tables: Sequence[Table] = field(default=())
    figures: Sequence[Figure] = field(default=())


def write_page(
    path: Path,
    title: str,
    sections: Sequence[Section],
    facts: Sequence[str] = (),
    links: Mapping[str, str] = _NONE,
) -> None:
    """Write a page.

    ``facts`` stand below its heading, and ``links``, addresses by their titles, are relative to the page.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=PackageLoader("stillhouse.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    code = ""
    if any(section.figures for section in sections):
        from plotly.offline import get_plotlyjs

        code = Markup(get_plotlyjs())
    page = templates.get_template("page.html").render(
        title=title, sections=sections, facts=facts, links=links, plotly=code
    )
    write_atomically(path, page.encode())
