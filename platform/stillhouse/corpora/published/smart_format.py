"""Old formats of test collections: tagged documents and topics of TREC, the dotted fields of SMART."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stillhouse.core.errors import BadInput

_START = re.compile(r"\s*<(doc|top)>\s*", re.IGNORECASE)
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_FIELD = re.compile(r"\.([A-Z])(?:\s+(\S+))?\s*")

Found = tuple[str, str, int]
"""Id, text, and the line on which it begins."""


def read_tagged(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Found]:
    """Read ``<doc>`` and ``<top>`` blocks: title and text, or everything except the number.

    The title is not repeated if the text begins with it, as in Cranfield.
    """
    block: list[str] = []
    start, end = 0, ""
    for at, line in lines:
        opened = _START.match(line)
        if opened and not end:
            block, start, end = [], at, f"</{opened[1].lower()}>"
            line = line[opened.end() :]
        if end:
            block.append(line)
            if end in line.lower():
                yield _tagged(path, "".join(block), start)
                end = ""
    if end:
        raise BadInput(f"{path}, line {start}: must be closed by {end}, but the file ends.")


def _tagged(path: Path, block: str, at: int) -> Found:
    number = _inside(block, "docno") or _inside(block, "num")
    if not number:
        raise BadInput(f"{path}, line {at}: must have a number in <docno> or <num>, but has none.")
    title, text = _inside(block, "title"), _inside(block, "text")
    if title is None and text is None:
        text = _words(re.sub(r"(?is)<docno>.*?</docno>|<[^>]*>", " ", block))
    title, text = title or "", text or ""
    return number, text if text.startswith(title) else f"{title} {text}".strip(), at


def _inside(block: str, tag: str) -> str | None:
    match = re.search(rf"(?is)<{tag}>(.*?)</{tag}>", block)
    return _words(match[1]) if match else None


def read_smart(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Found]:
    """Read entries that begin with ``.I``: their fields ``.T`` (title) and ``.W`` (text)."""
    number, start, kept = "", 0, ""
    fields: dict[str, list[str]] = {}
    for at, line in lines:
        match = _FIELD.fullmatch(line)
        if match and match[1] == "I":
            if number:
                yield number, _joined(fields), start
            number, start, kept, fields = match[2] or "", at, "", {}
            if not number:
                raise BadInput(f"{path}, line {at}: must have a number after .I, but has none.")
        elif match:
            kept = match[1]
        elif kept:
            fields.setdefault(kept, []).append(line)
    if number:
        yield number, _joined(fields), start


def read_sentences(text: str) -> list[str]:
    """Parse a list of strings as printed by numpy: in quotation marks, without commas."""
    return [str(ast.literal_eval(each)) for each in _STRING.findall(text.replace("\n", " "))]


def _joined(fields: dict[str, list[str]]) -> str:
    return _words(" ".join("".join(fields.get(name, ())) for name in ("T", "W")))


def _words(text: str) -> str:
    return " ".join(text.split())
