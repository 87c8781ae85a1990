"""Keys in addresses that are really read and written: none is in anything that a command leaves behind."""

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, quote_plus, unquote

import pytest
from bad_inputs import TEXTS  # type: ignore[import-not-found]
from loopback import loopback, status
from mlflow_process import wait_for
from object_store import ObjectStore, object_store

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import warn
from stillhouse.core.remotes import remote_at
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.search.observer import Observer, open_tracker
from stillhouse.search.searcher import StudySearcher
from stillhouse.search.space import Categorical, Space
from stillhouse.search.trial import Context, follow
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.tracking.location import tracking_uri
from stillhouse.tracking.mlflow_tracker import MLflowTracker
from stillhouse.training.where import Where

KEY, PASSWORD, TOKEN = "AKIAHUNTERHUNTER", "hunter2/hunter+2", "hunter3hunter3"
"""A key of object storage, its secret, which a URL has in an encoded form, and a parameter of a URL."""
USER = f"{KEY}:{quote(PASSWORD, safe='')}"


def forms(secret: str) -> set[bytes]:
    """A secret as it is, URL-encoded, and within base64 wherever it begins."""
    found = {
        secret.encode(),
        quote(secret).encode(),
        quote(secret, safe="").encode(),
        quote_plus(secret).encode(),
    }
    for shift in range(3):
        coded = base64.b64encode(b"-" * shift + secret.encode() + b"-" * 3)
        middle = coded[4 : 4 * (len(secret) // 3)]
        found |= {middle, middle.replace(b"+", b"-").replace(b"/", b"_")}
    return found


SOUGHT = {form for secret in (KEY, PASSWORD, TOKEN) for form in forms(secret)}


@dataclass
class Place:
    """Where commands run: everything that they write is below the folder."""

    folder: Path
    store: ObjectStore
    capture: pytest.CaptureFixture[str]

    def run(self, *words: object, code: int = 0) -> str:
        """Run a command, and search all that it printed and wrote; return what it printed."""
        try:
            ended = main([*map(str, words), "--root", str(self.folder / "root")])
        finally:
            printed = "".join(self.capture.readouterr())
        assert ended == code, printed
        assert not self.leaks(printed), words
        return printed

    @property
    def corpus(self) -> str:
        """The address of the corpus, with the key."""
        return f"s3://{USER}@corpora/texts.txt{self.store.options}"

    def written(self, pattern: str) -> str:
        """What the files of a pattern have in them."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob(pattern)))

    def leaks(self, printed: str = "") -> list[str]:
        """Where a secret is: on the screen, in a file, in an object that was published, or in a name."""
        files = {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        files |= {name: data for name, data in self.store.objects.items() if not name.startswith("corpora/")}
        everything = {"the screen": printed.encode(), **files}
        return [
            name for name, data in everything.items() if any(s in data or s in name.encode() for s in SOUGHT)
        ]


@pytest.fixture
def place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    with object_store() as store:
        store.objects["corpora/texts.txt"] = "\n".join(TEXTS).encode()
        yield Place(tmp_path, store, capfd)


def small(model: Path) -> list[str]:
    """What makes an experiment small and its figures quick."""
    return [
        *("--set", "sentences.held_out=8", "--teacher", str(model), "--device", "cpu"),
        *("--max-length", "16", "--compute", "float32", "--select", "agreement"),
    ]


def training(model: Path) -> list[str]:
    """The command of a short training."""
    return [
        "train",
        "mse",
        "--local",
        *small(model),
        *LAYERS,
        "--set",
        "batch_size=8",
        "--distil-budget",
        "16",
    ]


LAYERS = ("--set", "student.layers=[0]")


def test_training_export_and_remote(place: Place, tiny_model: Path) -> None:
    """The corpus is read, and artifacts are published, with a key in the address."""
    remote = ["--remote", f"s3://{USER}@team/x{place.store.options}"]
    place.run(*training(tiny_model), "--corpus", place.corpus, *remote, "--json", "report.json")
    assert any(KEY in seen for seen in place.store.seen) and "team/x/workspace.json" in place.store.objects
    stage = json.loads(Path("report.json").read_text())["folder"]
    place.run("export", stage, "exported", "--json", "export.json")
    place.run("export", Path(stage).name, "fetched", *remote)
    figures = [*small(tiny_model), "--corpus", place.corpus, "--final"]
    place.run("evaluate", "exported", *figures, "--json", "figures.json")
    place.run("store", "ls", "--json", "stores.json")
    place.run("verify", "--json", "verified.json")
    assert "s3://***@corpora/texts.txt" in place.written("root/sources/*.json")


def test_a_parameter_of_a_file(place: Place, tiny_model: Path) -> None:
    """One of ``file://``, which pyarrow ignores."""
    Path("texts.txt").write_text("\n".join(TEXTS))
    source = f"file://{place.folder}/texts.txt?token={TOKEN}"
    place.run("embed", "--local", *small(tiny_model), "--corpus", source, "--json", "report.json")
    assert "token=***" in place.written("root/sources/*.json")


def test_the_run_of_a_sweep(place: Place, tiny_model: Path, database: Path) -> None:
    """Everything that a sweep records in MLflow, its journal and its study, and the pages made of it."""
    remote = remote_at(f"s3://{USER}@team/x{place.store.options}")
    workspace = Workspace(place.folder / "root", remote)
    workspace.claim()
    shutil.copy(database, workspace.root / "mlflow.db")
    experiment = Experiment(
        teacher=TeacherChoice(str(tiny_model)),
        student=TransformerChoice(layers=(0,)),
        data=(Sentences(place.corpus, count=0, held_out=8),),
        budget=Budget(distil=16, evaluations=1),
        max_length=16,
        compute="float32",
    )
    prepared = prepare(experiment, workspace, Embedding(local=True))
    context = Context(
        method="mse",
        preset="paper",
        setting=prepared.setting,
        root=str(workspace.root),
        where=Where(device="cpu", threads=1),
        quality=prepared.setting.dev.select,
        remote=remote,
    )
    folder, values = workspace.root / "sweeps" / "s", {"batch_size": 8}
    trial = SimpleNamespace(config={"trial": 0, "hyper_parameters": values})
    tracker = open_tracker(workspace, folder, "mse")
    facts = {**prepared.facts, "corpus": place.corpus}
    with pytest.raises(OSError), Observer("s", context, tracker, facts) as observer:
        observer.on_trial_start(0, [], trial)
        follow(values, context, lambda report: None)
        raise OSError(f"no answer of {place.corpus}: {PASSWORD} is wrong")
    assert not open_tracker(workspace, folder, "mse").close(120), "what had no time to be sent is sent now"
    space = Space("mse", {"batch_size": Categorical((8, 16))}, first=values)
    searched = StudySearcher(folder / "study.db", space, trials=2, objective="q", full_budget=16, seed=0)
    searched.suggest("a")
    searched.on_trial_complete("a", error=True)
    searched.explain(0, f"no answer of {place.corpus}: {PASSWORD} is wrong")
    assert "***" in str(searched.records()[0].reason)
    place.run("compare", "--experiment", "mse", "--json", "comparison.json")
    assert not place.leaks("".join(place.capture.readouterr()))
    assert "s3://***@corpora" in place.written("root/mlflow.db") and list(folder.glob("*.jsonl"))


class _Tracking(BaseHTTPRequestHandler):
    """A tracking server that never accepts anything, and quotes what it was sent."""

    def do_GET(self) -> None:
        said = f"{self.headers['Authorization']} of {PASSWORD} at {unquote(self.path)}?token={TOKEN}"
        answer = json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": said}).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_tracking_server_that_quotes_the_password(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Tracking)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    uri = f"http://ann:{quote(PASSWORD, safe='')}@127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tracker = MLflowTracker(tracking_uri(place.folder), "x", place.folder / "refused")
    tracker.run(("s",), "s", parameters={"corpus": place.corpus, "uri": uri})
    wait_for(lambda: tracker._outage, "the server has answered")
    assert "Basic ***" in (told := tracker.close(0.1)), told
    place.run("compare", "--experiment", "x", code=2)
    server.shutdown()
    server.server_close()
    tracker = MLflowTracker(tracking_uri(place.folder), "x", place.folder / "waiting")
    tracker.run(("s",), "s", parameters={"uri": uri})
    warn(tracker.close(0.5))
    assert "have not been" in (printed := place.capture.readouterr().err) or "not accepted" in printed
    assert not place.leaks(printed)


def test_an_endpoint_that_quotes_its_key(
    place: Place, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is sent, and what the endpoint makes of it is not repeated."""
    monkeypatch.setenv("STILLHOUSE_API_KEY", TOKEN)
    with loopback() as server:
        server.faults = [status(500, {"error": f"{TOKEN} {form.decode()}"}) for form in sorted(forms(TOKEN))]
        endpoint = [f"teacher.endpoint={server.url}", "teacher.model=m", "teacher.requests.pause=0.01"]
        flags = [word for each in endpoint for word in ("--set", each)]
        words = [*training(tiny_model), *flags, "--student", tiny_model, "--corpus", place.corpus]
        words.remove("--teacher")
        words.remove(str(tiny_model))
        place.run(*words, "--set", "teacher.requests.attempts=20", "--json", "report.json")
        assert any(TOKEN in str(headers) for _, headers in server.seen)
        server.always = status(500, {"error": f"{quote(TOKEN)} {base64.b64encode(TOKEN.encode()).decode()}"})
        place.run(*words, "--set", "sentences.min_words=2", "--set", "teacher.requests.attempts=1", code=2)


@pytest.mark.parametrize("verbose", [False, True])
def test_an_object_store_that_quotes_its_secret(place: Place, tiny_model: Path, verbose: bool) -> None:
    """In a form in which the command line does not have it."""
    place.store.refusal = f"the secret {PASSWORD} of {KEY} is unknown"
    more = ["-v"] if verbose else []
    folder = f"s3://{USER}@corpora/*.txt{place.store.options}"
    said = place.run("embed", "--local", *small(tiny_model), "--corpus", folder, *more, code=2)
    assert "the secret *** of *** is unknown" in said
    remote = f"s3://{USER}@team/x{place.store.options}"
    said = place.run(*training(tiny_model), "--corpus", "pydocs", "--remote", remote, *more, code=2)
    assert "the secret *** of *** is unknown" in said
