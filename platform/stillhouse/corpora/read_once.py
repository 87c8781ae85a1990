"""A source is read once: a note names the tables, examples and collections that it became."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.core.artifacts import Workspace, locked
from stillhouse.core.identity import fingerprint
from stillhouse.core.notes import read_note, write_note
from stillhouse.corpora.reading.understood import Understood, recorded, restored
from stillhouse.values.data import Collection, Examples, Given, TextTable

T = TypeVar("T")
_NAMED = {kind.__name__: kind for kind in (TextTable, Given, Examples, Collection)}


def note_path(workspace: Workspace, label: str, signature: Mapping[str, Any]) -> Path:
    """Return the path of the note on what a source became; its signature is all that this depends on."""
    return workspace.root / "sources" / f"{label}-{fingerprint(signature)}.json"


def read_once(workspace: Workspace, note: Path, read: Callable[[], T], *, refresh: bool = False) -> T:
    """Return what a source became: what its note names, or what ``read`` returns; other processes wait.

    What was understood of the source is said again where the note is taken. It is not taken if one of the
    artifacts that it names is gone or damaged.

    Args:
        workspace: Holds the artifacts.
        note: See `note_path`.
        read: Reads the source, and writes the artifacts. It returns text tables, examples that came with the
            data, collections and plain JSON, in any nesting of mappings and tuples.
        refresh: Ignore the note.
    """
    with locked(note.with_suffix(".lock")):
        if not refresh and (kept := _sound(workspace, note)) is not None:
            found: T = kept[0]
            for each in kept[1]:
                each.say()
            return found
        with recorded() as understood:
            made = read()
        write_note(note, {"read": _plain(made), "understood": [each.noted() for each in understood]})
        return made


def noted(workspace: Workspace, note: Path) -> Any | None:
    """Return what a note says that a source became; None without a note, or without all of the artifacts."""
    kept = _sound(workspace, note)
    return None if kept is None else kept[0]


def _sound(workspace: Workspace, note: Path) -> tuple[Any, list[Understood]] | None:
    """Return what a source became and how it was understood; None as for `noted`."""
    content = read_note(note, "What it remembers is made again.") or {}
    with suppress(KeyError, TypeError):  # No note, or one of another version.
        found, understood = _value(content["read"]), list(map(restored, content["understood"]))
        return (found, understood) if all(map(workspace.finished, _artifacts(found))) else None
    return None


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; an artifact is a mapping from its class to its fields."""
    name = type(value).__name__
    if _NAMED.get(name) is type(value):
        return {name: {field.name: _plain(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _value(plain: Any) -> Any:
    """Return the value that `_plain` gave; sequences become tuples."""
    if isinstance(plain, dict):
        content = {key: _value(item) for key, item in plain.items()}
        (name, *others) = content or [""]
        return _NAMED[name](**content[name]) if name in _NAMED and not others else content
    return tuple(map(_value, plain)) if isinstance(plain, list) else plain


def _artifacts(value: Any) -> Iterator[TextTable | Examples | Collection]:
    """Yield the artifacts of a value, those that others name among them."""
    if isinstance(value, TextTable | Examples | Collection):
        yield value
        yield from _artifacts(vars(value))
    if isinstance(value, Mapping | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _artifacts(part)
