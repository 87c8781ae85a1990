"""Stores from an endpoint: every fault of a server, kills in between, counts, and a key written nowhere."""

import dataclasses
import multiprocessing
import pickle
import signal
import time
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from loopback import (
    DIM,
    Fault,
    Handler,
    Loopback,
    answer,
    changed,
    hangs_up,
    loopback,
    status,
    too_late,
    vector_of,
)
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_json, read_manifest
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.corpora.tables import open_texts, write_texts
from stillhouse.teachers import client as asking
from stillhouse.teachers.client import Client, found_out
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.store import open_store, verify_store
from stillhouse.values.data import Endpoint, Requests, Store

KEY = "sk-hush-4711-nobody-may-read-this"
QUICK = Requests(batch=3, at_once=2, timeout=5, attempts=4, pause=0.001)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STILLHOUSE_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


@pytest.fixture
def endpoint(server: Loopback) -> Endpoint:
    return Endpoint(server.url, "large", normalize=True, width=DIM, name="large", requests=QUICK)


@pytest.fixture
def few(workspace: Workspace, endpoint: Endpoint) -> Store:
    """The plan of a store of 23 texts in three shards."""
    table = write_texts(workspace, "few", [f"text {row}" for row in range(23)], rows_per_shard=10)
    return Store(table, endpoint, dtype="float32")


def asked_for(store: Store, **changes: Any) -> Store:
    """A store whose endpoint is asked in another way."""
    assert isinstance(store.teacher, Endpoint)
    requests = dataclasses.replace(store.teacher.requests, **changes)
    return dataclasses.replace(store, teacher=dataclasses.replace(store.teacher, requests=requests))


def check(workspace: Workspace, store: Store, prompt: str = "") -> None:
    """Every text has its own vector, once."""
    assert verify_store(workspace.path(store)) == []
    texts, reader = list(open_texts(workspace, store.texts)), open_store(workspace, store)
    assert reader.rows.tolist() == list(range(len(texts)))
    expected = np.stack([vector_of(prompt + text) for text in texts])
    np.testing.assert_allclose(reader.gather(reader.rows), expected, atol=1e-6)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_every_text_has_its_vector(
    encoding: str, workspace: Workspace, few: Store, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int]] = []
    server.delay = 0.05
    store = asked_for(few, encoding=encoding, price=20.0)
    build_stores(workspace, [store], local=True, progress=lambda *now: seen.append(now[:2]))
    check(workspace, store)
    assert seen == [(10, 23), (20, 23), (23, 23)]
    assert all(count == 1 for count in server.asked.values()) and len(server.asked) == 23
    assert server.most == 2, "requests run side by side, within the bound"
    assert {len(body["input"]) for body, _ in server.seen} == {1, 3}
    assert {body["encoding_format"] for body, _ in server.seen} == {encoding}
    assert not any("Authorization" in headers for _, headers in server.seen)
    printed = capsys.readouterr().err
    assert "large: 23 texts, 46 tokens, 0.00092 at 20 per million, 9 requests\n" in printed
    manifest = read_manifest(workspace.path(store))
    assert (manifest["tokens"], manifest["rows"], manifest["dim"]) == (46, 23, DIM)
    assert manifest["teacher"] == {"name": "large", "url": server.url, "model": "large"}


def test_how_it_is_asked_is_not_part_of_the_identity(few: Store, endpoint: Endpoint) -> None:
    assert asked_for(few, batch=1, at_once=9, encoding="base64").fingerprint == few.fingerprint
    others = [
        dataclasses.replace(endpoint, model="small"),
        dataclasses.replace(endpoint, url="http://elsewhere/v1"),
        dataclasses.replace(endpoint, kept=4),
        dataclasses.replace(endpoint, rescaled=True),
    ]
    stores = [few, *(dataclasses.replace(few, teacher=each) for each in others)]
    stores.append(dataclasses.replace(few, prompt="query: "))
    assert len({store.fingerprint for store in stores}) == 6


def test_the_prompt_is_put_in_front(workspace: Workspace, few: Store, server: Loopback) -> None:
    store = dataclasses.replace(few, prompt="query: ")
    build_stores(workspace, [store, few], local=True)
    check(workspace, store, "query: ")
    check(workspace, few)
    assert sum(text.startswith("query: ") for text in server.asked) == 23


def garbage(body: Mapping[str, Any]) -> bytes:
    return b"<html>busy</html>"


FAULTS: Mapping[str, Fault] = {
    "too many": status(429),
    "too many, later": status(429, Retry_After="0.2"),
    "overloaded": status(503),
    "internal error": status(500, b"oh"),
    "too late": too_late(0.6),
    "hangs up": hangs_up,
    "garbage": changed(garbage),
    "an error in JSON": changed(lambda _: {"error": "busy"}),
    "a list": changed(lambda _: []),
    "a vector less": changed(lambda right: {**right, "data": right["data"][1:]}),
    "a vector more": changed(lambda right: {**right, "data": [*right["data"], right["data"][0]]}),
    "an index twice": changed(
        lambda right: {**right, "data": [{**row, "index": 0} for row in right["data"]]}
    ),
    "no index": changed(lambda right: {"data": [{"embedding": row["embedding"]} for row in right["data"]]}),
    "no numbers": changed(lambda right: {"data": [{**row, "embedding": "%%"} for row in right["data"]]}),
    "nothing": changed(lambda right: {"data": [{**row, "embedding": None} for row in right["data"]]}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_passing_fault_is_mended(
    name: str, workspace: Workspace, few: Store, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = [FAULTS[name]]
    store, begun = asked_for(few, timeout=0.3 if name == "too late" else 5), time.monotonic()
    build_stores(workspace, [store], local=True)
    check(workspace, store)
    assert "1 failed and repeated" in capsys.readouterr().err
    assert all(count == 1 for count in server.asked.values())
    if name == "too many, later":
        assert time.monotonic() - begun > 0.2


@pytest.mark.parametrize("name", ["too many", "too late", "hangs up", "garbage", "a vector less"])
def test_a_lasting_fault_ends_with_one_message_and_the_rest_is_resumed(
    name: str, workspace: Workspace, few: Store, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    store = asked_for(few, timeout=0.2, at_once=1)
    # The first shard's four requests are answered, and nothing after them.
    server.faults = [lambda *_: False] * 4
    server.always = FAULTS[name]
    with pytest.raises(Hindered, match=r"must answer, but after 4 attempts .*run the same command again"):
        build_stores(workspace, [store], local=True)
    printed = capsys.readouterr().err
    assert "large: 10 texts, 20 tokens, 4 requests, 3 failed and repeated" in printed
    folder = workspace.path(store)
    assert [path.name for path in folder.glob("part-*")] == ["part-00000.arrow"]
    server.always = None
    before = dict(server.asked)
    build_stores(workspace, [store], local=True)
    check(workspace, store)
    assert {text: count for text, count in server.asked.items() if count > 1}.keys() <= before.keys()
    assert all(server.asked[f"text {row}"] == 1 for row in range(10)), "the finished shard is not asked again"
    assert read_manifest(folder)["tokens"] == 46


def test_nobody_answers(workspace: Workspace, few: Store) -> None:
    with loopback() as gone:
        url = gone.url
    store = dataclasses.replace(few, teacher=Endpoint(url, "large", requests=QUICK))
    with pytest.raises(Hindered, match="after 4 attempts it gave: URLError"):
        build_stores(workspace, [store], local=True)
    assert not list(workspace.path(store).glob("part-*"))


REFUSALS: Mapping[str, tuple[Fault, str]] = {
    "another dimension": (
        changed(lambda right: {"data": [{**row, "embedding": [1.0, 0.0]} for row in right["data"]]}),
        "must answer with vectors of 8, but got 2 numbers",
    ),
    "two dimensions": (
        changed(
            lambda right: {
                "data": [{**row, "embedding": row["embedding"][: 8 - row["index"]]} for row in right["data"]]
            }
        ),
        "must answer with vectors of 8, but got 6, 7, 8 numbers",
    ),
    "no such model": (status(404, {"error": "no model large"}), "refused with status 404, .*no model large"),
    "a bad request": (status(400), r"refused with status 400.*sentences\.max_words.*requests\.batch"),
    "elsewhere": (status(302, b"-", Location="http://127.0.0.1:9/v1/embeddings"), "refused with status 302"),
    "a key is needed": (
        status(401),
        "needs a key, which is not set in the environment variable STILLHOUSE_API",
    ),
    "not of length 1": (
        changed(lambda right: {"data": [{**row, "embedding": [2.0] * 8} for row in right["data"]]}),
        r"one of length 5\.657\. Set teacher\.normalize",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_another_attempt_does_not_mend_is_refused_at_once(
    name: str, workspace: Workspace, few: Store, server: Loopback
) -> None:
    server.always, message = REFUSALS[name]
    with pytest.raises(BadInput, match=message):
        build_stores(workspace, [asked_for(few, at_once=1)], local=True)
    assert len(server.seen) <= 3, "nothing is asked after the refusal but one text, and one that must fit"
    assert not list(workspace.path(few).glob("part-*"))


def test_a_vector_that_is_no_number_is_set_aside(workspace: Workspace, few: Store, server: Loopback) -> None:
    def broken(handler: Handler, body: dict[str, Any]) -> bool:
        right = answer(body)
        for row in right["data"]:
            if body["input"][row["index"]] == "text 12":
                row["embedding"][3] = float("nan")
        handler.give(body, right)
        return True

    server.always = broken
    build_stores(workspace, [few], local=True)
    (aside,) = read_json(workspace.path(few) / "quarantine.json")
    assert aside["row"] == 12 and "NaN" in aside["reason"]
    assert read_manifest(workspace.path(few))["rows"] == 22


@pytest.mark.parametrize("text", ["text 0", "text 12"])
def test_a_text_that_the_endpoint_refuses_is_set_aside(
    text: str, workspace: Workspace, few: Store, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that is too long: the others of its request are asked for again, in halves."""
    refuse = status(413, {"error": "too long"})
    server.always = lambda handler, body: text in body["input"] and refuse(handler, body)
    build_stores(workspace, [few], local=True)
    (aside,) = read_json(workspace.path(few) / "quarantine.json")
    assert aside["row"] == int(text.split()[1]) and read_manifest(workspace.path(few))["rows"] == 22
    assert "one text is set aside, since" in capsys.readouterr().err


def test_a_vector_that_is_no_number_once_is_asked_for_again(server: Loopback) -> None:
    def broken(content: dict[str, Any]) -> dict[str, Any]:
        content["data"][0]["embedding"][3] = float("inf")
        return content

    client = Client(Endpoint(server.url, "large", requests=Requests(attempts=2, pause=0.001)))
    server.faults = [changed(broken)]
    vectors, _ = client.embed(["a", "b"])
    np.testing.assert_allclose(vectors, [vector_of("a"), vector_of("b")], atol=1e-6)
    assert client.count.repeated == 1
    server.always = changed(broken)
    with pytest.raises(Hindered, match="must answer with finite numbers"):
        found_out(Endpoint(server.url, "large", requests=Requests(attempts=2, pause=0.001)), None)


def test_pauses_grow_and_follow_what_is_asked(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    now = [100.0]
    monkeypatch.setattr("stillhouse.teachers.client.time.monotonic", lambda: now[0])
    requests = Requests(attempts=9, pause=1.0)
    client = Client(Endpoint(server.url, "large", requests=requests))
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        now[0] += seconds
        return False

    monkeypatch.setattr(client._stop, "wait", wait)
    server.faults = [
        *([status(503)] * 7),
        status(429, Retry_After=formatdate(time.time() + 90, usegmt=True)),
    ]
    vectors, _ = client.embed(["a"])
    assert waited[:7] == [1, 2, 4, 8, 16, 32, 60] and 80 < waited[7] <= 128 and len(waited) == 8
    np.testing.assert_allclose(vectors, [vector_of("a")], atol=1e-6)


def test_one_request_tells_dimension_and_length(server: Loopback) -> None:
    asked = Endpoint(server.url, "large", requests=QUICK)
    unit = found_out(asked, None)
    assert (unit.width, unit.normalize, unit.rescaled) == (DIM, True, False) and len(server.seen) == 1
    assert found_out(dataclasses.replace(asked, kept=4), None).dimension == 4
    assert server.seen[-1][0]["dimensions"] == 4
    told = found_out(dataclasses.replace(asked, kept=4), True)
    assert told.normalize and told.rescaled and len(server.seen) == 2, "nothing is asked that is known"
    server.always = changed(lambda right: {"data": [{"index": 0, "embedding": [3.0, 4.0]}]})
    assert not found_out(asked, None).normalize
    (vector,), _ = Client(found_out(asked, True)).embed(["a"])
    np.testing.assert_allclose(vector, [0.6, 0.8])
    with pytest.raises(BadInput, match="vectors of 4, but got 2 numbers"):
        found_out(dataclasses.replace(asked, kept=4), None)


def test_a_key_is_sent_and_written_nowhere(
    workspace: Workspace,
    few: Store,
    server: Loopback,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OUR_TOKEN", f" {KEY}\n")
    store = asked_for(few, key_variable="OUR_TOKEN")
    refused = {"error": {"message": f"Incorrect API key provided: {KEY}, {KEY[:12]}"}}
    messages = []
    server.always = status(401, refused)
    for fault in (
        status(401, refused),
        status(400, refused),
        status(503, refused),
        changed(lambda _: refused),
    ):
        server.always = fault
        with pytest.raises(BadInput) as error:
            build_stores(workspace, [store], local=True)
        messages.append(str(error.value) + repr(error.value.__cause__))
    assert "refuses the key in the environment variable OUR_TOKEN (status 401)" in messages[0]
    server.always = None
    build_stores(workspace, [store], local=True)
    assert all(headers["Authorization"] == f"Bearer {KEY}" for _, headers in server.seen)
    written = [path.read_bytes() for path in workspace.root.rglob("*") if path.is_file()]
    printed = "".join(capfd.readouterr())
    for content in [*written, *(text.encode() for text in (*messages, printed, repr(store)))]:
        assert KEY.encode() not in content
    assert KEY[:12] not in messages[0], "nothing of an answer to a refused key is repeated"
    assert KEY.encode() not in pickle.dumps(store)
    monkeypatch.setenv("OUR_TOKEN", f"{KEY}\nX-Other: 1")
    with pytest.raises(BadInput, match="must be one word of ASCII") as odd:
        Client(store.teacher)  # type: ignore[arg-type]
    assert KEY not in str(odd.value)


def test_a_key_over_an_open_line_is_warned_of(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_API_KEY", KEY)
    for url, warned in (
        ("http://far.example/v1", True),
        ("https://far.example/v1", False),
        (endpoint.url, False),
    ):
        asking.warn_of_open_key(dataclasses.replace(endpoint, url=url))
        assert ("unencrypted to far.example" in capsys.readouterr().err) == warned


def told_build(workspace: Workspace, store: Store, told: Connection) -> None:
    build_stores(workspace, [store], local=True, progress=lambda *now: told.send(now[0]))


def test_no_row_is_lost_or_doubled_by_kills_and_faults(
    workspace: Workspace, endpoint: Endpoint, server: Loopback
) -> None:
    texts = [f"text {row}" for row in range(203)]
    table = write_texts(workspace, "many", texts, rows_per_shard=20)
    store = asked_for(Store(table, endpoint, dtype="float32"), timeout=0.5, attempts=8)
    draw, kinds = np.random.default_rng(5), list(FAULTS.values())

    def sometimes(handler: Handler, body: dict[str, Any]) -> bool:
        with server.lock:
            pick = int(draw.integers(4 * len(kinds)))
        return pick < len(kinds) and kinds[pick](handler, body)

    server.always, server.delay = sometimes, 0.03
    fork, kills = multiprocessing.get_context("fork"), 0
    for after in (2, 3, 2):
        told, telling = fork.Pipe(duplex=False)
        process = fork.Process(target=told_build, args=(workspace, store, telling), daemon=True)
        process.start()
        for _ in range(after):
            assert told.poll(60) and told.recv()
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills == 3
    finished = len(list(workspace.path(store).glob("part-*.arrow")))
    assert 7 <= finished < 11, "each run goes on from where the one before was killed"
    build_stores(workspace, [store], local=True)
    server.always = None
    check(workspace, store)
    manifest = read_manifest(workspace.path(store))
    assert manifest["rows"] == 203 and manifest["tokens"] == 406
    assert set(texts) <= set(server.asked)


@each_row(
    ("values", "message"),
    [
        ({"batch": 0}, r"teacher\.requests\.batch >= 1"),
        ({"attempts": 0}, r"teacher\.requests\.attempts >= 1"),
        ({"timeout": 0.0}, r"teacher\.requests\.timeout > 0"),
        ({"pause": -1.0}, r"teacher\.requests\.pause >= 0"),
        ({"encoding": "int8"}, r"teacher\.requests\.encoding in \(float, base64\)"),
        ({"key_variable": KEY}, r"key_variable must be the name of an environment variable"),
        (
            {"key_variable": "HOME"},
            r"key_variable must be the name of an environment variable, one that says",
        ),
    ],
)
def test_requests_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        Requests(**values)
    assert KEY not in str(error.value)


def test_a_refusal_ends_the_waiting_of_the_others(workspace: Workspace, few: Store, server: Loopback) -> None:
    long = asked_for(few, at_once=2, pause=60.0)
    server.faults, server.delay = [status(503), status(404)], 0.4  # both are under way before the first fails
    begun = time.monotonic()
    with pytest.raises(BadInput, match="status 404"):
        build_stores(workspace, [asked_for(long, batch=10)], local=True)
    assert time.monotonic() - begun < 20
