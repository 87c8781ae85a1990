"""Docstrings of source code, read with `ast` only, and the running text in them.

Parameter tables, code, doctests, reST directives and tables, headings, fields and footnotes are dropped.
"""

import ast
import gc
import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CONTAINERS = (ast.Module, ast.ClassDef, ast.If, ast.Try)
_ADDERS = ("add_docstr", "add_newdoc")

_TABLES = frozenset(
    (
        "parameters|other parameters|keyword parameters|args|arguments|keyword args|keyword arguments"
        "|kwargs|params|returns|return|yields|yield|receives|raises|raise|except|exceptions|warns"
        "|attributes|methods|properties|see also|example|examples|example usage|usage|references"
        "|reference|bibliography|inputs|outputs|input|output|shape|shapes|constructor arguments"
        "|call arguments|fields|members|author|authors|todo|todos|license|copyright|table of contents"
        "|contents|tips|source|sources|links|link|options|values|routine listings|functions|classes"
        "|constants|variables|synopsis|signature|default|defaults|supported tasks"
    ).split("|")
)
_PROSE = frozenset(
    "note notes warning warnings tip important caution hint remark remarks description".split()
)

_HEADING = re.compile(r"([A-Z][A-Za-z /_-]{2,40}):$")
_INLINE_TABLE = re.compile(
    r"(Args|Arguments|Returns?|Yields?|Raises?|Examples?|Usage|Default|Inputs?|Outputs?)s?:\s"
)
_INLINE_PROSE = re.compile(
    r"(?:\*\*)?(?:Notes?|NOTE|Warning|WARNING|Tip|Important|Caution|Hint|Remark)(?:\*\*)?:\s+"
)
_FIELD = re.compile(r":[A-Za-z][^:`]*:(\s|$)|@[a-z]+\b")
_ENTRY = re.compile(r"[`*]*\w[\w.]*[`*]* (?:\([^()]*(?:\([^()]*\)[^()]*)*\)\s*:|: \w)")
_DIRECTIVE = re.compile(r"\.\. +([\w-]+)::\s*(.*)$")
_UNDERLINE = re.compile(r"([-=~^\"'#*+_.`:])\1{2,}$")
_RULE = re.compile(r"[-=+|~^_*# .]{3,}$")
_BULLET = re.compile(r"(?:[-*+•]|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)])\s+")
_DOCTEST = (">>>", "In [", "Out[", "$ ", "%")


def docstrings(source: bytes) -> list[str]:
    """Extract the docstrings of a module, its classes and functions in order, also from ``add_docstr``.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: If the source cannot be parsed as Python.
    """
    found: list[str] = []
    nodes: list[ast.stmt | ast.Module] = [_parsed(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
            found.append(docstring)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.extend(_added(node.value))
        if isinstance(node, _CONTAINERS):
            nodes.extend(reversed(node.body))
    return found


def _parsed(source: bytes) -> ast.Module:
    # A syntax tree has very many objects and no cycles: garbage collection would double the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def _added(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _ADDERS and call.args:
        parts = (node.value for node in ast.walk(call.args[-1]) if isinstance(node, ast.Constant))
        yield max((part for part in parts if isinstance(part, str)), key=len, default="")


def paragraphs(docstring: str) -> tuple[str, list[str]]:
    """Extract the running text of a docstring.

    Returns:
        The opening paragraph ("" if it opens with something else) and the other paragraphs, one line each,
        with inline markup.
    """
    lines = inspect.cleandoc(docstring).splitlines()
    blocks = _Blocks()
    for row, line in enumerate(lines):
        following = lines[row + 1].strip() if row + 1 < len(lines) else ""
        blocks.take(row, line, following)
    blocks.close()
    first = next((row for row, line in enumerate(lines) if line.strip()), 0)
    lead = "".join(text for row, text in blocks.found[:1] if row == first)
    return lead, [text for _, text in blocks.found[bool(lead) :]]


@dataclass
class _Blocks:
    """A line-by-line reader of reST, numpydoc, Google style and Markdown.

    Attributes:
        found: First line and text of every paragraph so far.
        open_lines: Lines of the current paragraph.
        skip_below: Lines that are indented deeper are skipped; None skips nothing.
        skip_paragraph: Skip up to the next empty line.
        skip_section: Skip up to the next underlined heading.
        fence: Closing fence of the current Markdown code block.
        depth: Indentation of running text at this point.
    """

    found: list[tuple[int, str]] = field(default_factory=list)
    open_lines: list[str] = field(default_factory=list)
    open_row: int = 0
    open_indent: int = 0
    in_bullet: bool = False
    skip_below: int | None = None
    skip_paragraph: bool = False
    skip_section: bool = False
    fence: str = ""
    depth: int = 0

    def close(self) -> None:
        """End the open paragraph."""
        if self.open_lines:
            self.found.append((self.open_row, " ".join(self.open_lines)))
        self.open_lines, self.in_bullet = [], False

    def take(self, row: int, line: str, following: str) -> None:
        """Read one line; ``following`` is the next one, stripped."""
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if self.fence or text.startswith("```"):
            self._fence(text)
        elif not text:
            self.close()
            self.skip_paragraph = False
        elif self._is_skipped(indent):
            pass
        elif (
            _UNDERLINE.fullmatch(following)
            and len(following) >= 0.6 * len(text)
            and not _RULE.fullmatch(text)
        ):
            self.close()
            self.skip_section, self.skip_below = text.lower().rstrip(":") in _TABLES, None
            self.depth = indent
        elif self.skip_section:
            pass
        elif not self._opens_other_block(text, indent):
            self._running_text(row, text, indent)

    def _fence(self, text: str) -> None:
        if self.fence:
            self.fence = "" if text.startswith(self.fence) else self.fence
        else:
            self.close()
            self.fence = "" if text.count(text[:3]) > 1 else text[:3]

    def _is_skipped(self, indent: int) -> bool:
        if self.skip_below is not None and indent <= self.skip_below:
            self.skip_below = None
        return self.skip_paragraph or self.skip_below is not None

    def _opens_other_block(self, text: str, indent: int) -> bool:
        """Return whether the line opens something other than running text, which is then skipped."""
        if _RULE.fullmatch(text) or text.startswith(("|", "+--", "+==")):
            self.close()
            self.skip_paragraph = not _UNDERLINE.fullmatch(text)
        elif text.startswith(_DOCTEST) or _INLINE_TABLE.match(text):
            self.close()
            self.skip_paragraph = True
        elif text.startswith(".."):
            self._directive(text, indent)
        elif text.startswith(("# ", "## ", "### ", "<")):
            self.close()
        elif _FIELD.match(text) or _ENTRY.match(text):
            self.close()
            self.skip_below = indent
        elif (match := _HEADING.match(text)) and match.group(1).lower() in _TABLES | _PROSE:
            self.close()
            self.skip_below = indent if match.group(1).lower() in _TABLES else None
            self.depth = indent + 4
        else:
            return False
        return True

    def _directive(self, text: str, indent: int) -> None:
        self.close()
        match = _DIRECTIVE.match(text)
        if match and match.group(1) in _PROSE:
            self.depth = indent + 4
            if match.group(2):
                self.open_lines, self.open_indent = [match.group(2)], indent + 3
        else:
            self.skip_below = indent

    def _running_text(self, row: int, text: str, indent: int) -> None:
        if bullet := _BULLET.match(text):
            self.close()
            text, indent, self.in_bullet = text[bullet.end() :], indent + bullet.end(), True
        elif not self.open_lines and indent > self.depth and indent > 0:
            self.skip_paragraph = True  # an indented block: code or a drawing
            return
        elif self.open_lines and indent > self.open_indent and not self.in_bullet:
            # A definition: the term alone is not a sentence.
            self.open_lines = [] if len(self.open_lines) == 1 else self.open_lines
            self.close()
        if not self.open_lines:
            text = text[match.end() :] if (match := _INLINE_PROSE.match(text)) else text
            self.open_row, self.open_indent = row, indent
            self.depth = min(self.depth, indent)
        self.open_lines.append(text)
        if text.endswith("::"):
            self.close()
            self.skip_below = indent
