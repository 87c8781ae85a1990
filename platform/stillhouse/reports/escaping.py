"""Names and values that come from elsewhere, as text of a page: they cannot become markup or formulas."""

import re
from typing import TypeVar

from stillhouse.core.redaction import redacted

T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def in_markdown(text: str) -> str:
    """Return text as one line of Markdown that contains no HTML, no link and no heading."""
    line = " ".join(redacted(text).split())
    line = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line).replace("](", "]\\(")
    return re.sub(r"^(?=#{1,6} |```|~~~|> |---$|===)", r"\\", line)


def in_cell(text: str) -> str:
    """Return text that stays in its cell of a Markdown table."""
    return in_markdown(text).replace("|", "\\|")


def in_code(text: str) -> str:
    """Return text that stays within backticks."""
    return " ".join(redacted(text).split()).replace("`", "'")


def in_quotes(text: str) -> str:
    """Return text that stays within the double quotes of a Python string in a fenced block."""
    quoted = redacted(text).replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\x60")
    return quoted.replace("\n", "\\n").replace("\r", "\\r")


def in_csv(value: T) -> T | str:
    """Return a value of a CSV cell; a text that a spreadsheet would run as a formula is quoted by ``'``."""
    if not isinstance(value, str):
        return value
    text = redacted(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
