"""Experiments whose teacher is behind an endpoint, from the command line to the student."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import DIM, Handler, Loopback, loopback, status, vector_of
from rows import each_row

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import load_method
from stillhouse.preflight.examination import examine
from stillhouse.sweeps.checks import check_plans
from stillhouse.teachers.store import open_store
from stillhouse.values.data import Endpoint

KEY = "sk-hush-0815-nobody-may-read-this"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.delenv("STILLHOUSE_API_KEY", raising=False)
    with loopback() as running:
        yield running


@pytest.fixture
def by_endpoint(experiment: Experiment, server: Loopback) -> Experiment:
    """The small experiment with an endpoint as its teacher."""
    given = {
        "teacher.name": "all-MiniLM-L6-v2",
        "teacher.endpoint": server.url,
        "teacher.model": "large",
        "teacher.requests.pause": 0.001,
        "teacher.requests.attempts": 2,
        "student.checkpoint": experiment.teacher.name,
    }
    return changed(experiment, given)


def test_texts_are_sent_with_the_prompt_of_their_role(
    by_endpoint: Experiment, workspace: Workspace, server: Loopback
) -> None:
    given = changed(by_endpoint, {"sentences.role": "query", "teacher.prompts.query": "query: "})
    prepared = prepare(given, workspace, Embedding(local=True))
    assert isinstance(prepared.setting.teacher, Endpoint) and prepared.setting.teacher_dim == DIM
    assert prepared.setting.student.kwargs["normalize"] is True
    store = prepared.setting[Sentences].only_store
    assert store.prompt == "query: " and prepared.facts["teacher_prompts"] == "query 'query: '"
    reader, texts = open_store(workspace, store), open_texts(workspace, store.texts)
    expected = np.stack([vector_of(f"query: {text}") for text in texts])
    np.testing.assert_allclose(reader.gather(reader.rows), expected, atol=1e-3)
    sent = [text for text in server.asked if text.startswith("query: ")]
    assert len(sent) == len(server.asked) - 1 and set(server.asked.values()) == {1}
    # The same command asks for nothing but the dimension.
    before = len(server.seen)
    assert prepare(given, workspace, Embedding(local=True)).setting == prepared.setting
    assert len(server.seen) == before + 1
    plain = prepare(by_endpoint, workspace, Embedding(local=True)).setting[Sentences].only_store
    assert plain.fingerprint != store.fingerprint


def test_requests_have_what_the_role_of_their_texts_asks_for(
    by_endpoint: Experiment, workspace: Workspace, server: Loopback
) -> None:
    body = {"teacher.body.query": {"input_type": "query", "model": "small"}}
    given = changed(by_endpoint, {"sentences.role": "query", **body})
    assert changed(given, {}) == given, "it is kept as a text that is read again"
    store = prepare(given, workspace, Embedding(local=True)).setting[Sentences].only_store
    assert {(asked["model"], asked["input_type"]) for asked, _ in server.seen} == {("small", "query")}
    server.seen.clear()
    plain = prepare(changed(given, {"sentences.role": ""}), workspace, Embedding(local=True))
    assert plain.setting[Sentences].only_store.fingerprint != store.fingerprint
    assert all("input_type" not in asked for asked, _ in server.seen[1:])
    bare = prepare(changed(by_endpoint, {"sentences.role": "query"}), workspace, Embedding(local=True))
    assert bare.setting[Sentences].only_store.fingerprint != store.fingerprint, "the body is part of the key"


def test_doctor_shows_the_dimension_and_the_cosines_and_asks_for_prompts(
    by_endpoint: Experiment, workspace: Workspace, server: Loopback
) -> None:
    method = load_method("mse")

    def found(**changes: Any) -> str:
        asked = changed(by_endpoint, {f"teacher.{name}": value for name, value in changes.items()})
        findings = examine(method, method.HyperParameters(batch_size=16), asked, workspace)
        return "\n".join(map(str, findings))

    before = len(server.seen)
    told = found()
    assert f"of 8 different texts have {DIM} dimensions and cosines of" in told and "prompts" not in told
    assert len(server.seen) <= before + 3, "a few requests, not one for every text"
    assert "nomic-embed-text was trained with prompts" in found(model="nomic-embed-text")


def test_what_needs_a_model_is_refused(by_endpoint: Experiment, workspace: Workspace) -> None:
    check_plans(load_method("ibkd"), by_endpoint, [{"distil_batch_size": 16}])
    with pytest.raises(BadInput, match=r"pkd runs or trains the teacher .* teacher='large'"):
        check_plans(load_method("pkd"), by_endpoint, [{}])
    with pytest.raises(BadInput, match=r"student\.checkpoint must be given"):
        prepare(changed(by_endpoint, {"student.checkpoint": ""}), workspace, Embedding(local=True))
    with pytest.raises(BadInput, match="needs the teacher as a model"):
        by_endpoint.teacher.finder.published()


@each_row(
    ("values", "message"),
    [
        ({"model": ""}, r"teacher\.model must be given with teacher\.endpoint"),
        ({"endpoint": "", "vectors": "a.parquet"}, r"teacher\.model must go with teacher\.endpoint"),
        ({"vectors": "a.parquet"}, r"vectors and teacher\.endpoint must not be given together"),
        ({"pooling": "cls"}, r"without what says how a model is run.*pooling='cls'"),
        ({"max_length": 9}, r"without what says how a model is run.*max_length=9"),
        ({"incomplete": True}, r"teacher\.incomplete must go with teacher\.vectors"),
        ({"body": {"query": "[1]"}}, r"teacher\.body\.query must be a mapping"),
        (
            {"body": {"plain": {"input": "a"}}},
            r"teacher\.body\.plain must leave out what requests have",
        ),
        ({"endpoint": "", "model": "", "body": {"plain": {"a": 1}}}, r"teacher\.body must go with teacher"),
        ({"prompts": {"query": "@query"}}, r"an endpoint must be texts: it has no prompts with names"),
        ({"endpoint": "far.example/v1"}, r"must be a URL such as https"),
        ({"endpoint": "http://far.example:x/v1"}, r"must be a URL such as https"),
        ({"endpoint": f"https://user:{KEY}@far.example/v1"}, r"without a user.*STILLHOUSE_API_KEY"),
        ({"endpoint": f"https://far.example/v1?api-key={KEY}"}, r"without a user, a password or parameters"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        experiment_of({"teacher": {"endpoint": "https://far.example/v1", "model": "large", **values}})
    assert KEY not in str(error.value)


def test_the_command_asks_for_a_key_and_writes_it_nowhere(
    by_endpoint: Experiment,
    server: Loopback,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sentences = by_endpoint.get(Sentences)
    teacher = by_endpoint.teacher
    command = [
        *("train", "mse", "--local", "--root", str(tmp_path / "runs"), "--json", str(tmp_path / "out.json")),
        *("--corpus", sentences.corpus, "--student", by_endpoint.student.checkpoint, "--max-length", "16"),
        *("--set", "sentences.held_out=20", "--set", "batch_size=8", "--distil-budget", "32"),
        *("--set", f"teacher.endpoint={teacher.endpoint}", "--set", "teacher.model=large"),
        *("--set", "teacher.requests.pause=0.001", "--set", "teacher.requests.price=0.5", "-v"),
    ]

    def needs_key(handler: Handler, body: dict[str, Any]) -> bool:
        sent = server.seen[-1][1].get("Authorization")
        return sent != f"Bearer {KEY}" and bool(status(401)(handler, body))

    server.always = needs_key
    assert main(command) == 2
    refused = capfd.readouterr().err
    assert "needs a key, which is not set in the environment variable STILLHOUSE_API_KEY" in refused
    assert not list((tmp_path / "runs").glob("corpora/*"))
    monkeypatch.setenv("STILLHOUSE_API_KEY", KEY)
    assert main(command) == 0
    printed = "".join(capfd.readouterr())
    assert "large at http://127.0.0.1" in printed and "0.5 per million" in printed
    assert KEY not in printed
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "student.safetensors" for path in written)
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
