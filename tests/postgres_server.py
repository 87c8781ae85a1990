"""A Postgres on this machine for tests, where one is installed."""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from mlflow_process import free_port

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
BIN = Path(found).resolve().parent if (found := shutil.which("initdb")) else (_FOUND[-1] if _FOUND else None)


class Postgres:
    """A server with one user, whose databases are made by their names.

    Args:
        folder: Where it keeps its files, empty.

    Attributes:
        password: Of the user ``team``.
    """

    def __init__(self, folder: Path) -> None:
        assert BIN is not None
        self.bin, self.folder, self.port = BIN, folder, free_port()
        self.password = secrets.token_hex(12)
        self._user = pwd.getpwnam("postgres") if os.getuid() == 0 else None  # It refuses to run as root.
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        file = folder / "password"
        file.write_text(self.password)
        file.chmod(0o644)
        options = ["--auth=scram-sha-256", "--username=team", f"--pwfile={file}", "--no-sync"]
        done = self._begun("initdb", f"--pgdata={folder}/data", "--no-locale", "--encoding=UTF8", *options)
        assert done.wait(120) == 0, (folder / "log").read_text()
        self.start()

    def url(self, database: str) -> str:
        """Address of a database, as SQLAlchemy reads it."""
        return f"postgresql+psycopg://team:{self.password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder))
        self.process = self._begun("postgres", "-D", f"{self.folder}/data", "-F", *where)
        deadline = time.monotonic() + 60
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready).returncode:
            assert self.process.poll() is None and time.monotonic() < deadline, (
                self.folder / "log"
            ).read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        """End it as a system does that shuts down: clients are cut off."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0

    def signalled(self, number: int) -> None:
        """Send a signal to it and to the processes that serve its clients."""
        server = psutil.Process(self.process.pid)
        for each in (server, *server.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def create(self, database: str) -> str:
        """Make a database, and return its address."""
        self.asked("postgres", f"CREATE DATABASE {database}")
        return self.url(database)

    def asked(self, database: str, query: str) -> str:
        """The answer to a query, a line per row."""
        where = f"-h 127.0.0.1 -p {self.port} -U team -d {database}"
        words = [str(self.bin / "psql"), *where.split(), "-tAc", query]
        environment = {**os.environ, "PGPASSWORD": self.password}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _begun(self, program: str, *words: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self.bin / program), *words],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
            )


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server as long as the block runs; its files go with it. Without one, the test is skipped."""
    if BIN is None or importlib.util.find_spec("psycopg") is None:
        pytest.skip("needs a Postgres (Debian's package `postgresql`) and the extra `postgres`")
    # The folders of pytest are closed to its user.
    with tempfile.TemporaryDirectory(prefix="postgres-", dir="/tmp") as folder:
        server = Postgres(Path(folder))
        try:
            yield server
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                server.signalled(signal.SIGCONT)
                server.signalled(signal.SIGKILL)
            server.process.wait(30)
