"""Optuna studies in files: made, opened, and opened only to be read."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from optuna.storages import RDBStorage

from stillhouse.core.artifacts import replacing

SEARCH = "search"
"""The attribute of a study that says what it searches: its ``space`` and ``objectives``."""
_METRIC_NAMES = "study:metric_names"
"""The attribute in which Optuna keeps what `Study.set_metric_names` is given."""


def open_study(path: Path, directions: Sequence[Any]) -> tuple[RDBStorage, int]:
    """Open the study in an SQLite file; return the storage, and the study's id in it.

    A file that does not exist is made. Its study has the name of its folder, and for each objective a
    direction, ``maximize`` or ``minimize``.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # Tables and indices are many transactions. Without the index of the studies' names, which a killed
        # process would not have made, every start would begin another study.
        with replacing(path) as temporary:
            _with_study(temporary, directions)[0].engine.dispose()
    return _with_study(path, directions)


def reading_storage(path: Path) -> RDBStorage:
    """Open an SQLite file as Optuna's storage only to read it, while its search may be writing."""

    def connection() -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=60, check_same_thread=False
        )

    return RDBStorage(
        "sqlite://",
        engine_kwargs={"creator": connection},
        skip_compatibility_check=True,
        skip_table_creation=True,
    )


@contextmanager
def study_read(path: Path) -> Iterator[tuple[RDBStorage, int]]:
    """Open the study in a file only to read it."""
    storage = reading_storage(path)
    try:
        yield storage, _only_study(storage)
    finally:
        storage.engine.dispose()


def copy_attributes(attributes: Mapping[str, Any], storage: RDBStorage, study: int) -> None:
    """Give a study those user attributes that it lacks or has otherwise."""
    known = storage.get_study_user_attrs(study)
    for name, value in attributes.items():
        if known.get(name) != value:
            storage.set_study_user_attr(study, name, value)
    if SEARCH in attributes:  # By these names optuna-dashboard shows the objectives.
        names = [name for name, _ in attributes[SEARCH]["objectives"]]
        storage.set_study_system_attr(study, _METRIC_NAMES, names)


def _with_study(path: Path, directions: Sequence[Any]) -> tuple[RDBStorage, int]:
    """Open an SQLite file as Optuna's storage; tables and the study are made if there are none."""
    storage = RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": 60}})
    if storage.get_all_studies():
        return storage, _only_study(storage)
    name = path.parent.name
    study = optuna.create_study(storage=storage, study_name=name, directions=directions)
    return storage, study._study_id


def _only_study(storage: RDBStorage) -> int:
    (study,) = storage.get_all_studies()
    return int(study._study_id)
