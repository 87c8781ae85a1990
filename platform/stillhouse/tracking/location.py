"""Where MLflow keeps its runs: the address, and the database of a workspace."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from stillhouse.core.artifacts import lock_of_file, locked, replacing
from stillhouse.core.console import say, warn
from stillhouse.core.databases import damage_of_database, put_aside_database
from stillhouse.core.errors import BadInput, require
from stillhouse.core.integrity import moved
from stillhouse.core.redaction import redacted

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}

_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")
_NEED_DRIVERS = ("postgresql", "mysql", "mssql")
ARTIFACTS = "mlartifacts"
_LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Columns in which MLflow's database states where artifacts are, as absolute URIs."""
_OWN_LOCATIONS = """
    SELECT DISTINCT e.artifact_location FROM experiments e
    JOIN runs r ON r.experiment_id = e.experiment_id
    JOIN tags t ON t.run_uuid = r.run_uuid
    WHERE t.key = ?
"""


def own_database(root: Path) -> Path:
    """Return the file of the workspace's own database of runs."""
    return root.resolve() / "mlflow.db"


def tracking_uri(root: Path) -> str:
    """Return ``$MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the workspace.

    Raises:
        BadInput: A plain folder, which MLflow 3 no longer accepts, a scheme that it does not know, or a
            database whose driver is not installed.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI", "").strip() or f"sqlite:///{own_database(root)}"
    scheme = uri.partition("://")[0].partition("+")[0]
    require(
        "://" in uri and scheme in _SCHEMES,
        "MLFLOW_TRACKING_URI must be the URI of a database or a server",
        MLFLOW_TRACKING_URI=redacted(uri),
        remedy="Use sqlite:////folder/mlflow.db or http://host:port; MLflow keeps no runs in plain folders.",
    )
    if scheme in _NEED_DRIVERS:
        require_driver(uri, "MLFLOW_TRACKING_URI")
    return uri


def require_driver(uri: str, variable: str) -> None:
    """Refuse a database, named by an environment variable, that no installed package can reach."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import NoSuchModuleError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except (ImportError, NoSuchModuleError) as error:
        raise BadInput(
            f"the driver of the database must be installed, but for {variable}={redacted(uri)}: "
            f"{error}. For Postgres: pip install 'stillhouse[postgres]', and "
            "postgresql+psycopg://user@host/database."
        ) from None


def prepare(uri: str, *, upgrade: bool = False) -> None:
    """Create an SQLite database atomically, or with ``upgrade`` migrate an older one; else do nothing.

    MLflow's migrations are neither atomic nor safe against a second process: they run in a child process on
    a temporary file, which then replaces the database.
    """
    path = sqlite_path(uri)
    if path is None or (path.exists() and not upgrade):
        return
    with locked(lock_of_file(path)):
        if path.exists() and not upgrade:
            return
        for scrap in path.parent.glob(f".{path.name}.*.tmp*"):
            scrap.unlink(missing_ok=True)
        with replacing(path) as temporary:
            if path.exists():
                with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(temporary)) as new:
                    old.backup(new)
            command = [sys.executable, "-P", "-m", "mlflow", "db", "upgrade", f"sqlite:///{temporary}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise RuntimeError(f"`mlflow db upgrade` failed: {done.stderr[-500:]}")


def put_aside_damaged(uri: str) -> None:
    """Move a damaged SQLite database to the quarantine; each sweep sends its runs to the one made anew."""
    path = sqlite_path(uri)
    if path is None or not path.exists():
        return
    with locked(lock_of_file(path)):
        if problem := damage_of_database(path):
            warn(
                f"{path} {problem}. {moved(put_aside_database(path))} It is made anew, and each sweep sends "
                "its runs to it as soon as its own command is run again."
            )


def artifact_location(uri: str) -> str | None:
    """Return the folder beside an SQLite database where its artifacts are; None for another URI."""
    path = sqlite_path(uri)
    return (path.parent / ARTIFACTS).as_uri() if path else None


def relocate(uri: str, tag: str) -> None:
    """Let the database of a workspace that was moved or copied name the artifacts that lie beside it.

    MLflow states absolute places: without this, a copy would read and write the original's artifacts. Only
    experiments of ours are changed, whose runs have the tag, and only if artifacts came along with the
    database. Another kind of database is left alone.
    """
    path, here = sqlite_path(uri), artifact_location(uri)
    if path is None or here is None or not (path.parent / ARTIFACTS).is_dir():
        return
    with closing(sqlite3.connect(path, timeout=60)) as database:
        own = [place for (place,) in database.execute(_OWN_LOCATIONS, (tag,))]
        for there in own:
            if there and there != here and there.startswith("file:") and there.endswith(f"/{ARTIFACTS}"):
                with database:
                    changed = sum(_repoint(database, column, there, here) for column in _LOCATIONS)
                say(f"{path} was moved from {there}: {changed:,} places of artifacts now name {here}")


def _repoint(database: sqlite3.Connection, column: tuple[str, str], there: str, here: str) -> int:
    table, name = column
    done = database.execute(
        f"UPDATE {table} SET {name} = ? || substr({name}, ?) WHERE {name} = ? OR substr({name}, 1, ?) = ?",
        (here, len(there) + 1, there, len(there) + 1, f"{there}/"),
    )
    return done.rowcount


def sqlite_path(uri: str) -> Path | None:
    """Return the file of an SQLite URI; None for another URI, or for a database in memory."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return Path(found[1]).absolute() if found and found[1] != ":memory:" else None
