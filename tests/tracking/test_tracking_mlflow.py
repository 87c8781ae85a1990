import json
import logging
import os
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow_process import wait_for
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.tracking import BEST_SUFFIX, Row, View, reading
from stillhouse.tracking.location import prepare, relocate, tracking_uri
from stillhouse.tracking.mlflow_tracker import MLflowTracker
from stillhouse.tracking.reading import read_runs, say_pages, where_to_look

SWEEP, TRIAL, STAGE = ("s1",), ("s1", "t0"), ("s1", "t0", "ab12")
Open = Callable[[], MLflowTracker]


@pytest.fixture
def root(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("stillhouse.tracking.mlflow_tracker._BACKOFF_S", (0.05,))
    monkeypatch.setattr("stillhouse.tracking.mlflow_server._SETTLE_S", 0.05)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(database, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def opened(root: Path) -> Open:
    return lambda: MLflowTracker(tracking_uri(root), "tests", root / "sweep")


def client(root: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri(root))


def runs(root: Path) -> dict[str, Any]:
    found = client(root).search_runs([client(root).get_experiment_by_name("tests").experiment_id])
    by_name = {run.info.run_name: run for run in found}
    assert len(by_name) == len(found), "a run is duplicated"
    return by_name


def forget_connections() -> None:
    """Close MLflow's connections, as if each command were a process of its own."""
    from mlflow.store.model_registry import sqlalchemy_store as registry
    from mlflow.store.tracking import sqlalchemy_store as tracking

    for store in (tracking.SqlAlchemyStore, registry.SqlAlchemyStore):
        for engine in store._engine_map.values():
            engine.dispose()


def history(root: Path, run: Any, name: str) -> list[tuple[int, float, int]]:
    return [(m.step, m.value, m.timestamp) for m in client(root).get_metric_history(run.info.run_id, name)]


def record_all(tracker: MLflowTracker, steps: range) -> None:
    tracker.run(
        SWEEP, "sweep", {"space": {"tau": [0.1, 0.2]}}, {"git.revision": "abc-dirty"}, {"plan.json": {"x": 1}}
    )
    tracker.run(TRIAL, "trial 0", {"tau": 0.1})
    tracker.run(STAGE, "distil")
    rows = [Row(step, 1e9 + step, {"loss": 1 / (step + 1), "docsearch_cosine_mrr@10": 0.5}) for step in steps]
    tracker.metrics(STAGE, rows)


def test_sweep_trial_and_stage_runs_are_nested(root: Path, opened: Open) -> None:
    tracker = opened()
    record_all(tracker, range(1500))
    tracker.finish(STAGE)
    tracker.finish(TRIAL, "stopped early", "below the best third at 640 examples")
    tracker.finish(SWEEP, "failed", "one trial of one")
    assert tracker.close(300) == ""
    found = runs(root)
    sweep, trial, stage = found["sweep"], found["trial 0"], found["distil"]
    assert trial.data.tags["mlflow.parentRunId"] == sweep.info.run_id
    assert stage.data.tags["mlflow.parentRunId"] == trial.info.run_id
    assert sweep.data.params == {"space.tau": "[0.1, 0.2]"}
    assert sweep.data.tags["mlflow.source.git.commit"] == "abc"
    assert [run.info.status for run in (sweep, trial, stage)] == ["FAILED", "FINISHED", "FINISHED"]
    assert trial.data.tags["stillhouse.state"] == "stopped early"
    assert trial.data.tags["stillhouse.reason"].startswith("below")
    assert history(root, stage, "docsearch_cosine_mrr_at_10") == [
        (s, 0.5, (10**9 + s) * 1000) for s in range(1500)
    ]
    assert [f.path for f in client(root).list_artifacts(sweep.info.run_id)] == ["plan.json"]
    assert (root / "mlartifacts").is_dir()


def test_a_resumed_sweep_continues_in_the_same_runs(root: Path, opened: Open) -> None:
    tracker = opened()
    record_all(tracker, range(10))
    tracker.close(300)
    before = {name: run.info.run_id for name, run in runs(root).items()}
    tracker = opened()
    record_all(tracker, range(5, 15))
    tracker.finish(SWEEP)
    assert tracker.close(300) == ""
    found = runs(root)
    assert {name: run.info.run_id for name, run in found.items()} == before
    assert [step for step, _, _ in history(root, found["distil"], "loss")] == list(range(15))


def test_a_journal_sent_twice_changes_nothing(root: Path, opened: Open) -> None:
    tracker = opened()
    record_all(tracker, range(10))
    tracker.finish(STAGE)
    tracker.close(300)
    before = {name: (run.info.run_id, run.info.end_time, run.data.params) for name, run in runs(root).items()}
    (tracker.journal.folder / "confirmed.json").unlink()
    assert opened().close(300) == ""
    found = runs(root)
    assert {n: (r.info.run_id, r.info.end_time, r.data.params) for n, r in found.items()} == before
    assert len(history(root, found["distil"], "loss")) == 10


def test_a_damaged_database_is_made_anew_and_every_run_is_sent_again(
    root: Path,
    opened: Open,
    database: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prepare(uri: str, **_: Any) -> None:
        """Make the database as `database` was made, in no time."""
        if not (root / "mlflow.db").exists():
            shutil.copy(database, root / "mlflow.db")

    monkeypatch.setattr("stillhouse.tracking.mlflow_server.prepare", prepare)
    tracker = opened()
    record_all(tracker, range(10))
    assert tracker.close(300) == ""
    tracker = opened()
    record_all(tracker, range(20))
    tracker.finish(SWEEP)
    assert tracker.close(300) == ""
    content = (root / "mlflow.db").read_bytes()
    (root / "mlflow.db").write_bytes(content[: len(content) // 2])
    forget_connections()
    with pytest.raises(BadInput, match="it makes the database anew"):
        read_runs(tracking_uri(root), experiment="tests")
    assert opened().close(300) == ""
    told = capsys.readouterr().err
    assert "quarantine" in told and "It is made anew" in told
    found = runs(root)
    assert [step for step, _, _ in history(root, found["distil"], "loss")] == list(range(20))
    assert found["sweep"].info.status == "FINISHED"
    assert opened().close(300) == ""
    assert "damaged" not in capsys.readouterr().err
    assert {n: r.info.run_id for n, r in runs(root).items()} == {n: r.info.run_id for n, r in found.items()}


def test_a_description_is_set_once_and_replaced_by_a_later_one(root: Path, opened: Open) -> None:
    def describe(best_one: str) -> int:
        tracker = opened()
        record_all(tracker, range(3))
        for number in range(2):
            best = best_one == f"t{number}"
            mark = {"stillhouse.best_student": "yes" if best else "no"}
            name = f"trial {number}{BEST_SUFFIX if best else ''}"
            if number:
                tracker.run(("s1", f"t{number}"), f"trial {number}")
            tracker.describe(("s1", f"t{number}"), "best student", tags=mark, name=name)
        tracker.describe(SWEEP, "report", note=f"**Best student: {best_one}**")
        tracker.describe(SWEEP, "test", tags={"stillhouse.test.openings": "1"})
        tracker.finish(SWEEP)
        assert tracker.close(300) == ""
        return tracker.journal.size

    size = describe("t0")
    assert describe("t0") == size, "the same command again writes nothing"
    for _ in range(2):
        found = runs(root)
        assert set(found) == {"sweep", "trial 0 (best student)", "trial 1", "distil"}
        tags = found["sweep"].data.tags
        assert tags["mlflow.note.content"] == "**Best student: t0**"
        assert tags["stillhouse.test.openings"] == "1"
        assert found["sweep"].info.status == "FINISHED"
        (root / "sweep" / "confirmed.json").unlink()
        assert opened().close(300) == "", "the journal is sent again from its start"
    assert describe("t1") > size
    found = runs(root)
    assert set(found) == {"sweep", "trial 0", "trial 1 (best student)", "distil"}
    assert found["trial 0"].data.tags["stillhouse.best_student"] == "no"
    names = [run.name for run in read_runs(tracking_uri(root), experiment="tests")]
    assert sorted(names) == ["distil", "sweep", "trial 0", "trial 1"]


def test_views_match_those_saved_by_the_ui(root: Path, opened: Open) -> None:
    tracker = opened()
    record_all(tracker, range(3))
    tracker.run(("s1", "t1"), "trial 1", {"tau": 0.2})
    for number, quality in enumerate((0.25, 0.5)):
        tracker.metrics(("s1", f"t{number}"), [Row(1, 1e9, {"dev/docsearch_cosine_mrr@10": quality})])
    tracker.views(
        SWEEP, [View("Trials by mrr@10", "trial", ["dev/docsearch_cosine_mrr@10", "seconds"], ["tau"])]
    )
    assert tracker.close(300) == ""
    experiment = client(root).get_experiment_by_name("tests")
    metric = "dev/docsearch_cosine_mrr_at_10"
    assert experiment.tags["mlflow.experiment.primaryMetric.name"] == metric
    view = json.loads(experiment.tags["mlflow.sharedViewState.trials-by-mrr-10"])
    assert view["name"] == "Trials by mrr@10" and view["createdAt"] == view["updatedAt"] > 0
    state = json.loads(view["state"])
    assert state["selectedColumns"] == [f"metrics.`{metric}`", "metrics.`seconds`", "params.`tau`"]
    assert state["columnOrder"] == list(state["columnWidths"]) == state["selectedColumns"]
    listed = client(root).search_runs(
        [experiment.experiment_id],
        state["searchFilter"],
        order_by=[f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"],
    )
    assert [run.info.run_name for run in listed] == ["trial 1", "trial 0"]


def test_a_sweep_says_where_its_trials_are_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for sweep in ("one", "two"):
        tracker = MLflowTracker(tracking_uri(root), f"stillhouse-{sweep}", root / sweep)
        tracker.run((sweep,), sweep)
        tracker.views((sweep,), [View("Trials by mrr@10", "trial", ["dev/mrr"], [])])
        assert tracker.close(300) == ""
    number = client(root).get_experiment_by_name("stillhouse-two").experiment_id
    page = f"/#/experiments/{number}/runs?workflowType=machine_learning&viewStateShareKey=trials-by-mrr-10"
    here = f"http://127.0.0.1:5000{page}"
    other = where_to_look(tracking_uri(root), "two")
    assert other == f"mlflow ui --backend-store-uri '{tracking_uri(root)}' --host 127.0.0.1, then {here}"
    monkeypatch.setenv("STILLHOUSE_ROOT", str(root))
    assert where_to_look(tracking_uri(root), "two") == f"make ui, then {here}", "tests run in a checkout"
    say_pages()
    assert f"trials of two: {here}" in capsys.readouterr().out.splitlines()
    monkeypatch.setattr(reading, "_pages", lambda uri: {"stillhouse-two": page})
    remote = where_to_look("http://me:secret@tracking:5000/", "two")
    assert remote.endswith(f"@tracking:5000{page}") and "secret" not in remote and "make" not in remote
    assert "tracking:9" in where_to_look("http://tracking:9", "unknown")


def test_everything_is_resent_after_the_database_was_removed(
    root: Path, opened: Open, database: Path
) -> None:
    tracker = opened()
    record_all(tracker, range(10))
    tracker.close(300)
    other = root / "other"
    other.mkdir()
    shutil.copy(database, other / "mlflow.db")
    tracker.journal.confirm(tracking_uri(other), tracker.journal.size)
    assert MLflowTracker(tracking_uri(other), "tests", root / "sweep").close(300) == ""
    assert len(history(other, runs(other)["distil"], "loss")) == 10


def test_two_journals_with_the_same_name_have_separate_runs(root: Path) -> None:
    for folder in ("one", "two"):
        tracker = MLflowTracker(tracking_uri(root), "tests", root / folder)
        tracker.run(SWEEP, folder)
        tracker.close(300)
    assert set(runs(root)) == {"one", "two"}


def test_the_duplicate_run_of_a_hung_call_is_removed(root: Path, opened: Open) -> None:
    tracker = opened()
    record_all(tracker, range(3))
    tracker.close(300)
    stage = runs(root)["distil"]
    tags = {k: v for k, v in stage.data.tags.items() if k != "mlflow.runName"}
    client(root).create_run(stage.info.experiment_id, stage.info.start_time - 5, tags, "late duplicate")
    tracker = opened()
    tracker.metrics(STAGE, [Row(3, 1e9 + 3, {"loss": 0.0})])
    tracker.close(300)
    found = runs(root)
    assert "late duplicate" not in found
    assert [step for step, _, _ in history(root, found["distil"], "loss")] == [0, 1, 2, 3]


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_a_proxy_has_made_twice_is_there_once(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Every call succeeds, so nothing is in doubt."""
    from mlflow import MlflowClient

    create = MlflowClient.create_run

    def twice(self: Any, *arguments: Any, **named: Any) -> Any:
        made = [create(self, *arguments, **named) for _ in range(2)]
        return made[0 if first else 1]

    monkeypatch.setattr(MlflowClient, "create_run", twice)
    tracker = opened()
    tracker.run(SWEEP, "sweep")  # Without parameters: it is as empty as its double.
    tracker.run(TRIAL, "trial 0", parameters={"rate": 1})
    tracker.metrics(TRIAL, [Row(1, 1e9, {"loss": 1.0})])
    tracker.finish(TRIAL)
    tracker.finish(SWEEP)
    assert tracker.close() == ""
    found = runs(root)
    assert {name: run.info.status for name, run in found.items()} == {
        "sweep": "FINISHED",
        "trial 0": "FINISHED",
    }
    assert found["trial 0"].data.tags["mlflow.parentRunId"] == found["sweep"].info.run_id
    assert found["trial 0"].data.metrics == {"loss": 1.0}


def test_an_unanswered_call_that_was_carried_out_makes_no_duplicate(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    create, unanswered = MlflowClient.create_run, [1]

    def create_without_answer(self: Any, *arguments: Any) -> Any:
        created = create(self, *arguments)
        if unanswered:
            unanswered.pop()
            raise TimeoutError("no answer")
        return created

    monkeypatch.setattr(MlflowClient, "create_run", create_without_answer)
    tracker = opened()
    record_all(tracker, range(3))
    deadline = time.monotonic() + 20
    while tracker.journal.confirmed(tracker.uri) < tracker.journal.size and time.monotonic() < deadline:
        time.sleep(0.02)
    assert tracker.close(300) == ""
    assert not unanswered
    assert set(runs(root)) == {"sweep", "trial 0", "distil"}


def test_what_a_closed_tracker_still_sends_is_not_sent_by_the_next_one_too(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow server, and a command that is repeated in the same process."""
    from mlflow import MlflowClient

    create, asked, answered = MlflowClient.create_run, [], threading.Event()

    def create_slowly(self: Any, *arguments: Any) -> Any:
        created = create(self, *arguments)
        asked.append(created)
        answered.wait(30)
        return created

    monkeypatch.setattr(MlflowClient, "create_run", create_slowly)
    first = opened()
    record_all(first, range(3))
    wait_for(lambda: asked, "the first run has been made")
    assert "has not accepted 4 entries" in first.close(0.1), "it is slow"
    second = opened()
    second.metrics(STAGE, [Row(3, 1e9 + 3, {"loss": 0.0})])
    time.sleep(0.3)
    answered.set()
    assert second.close(300) == ""
    assert len(asked) == 3, "each run is made once"
    found = runs(root)
    assert set(found) == {"sweep", "trial 0", "distil"}
    assert [step for step, _, _ in history(root, found["distil"], "loss")] == [0, 1, 2, 3]


class Failing:
    """A call of MLflow's client that gets no answer the first times, and counts how often it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
        from mlflow import MlflowClient

        works, self.calls = getattr(MlflowClient, name), 0

        def call(client: Any, *arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls <= times:
                raise TimeoutError("no answer")
            return works(client, *arguments, **named)

        monkeypatch.setattr(MlflowClient, name, call)


def test_a_server_that_fails_while_a_tracker_closes_is_asked_again(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Failing(monkeypatch, "set_terminated", times=2)
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    tracker.finish(SWEEP)
    assert tracker.close() == ""
    assert ends.calls == 3 and runs(root)["sweep"].info.status == "FINISHED"


def test_a_version_is_waited_for_while_a_server_fails_for_a_moment(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    Failing(monkeypatch, "create_registered_model", times=1)
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    assert tracker.register(SWEEP, tiny_model, "student") == "1"
    assert tracker.close() == ""


def test_a_server_that_has_failed_for_long_delays_no_end(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    monkeypatch.setattr("stillhouse.tracking.mlflow_tracker._PATIENCE_S", 0.2)
    Failing(monkeypatch, "create_run", times=1000)
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    wait_for(lambda: tracker._outage and tracker._outage.hopeless, "it has failed for long")
    started = time.monotonic()
    assert tracker.register(SWEEP, tiny_model, "student") is None
    assert "has not accepted 2 entries yet (TimeoutError: no answer)" in tracker.close()
    assert time.monotonic() - started < 10


def test_a_closed_tracker_asks_no_more_once_its_time_is_over(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillhouse.tracking.mlflow_tracker._BACKOFF_S", (0.05, 1.0))
    made = Failing(monkeypatch, "create_run", times=1000)
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    wait_for(lambda: made.calls > 1, "it has been asked again")
    assert "no answer" in tracker.close(0.5)
    asked = made.calls
    time.sleep(1)
    assert 1 < asked == made.calls


def test_entries_rejected_by_mlflow_are_set_aside_and_the_rest_is_sent(root: Path, opened: Open) -> None:
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    picture = root / "curves.png"
    picture.write_bytes(b"x")
    tracker.journal.append(do="artifact", key=SWEEP, path=str(root / "gone.png"), folder="", stamp="0")
    tracker.artifact(SWEEP, picture, "figures")
    assert "has refused 1 entries" in tracker.close(300)
    refused = [json.loads(line) for line in (root / "sweep" / "refused.jsonl").read_text().splitlines()]
    assert [entry["path"] for entry in refused] == [str(root / "gone.png")]
    run_id = runs(root)["sweep"].info.run_id
    assert [f.path for f in client(root).list_artifacts(run_id, "figures")] == ["figures/curves.png"]


def test_a_page_that_answers_400_is_an_outage_and_no_refusal(root: Path) -> None:
    """As of a proxy, or of a server that speaks TLS: nothing of the sweep is given up."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(400)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        tracker = MLflowTracker(f"http://127.0.0.1:{server.server_port}", "tests", root / "sweep")
        record_all(tracker, range(3))
        wait_for(lambda: tracker._outage, "the page was read")
        assert "has not accepted 4 entries yet" in tracker.close(0.1)
        server.shutdown()
    assert not (root / "sweep" / "refused.jsonl").exists()
    tracker = MLflowTracker(tracking_uri(root), "tests", root / "sweep")
    assert tracker.close(300) == "" and len(runs(root)) == 3


def test_files_that_cannot_be_sent_hold_back_no_run_and_no_metric(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the artifacts are in a bucket, and its client is not installed; the user has no name."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr("stillhouse.tracking.mlflow_tracker._SAID_AFTER_S", 0.0)
    Failing(monkeypatch, "log_dict", times=1000)
    tracker = opened()
    record_all(tracker, range(3))
    wait_for(lambda: tracker._outage, "only the files are left")
    assert "has not accepted 3 entries yet (TimeoutError: no answer)" in tracker.close(0.1)
    assert len(history(root, runs(root)["distil"], "loss")) == 3
    assert runs(root)["sweep"].data.tags["mlflow.user"] == str(os.getuid())


def test_a_model_whose_upload_failed_is_gone_on_with(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    Failing(monkeypatch, "log_model_artifacts", times=2)
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    assert tracker.register(SWEEP, tiny_model, "student") == "1"
    assert tracker.close() == ""
    experiment = client(root).get_experiment_by_name("tests").experiment_id
    assert len(client(root).search_logged_models([experiment])) == 1


def test_experiments_are_found_on_every_page(
    root: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    tracker = opened()
    tracker.run(SWEEP, "sweep")
    assert tracker.close() == ""
    search = MlflowClient.search_experiments
    monkeypatch.setattr(
        MlflowClient, "search_experiments", lambda self, **named: search(self, max_results=1, **named)
    )
    experiments = len(search(client(root)))
    assert experiments > 1 and len(reading._experiments(client(root), "")) == experiments


def test_server_that_refuses_connections_delays_nothing(root: Path) -> None:
    tracker = MLflowTracker("http://127.0.0.1:9", "tests", root / "sweep")
    started = time.monotonic()
    record_all(tracker, range(100))
    assert time.monotonic() - started < 0.5
    message = tracker.close(300)
    assert time.monotonic() - started < 10, "nothing listens, so nobody will answer"
    assert "has not accepted 4 entries yet" in message and "\n" not in message
    tracker = MLflowTracker(tracking_uri(root), "tests", root / "sweep")
    assert tracker.close(300) == ""
    assert len(history(root, runs(root)["distil"], "loss")) == 100


def test_registered_model_is_loadable_and_registered_once(root: Path, opened: Open, tiny_model: Path) -> None:
    tracker = opened()
    tracker.run(SWEEP, "sweep")
    assert tracker.register(SWEEP, tiny_model, "student", tags={"teacher": "minilm"}) == "1"
    assert tracker.register(SWEEP, tiny_model, "student", tags={"teacher": "minilm"}) == "1"
    assert tracker.close(300) == ""
    (root / "sweep" / "confirmed.json").unlink()
    assert opened().close(300) == ""
    versions = client(root).search_model_versions("name = 'student'")
    assert [version.version for version in versions] in (["1"], [1])
    import mlflow
    from sentence_transformers import SentenceTransformer

    mlflow.set_tracking_uri(tracking_uri(root))
    texts = ["the river and the moon", "a small model"]
    expected = SentenceTransformer(str(tiny_model)).encode(texts)
    loaded = mlflow.sentence_transformers.load_model("models:/student@champion")
    np.testing.assert_allclose(loaded.encode(texts), expected, atol=1e-6)
    served = mlflow.pyfunc.load_model("models:/student@champion").predict(texts)
    np.testing.assert_allclose(np.asarray(served), expected, atol=1e-6)


def test_a_copied_workspace_reads_and_writes_its_own_artifacts(
    root: Path, opened: Open, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Experiments of others that share the database keep their places."""
    elsewhere = "file:///elsewhere/mlartifacts"
    foreign = client(root).create_experiment("not ours", artifact_location=elsewhere)
    client(root).create_run(foreign)
    client(root).create_run(foreign, tags={"other": "tag"})
    tracker = opened()
    tracker.run(SWEEP, "sweep", documents={"plan.json": {"x": 1}})
    tracker.register(SWEEP, tiny_model, "student", tags={})
    assert tracker.close(300) == ""
    copy = tmp_path_factory.mktemp("copied") / "runs"
    shutil.copytree(root, copy)
    before = sorted((root / "mlartifacts").rglob("*"))

    tracker = MLflowTracker(tracking_uri(copy), "tests", copy / "sweep")
    tracker.run(TRIAL, "trial 0", documents={"more.json": {"y": 2}})
    assert tracker.close(300) == ""
    assert sorted((root / "mlartifacts").rglob("*")) == before
    shutil.rmtree(root / "mlartifacts")
    with sqlite3.connect(copy / "mlflow.db") as database:
        assert not [line for line in database.iterdump() if root.as_uri() in line]
    found = runs(copy)
    for name, file in (("sweep", "plan.json"), ("trial 0", "more.json")):
        assert [f.path for f in client(copy).list_artifacts(found[name].info.run_id)] == [file]
    assert client(copy).get_experiment_by_name("not ours").artifact_location == elsewhere
    import mlflow

    mlflow.set_tracking_uri(tracking_uri(copy))
    loaded = mlflow.sentence_transformers.load_model("models:/student@champion")
    assert loaded.encode(["the river and the moon"]).shape[0] == 1


def test_a_database_without_its_artifacts_keeps_their_places(
    root: Path, opened: Open, tmp_path: Path
) -> None:
    tracker = opened()
    tracker.run(SWEEP, "sweep", documents={"plan.json": {"x": 1}})
    assert tracker.close(300) == ""
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(root / "mlflow.db", alone)
    relocate(tracking_uri(alone), "stillhouse.journal")
    kept = client(alone).get_experiment_by_name("tests").artifact_location
    assert kept == (root / "mlartifacts").as_uri()


def test_the_tracker_prints_nothing(
    opened: Open, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        tracker = opened()
        record_all(tracker, range(3))
        assert tracker.close(300) == ""
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_database_is_created_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RuntimeError, match="failed"):
        prepare(f"sqlite:///{tmp_path / 'new.db'}")
    assert [p.name for p in tmp_path.iterdir()] == [".new.db.lock"]


def test_location_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri(tmp_path) == f"sqlite:///{tmp_path.resolve()}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@tracking:5000")
    assert tracking_uri(tmp_path) == "http://me:secret@tracking:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")
    with pytest.raises(BadInput, match="a database or a server"):
        tracking_uri(tmp_path)


@each_row("scheme", ["postgresql+psycopg", "postgresql", "mysql+nothing"])
def test_a_database_without_its_driver_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}://ann:hunter2@db/mlflow")
    with pytest.raises(BadInput, match=r"the driver of the database must.*stillhouse\[postgres\]") as refused:
        tracking_uri(tmp_path)
    assert "hunter2" not in str(refused.value)


def test_a_database_with_its_driver_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql+psycopg://ann@db/mlflow")
    assert tracking_uri(tmp_path) == "postgresql+psycopg://ann@db/mlflow"
