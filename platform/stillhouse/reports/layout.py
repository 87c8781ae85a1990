"""The two writers of tables: lines of a terminal, and Markdown. Only they lay out columns."""

from collections.abc import Sequence, Set

from stillhouse.reports.escaping import in_cell

WIDTH = 140
"""Columns of a terminal; no table that is printed is wider."""
_GAP = "  "
_FIRST = frozenset({0})

Cells = Sequence[Sequence[str]]


def table_lines(
    header: Sequence[str], cells: Cells, left: Set[int] = _FIRST, *, key: int = 1, width: int = WIDTH
) -> list[str]:
    """Lay out a table for the terminal; long headings are wrapped at their underscores.

    Args:
        header: Names of the columns.
        cells: One text per column and row.
        left: Columns that are aligned to the left.
        key: Number of first columns that say what a row is. A table that is too wide is cut into several, one
            below the other, which all begin with them.
        width: Columns of the terminal.
    """
    blocks = [_block(text, column in left) for column, text in enumerate(zip(header, *cells, strict=True))]
    height = max(len(_stacked(name)) for name in header)
    blocks = [[" " * len(block[0])] * (height + 1 + len(cells) - len(block)) + block for block in blocks]
    widths = [len(block[0]) + len(_GAP) for block in blocks]
    parts, used = [list(range(key))], sum(widths[:key])
    for column in range(key, len(header)):
        if used + widths[column] - len(_GAP) > width and parts[-1][key:]:
            parts.append(list(range(key)))
            used = sum(widths[:key])
        parts[-1].append(column)
        used += widths[column]
    lines: list[str] = []
    for part in parts:
        rows = zip(*(blocks[column] for column in part), strict=True)
        lines += [*([""] if lines else []), *(_GAP.join(row).rstrip() for row in rows)]
    return lines


def markdown_table(header: Sequence[str], cells: Cells, left: Set[int] = _FIRST) -> str:
    """Format a Markdown table; the columns in ``left`` are aligned to the left."""
    rule = [":--" if column in left else "--:" for column in range(len(header))]
    first, *rows = [[in_cell(text) for text in row] for row in (header, *cells)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (first, rule, *rows))


def _block(column: Sequence[str], left: bool) -> list[str]:
    """A column as lines of equal width: its heading, a rule and its cells."""
    name, *cells = column
    heading = _stacked(name)
    width = max(map(len, [*heading, *cells]))
    lines = [*heading, "-" * width, *cells]
    return [line.ljust(width) if left else line.rjust(width) for line in lines]


def _stacked(name: str, most: int = 10) -> list[str]:
    """A heading broken at its underscores into lines of about ten characters."""
    lines = [""]
    for part in name.split("_"):
        joined = f"{lines[-1]}_{part}" if lines[-1] else part
        if len(joined) > most and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return [f"{line}_" for line in lines[:-1]] + lines[-1:]
