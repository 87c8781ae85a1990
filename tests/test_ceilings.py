"""The size of the package in counts that only fall: whatever adds a room or a name twice deletes another."""

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "platform" / "stillhouse"
FILES = sorted(PACKAGE.rglob("*.py"))
CEILINGS = {
    "lines": 66_537,
    "rooms": 18,
    "names of several files": 14,
    "imports within functions": 227,
    "questions about the kind of a teacher or store": 0,
    "longest function": 58,
}
KINDS = {
    *("Endpoint", "Ensemble", "Member", "Model", "Outside", "Store", "StoreEnsemble", "StoreMix"),
    *("TableStore", "Teacher", "VectorFiles"),
}
"""Kinds of teachers and stores, which files outside of `values/` should not ask for."""
SLACK = 0.97
"""A count below this share of its ceiling must lower it."""


def counted() -> dict[str, int]:
    names = collections.Counter(path.name for path in FILES if path.name != "__init__.py")
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    nodes = {path: list(ast.walk(ast.parse(text))) for path, text in texts.items()}
    functions = [node for each in nodes.values() for node in each if isinstance(node, FUNCTIONS)]
    return {
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "rooms": sum(path.parent.parent == PACKAGE for path in FILES if path.name == "__init__.py"),
        "names of several files": sum(number > 1 for number in names.values()),
        "imports within functions": len({id(node) for each in functions for node in imports(each)}),
        "questions about the kind of a teacher or store": sum(
            asks_for_kind(node)
            for path, each in nodes.items()
            if path.parent.name != "values"
            for node in each
        ),
        "longest function": max(code_lines(each) for each in functions),
    }


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def imports(function: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def asks_for_kind(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    return called and bool(KINDS & {each.id for each in ast.walk(node) if isinstance(each, ast.Name)})


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    first = function.body[1:] if ast.get_docstring(function) else function.body
    return (first[-1].end_lineno or 0) - first[0].lineno + 1 if first else 0


def test_no_count_is_above_its_ceiling_or_far_below() -> None:
    found = counted()
    assert {name: number for name, number in found.items() if number > CEILINGS[name]} == {}
    low = {name: number for name, number in found.items() if number < SLACK * CEILINGS[name] - 1}
    assert low == {}, "lower their ceilings"
