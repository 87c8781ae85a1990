"""A table of values that a call returns: a list of rows, which a notebook shows as a table."""

from html import escape
from typing import Any


class Rows(list[dict[str, Any]]):
    """A table: one dictionary per row, from column to value, as ``pandas.DataFrame`` takes it."""

    def __str__(self) -> str:
        """The table in aligned columns."""
        from stillhouse.reports.layout import table_lines

        columns, cells = self._cells()
        texts = {at for at, name in enumerate(columns) if any(isinstance(row.get(name), str) for row in self)}
        return "\n".join(table_lines(columns, cells, texts)) if self else "no rows"

    def _repr_html_(self) -> str:
        columns, cells = self._cells()
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        columns = list(dict.fromkeys(name for row in self for name in row))
        return columns, [[_shown(row.get(name)) for name in columns] for row in self]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)
