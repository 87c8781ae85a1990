"""Remotes: what is published is fetched as it was, and what is half published, or damaged, is not."""

import contextlib
import dataclasses
import errno
import http.server
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_store import Handler, object_store
from rows import each_row
from s3_server import CREDENTIALS, needs_moto, new_bucket

from stillhouse.core import remotes
from stillhouse.core.artifacts import FORMAT, MANIFEST, Workspace, locked, write_manifest
from stillhouse.core.console import Progress
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.notes import fetch_notes, publish_notes, write_note
from stillhouse.core.remotes import Remote, remote_at

PLATFORM = Path(remotes.__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Thing:
    """A small artifact."""

    fingerprint: str = "0123456789abcdef"
    kind: str = "things"
    label: str = "thing"


KEY = "things/thing-0123456789abcdef"


@pytest.fixture(params=["mounted", pytest.param("s3", marks=needs_moto)])
def remote(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    if request.param == "s3":
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        url = new_bucket()
    else:
        (tmp_path / "mounted").mkdir()
        url = str(tmp_path / "mounted")
    found = remote_at(url)
    assert found is not None
    found.check(FORMAT)
    return found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "_WAITS", (0.01, 0.01))


def made(workspace: Workspace, thing: Thing | None = None) -> Path:
    """Make the artifact as its makers do; nothing is published yet."""
    folder = workspace.place(thing or Thing())
    (folder / "part").mkdir(parents=True)
    (folder / "values.npy").write_bytes(b"a" * 20_000)
    (folder / "part" / "note.txt").write_text("a note")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "step.pt").write_bytes(b"of this node alone")
    (folder / "writer.lock").touch()
    write_manifest(folder, {"rows": 3})
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def objects(remote: Remote, key: str = KEY) -> dict[str, int]:
    return remote._sizes(key)


def test_what_is_published_is_fetched_as_it_was(remote: Remote, tmp_path: Path) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    folder = made(one)
    assert not remote.has(KEY) and not two.finished(Thing())
    assert one.finished(Thing()), "which publishes it"
    assert remote.has(KEY) and two.finished(Thing())
    here = content(folder)
    expected = {name: here[name] for name in ("values.npy", "part/note.txt", MANIFEST)}
    assert content(two.path(Thing())) == expected
    assert not (tmp_path / "two" / "fetching" / KEY).exists()


def test_a_reader_that_asks_for_the_path_alone_gets_the_files(remote: Remote, tmp_path: Path) -> None:
    one = Workspace(tmp_path / "one", remote)
    made(one)
    one.publish(Thing())
    folder = Workspace(tmp_path / "two", remote).path(Thing())
    assert (folder / MANIFEST).exists() and (folder / "values.npy").stat().st_size == 20_000


def test_what_a_killed_maker_left_goes_when_the_finished_artifact_comes(
    remote: Remote, tmp_path: Path
) -> None:
    """It had published all of it, and was killed before its own manifest had its name."""
    one = Workspace(tmp_path / "one", remote)
    made(one)
    one.publish(Thing())
    here = Workspace(tmp_path / "two", remote)
    folder = here.place(Thing())
    (folder / "checkpoints").mkdir(parents=True)
    for name in (f".{MANIFEST}.k2.tmp", "checkpoints/1.pt"):
        (folder / name).write_bytes(b"half")
    assert here.finished(Thing())
    assert not [path for path in folder.rglob("*") if path.suffix in (".tmp", ".pt")]


@pytest.mark.parametrize("is_made", [False, True])
def test_what_a_killed_maker_left_goes_though_a_store_is_not_fetched(
    is_made: bool, remote: Remote, tmp_path: Path
) -> None:
    store = Thing(kind="stores")
    made(Workspace(tmp_path / "one", remote), store)
    assert Workspace(tmp_path / "one", remote).finished(store), "which publishes it"
    here = Workspace(tmp_path / "two", remote)
    folder = here.place(store)
    folder.mkdir(parents=True)
    for name in (f".{MANIFEST}.k2.tmp", "part-00000.arrow"):
        (folder / name).write_bytes(b"half")
    lock, seen = folder.with_suffix(".lock"), []
    with locked(lock) if is_made else contextlib.nullcontext():
        thread = threading.Thread(target=lambda: seen.append(here.finished(store)))
        thread.start()
        thread.join()
    left = {f".{MANIFEST}.k2.tmp"} if is_made else set()
    assert seen == [True] and content(folder).keys() == {"part-00000.arrow", *left}


def test_the_manifest_is_the_last_thing_that_is_written(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    made(one)
    send, sent = Remote._send, []

    def interrupted(self: Remote, path: Path, name: str, moved: Any) -> None:
        if path.name == "note.txt":
            raise Hindered("the line is cut")
        send(self, path, name, moved)
        sent.append(path.name)

    with monkeypatch.context() as patched:
        patched.setattr(Remote, "_send", interrupted)
        with pytest.raises(Hindered, match="cut"):
            one.publish(Thing())
    assert objects(remote) and not remote.has(KEY), "half published"
    assert not two.finished(Thing()) and not (two.place(Thing()) / MANIFEST).exists()

    again: list[str] = []

    def noted(self: Remote, path: Path, name: str, moved: Any) -> None:
        again.append(path.name)
        send(self, path, name, moved)

    monkeypatch.setattr(Remote, "_send", noted)
    one.publish(Thing())
    assert set(again).isdisjoint(sent) and "note.txt" in again, "what is there is not sent again"
    assert two.finished(Thing())


@pytest.mark.parametrize("problem", ["bytes", "missing", "manifest"])
def test_files_that_are_not_those_of_the_manifest_are_refused(
    remote: Remote, tmp_path: Path, problem: str
) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    made(one)
    one.publish(Thing())
    (name,) = (each for each in objects(remote) if each.endswith("values.npy"))
    if problem == "bytes":
        remote.write(f"{KEY}/{name}", b"b" + b"a" * 19_999)
    elif problem == "missing":
        remote.remove(f"{KEY}/{name}")
    else:
        remote.write(f"{KEY}/{MANIFEST}", (remote.read(f"{KEY}/{MANIFEST}") or b"")[:-9])
    with pytest.raises(Hindered, match=r"must be those that its manifest names.*Remove that folder"):
        two.path(Thing())
    assert not (two.place(Thing()) / MANIFEST).exists()
    assert not (two.place(Thing()) / "values.npy").exists()
    remote.remove(KEY)
    assert not objects(remote) and not two.finished(Thing()), "as the message advises"


def test_a_file_name_that_leads_out_of_its_folder_is_refused(remote: Remote, tmp_path: Path) -> None:
    remote.complete({"../../escaped": remotes.File("0" * 64, 1)}, KEY)
    with pytest.raises(Hindered, match="outside"):
        Workspace(tmp_path / "two", remote).path(Thing())


@pytest.mark.parametrize(
    "manifest",
    [
        '{"files": {"a": {"sha256": 5, "bytes": 1}}}',
        '{"files": {"a": {"sha256": "0", "bytes": "1"}}}',
        '{"files": {"a\\u0000": {"sha256": "0", "bytes": 1}}}',
        "[" * 100_000,
    ],
    ids=["checksum", "size", "name", "depth"],
)
def test_a_manifest_that_was_written_by_somebody_else_is_refused(manifest: str, remote: Remote) -> None:
    remote.write(f"{KEY}/{MANIFEST}", manifest.encode())
    with pytest.raises(Hindered, match=r"manifest\.json .*is not"):
        remote.listed(KEY)


@pytest.mark.parametrize(("account", "key"), [("acct:x", "a2V5"), ("account", "no base64!")])
def test_credentials_of_azure_that_cannot_be_right_are_named(
    account: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", account)
    monkeypatch.setenv("AZURE_STORAGE_KEY", key)
    with pytest.raises(BadInput, match="must be"):
        Remote("az://container/folder").read("a")


def test_a_file_that_is_longer_than_stated_is_not_read_to_its_end(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remotes, "_BLOCK", 10)
    file, moved = remotes.File("0" * 64, 25), list[int]()
    remote.write(f"{KEY}/{file.place('a')}", b"x" * 1000)
    with pytest.raises(Hindered, match="its bytes are others"):
        remote._receive(KEY, "a", file, tmp_path / "a", moved.append)
    assert max(moved) <= 10 and sum(each for each in moved if each > 0) == 60, "twice"


def test_what_is_here_already_is_not_fetched(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    folder = made(one)
    one.publish(Thing())
    place = two.place(Thing())
    place.mkdir(parents=True)
    shutil.copy(folder / "values.npy", place)
    scratch = tmp_path / "two" / "fetching" / KEY / "part"
    scratch.mkdir(parents=True)  # what a killed fetch left
    shutil.copy(folder / "part" / "note.txt", scratch)
    fetched: list[str] = []
    receive = Remote._receive

    def noted(self: Remote, key: str, name: str, *rest: Any) -> None:
        fetched.append(name)
        receive(self, key, name, *rest)

    monkeypatch.setattr(Remote, "_receive", noted)
    assert two.finished(Thing()) and fetched == [MANIFEST]
    assert (place / "part" / "note.txt").read_text() == "a note"


def test_a_fetch_that_is_killed_in_the_middle_leaves_no_manifest(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    made(one)
    one.publish(Thing())
    replace, place, moved = os.replace, two.place(Thing()), []

    def killed(source: Path, target: Path) -> None:
        if Path(target).is_relative_to(place):
            moved.append(target)
            if len(moved) == 3:
                raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            two.path(Thing())
    assert not (place / MANIFEST).exists() and (place / "values.npy").exists()
    assert two.finished(Thing())


def test_a_damaged_file_is_fetched_again(remote: Remote, tmp_path: Path) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    made(one)
    one.publish(Thing())
    file = two.path(Thing()) / "values.npy"
    file.write_bytes(b"c" * 20_000)
    assert two.finished(Thing())
    assert file.read_bytes() == b"a" * 20_000


def test_what_is_being_made_here_is_left_alone(remote: Remote, tmp_path: Path) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    made(one)
    one.publish(Thing())
    lock, seen = two.place(Thing()).with_suffix(".lock"), []
    with locked(lock):
        thread = threading.Thread(target=lambda: seen.append(two.finished(Thing())))
        thread.start()
        thread.join()
        assert seen == [False] and not two.place(Thing()).exists()
        assert two.finished(Thing()), "its maker looks again once it holds the lock"


_FETCHER = """
import sys, time
from pathlib import Path
from stillhouse.core.artifacts import Workspace
from stillhouse.core.remotes import Remote
sys.path.insert(0, sys.argv[4])
from test_remotes import Thing
receive = Remote._receive
def slow(self, key, name, *rest):
    with open(sys.argv[3], "a") as log:
        log.write(name + "\\n")
    time.sleep(0.3)
    receive(self, key, name, *rest)
Remote._receive = slow
assert (Workspace(Path(sys.argv[1]), Remote(sys.argv[2])).path(Thing()) / "values.npy").exists()
"""


def test_two_processes_of_a_node_fetch_once(remote: Remote, tmp_path: Path) -> None:
    one = Workspace(tmp_path / "one", remote)
    made(one)
    one.publish(Thing())
    log = tmp_path / "fetched"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLATFORM), str(Path(__file__).parents[1])])}
    arguments = [str(tmp_path / "two"), remote.url, str(log), str(Path(__file__).parent)]
    both = [subprocess.Popen([sys.executable, "-c", _FETCHER, *arguments], env=env) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert sorted(log.read_text().split()) == sorted([MANIFEST, "values.npy", "part/note.txt"])


def test_what_fails_for_a_reason_that_may_pass_is_tried_again(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.write("note", b"a note")
    system, base = remotes._opened(remote.url, os.getpid())
    failures = [OSError("AWS Error NETWORK_CONNECTION"), OSError(errno.EIO, "input/output error")]

    class Shaky:
        def open_input_stream(self, path: str) -> Any:
            if failures:
                raise failures.pop()
            return system.open_input_stream(path)

    monkeypatch.setattr(remotes, "_opened", lambda url, process: (Shaky(), base))
    assert remote.read("note") == b"a note" and not failures
    failures += [OSError("AWS Error NETWORK_CONNECTION")] * 3
    with pytest.raises(Hindered, match="must answer"):
        remote.read("note")
    failures[:] = [OSError("AWS Error ACCESS_DENIED during GetObject")] * 2
    with pytest.raises(Hindered, match=r"credentials.*refuses"):
        remote.read("note")
    assert len(failures) == 1, "a refusal is not repeated"
    failures[:] = [OSError(errno.ENOSPC, "No space left on device")] * 2
    with pytest.raises(Hindered, match="is full"):
        remote.read("note")
    assert len(failures) == 1


def test_a_note_that_was_written_anew_reaches_the_other_nodes(remote: Remote, tmp_path: Path) -> None:
    one, two = (Workspace(tmp_path / name, remote) for name in ("one", "two"))
    for number, (node, other) in enumerate(((one, two), (one, two), (two, one)), 1):
        (node.root / "sources").mkdir(parents=True, exist_ok=True)
        write_note(node.root / "sources" / "a.json", {"texts": number})
        publish_notes(node)
        time.sleep(1.1)  # Object stores tell whole seconds.
        fetch_notes(other)
        assert json.loads((other.root / "sources" / "a.json").read_text()) == {"texts": number}


def test_a_remote_that_is_away_for_minutes_is_waited_for_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = remote_at(str(tmp_path))
    assert remote is not None
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(remotes, "_said_away", [-math.inf])
    monkeypatch.setenv(remotes.PATIENCE, "900")
    failures = [OSError("AWS Error NETWORK_CONNECTION")] * 6

    def action() -> str:
        if failures:
            raise failures.pop()
        return "answered"

    assert remote._patiently(action) == "answered"
    assert capsys.readouterr().err.count("does not answer (AWS Error NETWORK_CONNECTION)") == 1
    assert len(slept) == 6 and all(30 <= seconds <= 45 for seconds in slept[3:])
    monkeypatch.setenv(remotes.PATIENCE, "0")
    failures += [OSError("AWS Error NETWORK_CONNECTION")] * 6
    with pytest.raises(Hindered, match="must answer"):
        remote._patiently(action)
    assert len(failures) == 3


def test_a_long_transfer_says_how_far_it_is(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remotes, "_BLOCK", 1 << 20)
    monkeypatch.setattr(Progress, "every_s", 0.0)
    one = Workspace(tmp_path / "one", remote)
    folder = one.place(Thing())
    folder.mkdir(parents=True)
    (folder / "values.npy").write_bytes(os.urandom(5 << 20))
    write_manifest(folder, {})
    one.publish(Thing())
    Workspace(tmp_path / "two", remote).path(Thing())
    printed = capsys.readouterr().err
    assert f"  publishing {KEY}: 2 of 6 MB" in printed and f"  fetching {KEY}: 4 of 6 MB" in printed
    assert "6 of 6 MB" not in printed, (
        "the end is printed at once, and was printed for every block of a last megabyte"
    )


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Shells start background processes with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_signal_does_not_cut_a_file_that_is_being_written(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest without a byte was there, so that nobody published the folder again, or could fetch it."""
    write = Remote._write

    def slowly(self: Remote, name: str, blocks: Iterator[bytes]) -> None:
        def waiting() -> Iterator[bytes]:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            yield from blocks

        write(self, name, waiting())

    monkeypatch.setattr(Remote, "_write", slowly)
    for name in map(str, range(20)):  # The signal comes while the thread is started, or waited for.
        with pytest.raises(KeyboardInterrupt):
            remote.write(name, b"content")
        assert remote.read(name) == b"content"


def test_a_fetch_goes_on_with_what_is_published_meanwhile(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the checkpoints of a stage, of which the newest one wins."""

    def publish(text: str) -> None:
        (tmp_path / text).write_text(text)
        remote.replace({MANIFEST: tmp_path / text, "a.bin": tmp_path / text}, "stages/a")

    listed, coming = Remote.listed, ["three", "two"]

    def listed_before(self: Remote, key: str) -> Any:
        found = listed(self, key)
        now, coming[:] = coming[:], []
        while now:
            publish(now.pop())
        return found

    publish("one")
    monkeypatch.setattr(Remote, "listed", listed_before)
    assert remote.fetch("stages/a", tmp_path / "here", tmp_path / "scratch")
    assert (tmp_path / "here" / "a.bin").read_text() == "three"
    assert len([name for name in remote._sizes("stages/a") if name.endswith("a.bin")]) == 2


def test_names_and_removal(remote: Remote) -> None:
    for name in ("notes/b.json", "notes/a.json", "notes/deep/c.json"):
        remote.write(name, b"{}")
    assert remote.names("notes") == ["a.json", "b.json"] and remote.names("nothing") == []
    remote.remove("notes/a.json")
    remote.remove("notes/a.json")
    assert remote.names("notes") == ["b.json"] and remote.read("notes/a.json") is None


def test_a_remote_of_another_format_is_refused(remote: Remote) -> None:
    remote.check(FORMAT)
    with pytest.raises(BadInput, match=f"remotes of format {FORMAT + 1}.*has the format {FORMAT}"):
        remote.check(FORMAT + 1)
    assert remote.names("") == ["workspace.json"], "no probe is left"


@each_row("url", ["ftp://host/folder", "s3://", "s3:///folder", "http://host/x"])
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="the address of a remote must"):
        remote_at(url)
    assert remote_at("") is None


def test_a_folder_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    remote = remote_at(str(tmp_path / "nowhere"))
    assert remote is not None
    with pytest.raises(BadInput, match="there is no folder"):
        remote.check(FORMAT)
    assert not (tmp_path / "nowhere").exists(), "an empty folder would pass for the mounted one"


def test_secrets_of_the_address_are_not_shown(tmp_path: Path) -> None:
    remote = Remote("s3://AKIAEXAMPLE:verysecret@bucket/team?region=us-east-1")
    assert "verysecret" not in f"{remote} {remote!r} {Workspace(tmp_path, remote)!r}"


@pytest.mark.parametrize("remote", [pytest.param("s3", marks=needs_moto)], indirect=True)
def test_a_bucket_that_does_not_exist_is_refused(remote: Remote) -> None:
    name = remote.url.split("/")[2]
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"bucket.*must exist.*Create it"):
        Remote(remote.url.replace(name, "another-bucket")).check(FORMAT)
    assert time.monotonic() - began < 30


def address_of(port: int) -> str:
    return f"s3://key:word@bucket/team?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


@pytest.mark.parametrize("times", [1, 1000])
def test_a_file_that_the_remote_says_to_have_and_has_not_is_sent_again(times: int, tmp_path: Path) -> None:
    folder = made(Workspace(tmp_path / "a"))
    lost: list[str] = []

    def loses(request: Handler) -> bool:
        """Take a part of a file, say that all is well, and keep nothing."""
        if "partNumber" not in request.path or len(lost) == times:
            return False
        lost.append(request.path)
        request.body()
        request.send(200, b"", ETag='"0"', Connection="close")
        return True

    with object_store() as server:
        remote = Remote(f"s3://key:word@bucket/team{server.options}")
        server.fault = loses
        if times > 1:
            with pytest.raises(Hindered, match=r"it was given \d+ bytes of .* and has none"):
                remote.publish(folder, KEY)
            assert not remote.has(KEY)
            return
        remote.publish(folder, KEY)
        assert lost and remote.fetch(KEY, tmp_path / "b", tmp_path / "coming")
    assert content(tmp_path / "b") == {
        name: data for name, data in content(folder).items() if not name.startswith(("check", "writer"))
    }


@pytest.fixture
def refusing() -> Iterator[int]:
    """A server that denies everything."""

    class Denied(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, *arguments: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denied)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


def test_credentials_that_are_refused_are_named(refusing: int) -> None:
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"readable and writable.*refuses.*Check the credentials") as refused:
        Remote(address_of(refusing)).check(FORMAT)
    assert "word" not in str(refused.value) and time.monotonic() - began < 30


@pytest.mark.parametrize("scheme", ["gs", pytest.param("s3", marks=pytest.mark.long)])
def test_an_address_where_nothing_answers_is_refused(scheme: str) -> None:
    """The client of S3 tries for six seconds, which cannot be set."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    google = f"gs://anonymous@bucket/team?endpoint_override=127.0.0.1:{port}&scheme=http"
    addresses = {"gs": f"{google}&retry_limit_seconds=0.1", "s3": address_of(port)}
    began = time.monotonic()
    with pytest.raises(BadInput, match="must answer"):
        Remote(addresses[scheme]).check(FORMAT)
    assert time.monotonic() - began < 30


def test_a_remote_that_accepts_but_never_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "_ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(BadInput, match="must answer, but did not within 1 s"):
            Remote(address_of(silent.getsockname()[1])).check(FORMAT)


def test_a_remote_that_is_full_or_read_only_is_refused(small_disk: Path, tmp_path: Path) -> None:
    remote = Remote(str(small_disk))
    remote.check(FORMAT)
    (small_disk / "others").write_bytes(b"a" * 249_000)
    one = Workspace(tmp_path / "one", remote)
    made(one)
    with pytest.raises(Hindered, match=r"room in the remote.*full"):
        one.publish(Thing())
    assert not remote.has(KEY), "too large"
    with pytest.raises(OSError), (small_disk / "more").open("wb", buffering=0) as file:
        while True:
            file.write(b"a" * 4096)
    with pytest.raises(BadInput, match=r"room in the remote.*full"):
        remote.check(FORMAT)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(BadInput, match=r"readable and writable.*Read-only"):
        remote.check(FORMAT)
