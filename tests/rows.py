"""One test over the rows of a table, where an item for each row would only cost time."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stillhouse.core.artifacts import Workspace

Test = Callable[..., None]


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with every row, as one item; what fails is named by its row.

    Each row has a ``tmp_path``, a ``workspace`` and a ``monkeypatch`` of its own, and an empty
    ``capsys``. All other fixtures are shared.

    Args:
        names: The test's arguments that are the columns of the table.
        rows: A value for one column, a tuple for several.
    """
    columns, table = (names,) if isinstance(names, str) else names, list(rows)
    assert table, "a table without rows tests nothing"

    def over_rows(test: Test) -> Test:
        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            __tracebackhide__ = True
            failed: list[BaseException] = []
            for number, row in enumerate(table):
                values = dict(zip(columns, (row,) if isinstance(names, str) else row, strict=True))
                with pytest.MonkeyPatch.context() as patch:
                    try:
                        test(**_own(fixtures, number, patch), **values)
                    except (Exception, pytest.fail.Exception) as error:
                        error.add_note(f"row {number}: {values}")
                        failed.append(error)
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows fail", failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        assert len(kept) + len(columns) == len(signature.parameters), f"{columns}: not all are arguments"
        whole.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return whole

    return over_rows


def _own(fixtures: dict[str, Any], number: int, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace what a row must not share with the others."""
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = fixtures["tmp_path"] / f"row-{number}"
        own["tmp_path"].mkdir()
    if "workspace" in own:
        own["workspace"] = Workspace(fixtures["workspace"].root / f"row-{number}")
    if "monkeypatch" in own:
        own["monkeypatch"] = patch
    if "capsys" in own:
        own["capsys"].readouterr()
    return own
