"""Scenarios: small real commands, the workspaces that they start from, and what they must give."""

import contextlib
import fcntl
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from children import Counters, Ended, import_all, run_command, run_function
from services import (
    OBJECTS,
    REMOTE,
    REQUESTS,
    TRACKING_URL,
    URL,
    endpoint_server,
    object_server,
    tracking_server,
)
from system import CALLS, Calls, dies_of
from works import copy_database, prepare_database, record_runs, runs_of, search_a_study, study_of

SERVED = "record runs at a server"
PUBLISH, FETCH = "publish to object storage", "fetch from object storage"
WORDS = (
    "model vector sentence search teacher student layer data index query house river sun moon cat mat".split()
)
_KINDS = ("corpora", "tokens", "stores", "examples", "collections", "stages")
_COUNTED = ("rows", "input_rows", "table_rows", "duplicates", "quarantined", "quarantined_vectors")
_DECIDED = ("weights_sha256", "evaluations", "metrics", "chosen_step", "steps", "examples", "files")
SAME = 0.9999
"""Cosine of two vectors of one text that differ by the rounding of bfloat16 alone."""
LIMIT = 90.0
"""Seconds after which one command of a scenario counts as stuck; undisturbed, none takes three."""


@dataclass(frozen=True)
class World:
    """What all scenarios read: corpora, pairs, a teacher, vectors.

    Attributes:
        folder: Holds everything.
    """

    folder: Path

    @property
    def database(self) -> Path:
        """A database with MLflow's tables and nothing in them."""
        return self.folder / "mlflow.db"

    @property
    def teacher(self) -> Path:
        """The teacher's folder."""
        return self.folder / "tiny" / "model"

    def write(self) -> None:
        """Write all inputs; duplicates and texts that no reader keeps are among the lines of the corpora.

        Of the vectors three are not finite: these rows are to be set aside.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq
        from tiny_model import write_tiny_model

        (self.folder / "tiny").mkdir(parents=True)
        prepare_database(self.database)
        write_tiny_model(self.folder / "tiny")
        chance = random.Random(0)
        for name, count in (("long", 4500), ("short", 500)):
            texts = sorted({" ".join(chance.choices(WORDS, k=8)) for _ in range(count)})
            chance.shuffle(texts)
            (self.folder / f"{name}.txt").write_text("\n".join([*texts, *texts[:20], "", " "]) + "\n")
        vectors = np.random.default_rng(0).normal(size=(len(texts), 16)).astype(np.float32)
        vectors[5, 3], vectors[70, 0], vectors[200] = np.nan, np.inf, -np.inf
        table = pa.table({"text": texts, "embedding": pa.array(list(vectors), pa.list_(pa.float32()))})
        pq.write_table(table, self.folder / "vectors.parquet", row_group_size=100)
        pairs = [
            {"query": " ".join(words[:3]), "passage": " ".join(words)}
            for words in (chance.choices(WORDS, k=8) for _ in range(60))
        ]
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


Service = Callable[[str, Path], contextlib.AbstractContextManager[Callable[[], None]]]
"""Starts what a command talks to, with the name of its misbehaviour or an empty one, and the workspace; what
it yields is called in the command's process."""


@contextlib.contextmanager
def no_service(fault: str, _root: Path) -> Iterator[Callable[[], None]]:
    """The service of commands that talk to nobody."""
    assert not fault, fault
    yield lambda: None


@dataclass(frozen=True)
class Scenario:
    """One command.

    Attributes:
        name: As in the report.
        work: Does the work in the workspace at a path and returns the exit code.
        sign: Returns the signature of a workspace: what must be equal to an undisturbed run's.
        service: What the command talks to.
        bases: Folders of workspaces that an injection starts from, by name: ``prepared`` (all but the
            stages), ``half`` (interrupted) and ``finished``; one that is not there, ``empty``, is a new one.
        expected: Signature of the undisturbed result.
        calls: Number of calls of each kind in an undisturbed run from each base, and its steps and files.
        seconds: Duration of an undisturbed run from each base.
    """

    name: str
    work: Callable[[Path], int]
    sign: Callable[[Path], dict[str, Any]]
    service: Service = no_service
    bases: dict[str, Path] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, list[int]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(
        self,
        root: Path,
        counters: Counters,
        *,
        prepare: Callable[[Calls], None] = lambda calls: None,
        during: Callable[[int], None] | None = None,
        misbehaves: str = "",
        limit: float = LIMIT,
    ) -> Ended:
        """Run the command on a workspace; ``prepare`` may change what the child's calls do."""
        with self.service(misbehaves, root) as connect:

            def patch() -> None:
                connect()
                calls = Calls(root, counters)
                prepare(calls)
                calls.install()

            printed = root.parent / "printed.txt"
            return run_function(lambda: self.work(root), printed, limit=limit, prepare=patch, during=during)


def command(
    name: str,
    *arguments: str,
    service: Service = no_service,
    sign: Callable[[Path], dict[str, Any]] | None = None,
) -> Scenario:
    """A `stillhouse` command in one process."""

    def work(root: Path) -> int:
        from stillhouse.cli.main import main

        return main([*arguments, "--root", str(root), "--json", str(root.parent / "out.json")])

    return Scenario(name, work, sign or signature, service)


def scenarios(world: World) -> list[Scenario]:
    """All scenarios of one process; the last one imports most."""
    common = ("--local", "--device", "cpu", "--max-length", "24")
    teacher = ("--teacher", str(world.teacher), "--set", "teacher.runtime=torch")
    long, short = (
        ("--corpus", str(world.folder / f"{name}.txt"), "--sentences", "0", "--set", "sentences.held_out=60")
        for name in ("long", "short")
    )
    pairs = ("--labelled", str(world.folder / "pairs.jsonl"), "--pairs", "0", "--set", "pairs.mined=2")
    budget = (
        "--distil-budget",
        str(16 * 32),
        "--finetune-budget",
        str(8 * 16),
        "--set",
        "budget.evaluations=4",
    )
    batches = ("--set", "distil_batch_size=16", "--set", "finetune_batch_size=8", "--set", "student.keep=2")
    student = ("--set", f"student.checkpoint={world.teacher}")

    @contextlib.contextmanager
    def served(fault: str, root: Path) -> Iterator[Callable[[], None]]:
        copy_database(world.database, root)  # The server's, which is there before the command.
        with tracking_server(fault, root) as connect:
            yield connect

    published = world.folder / "published"

    @contextlib.contextmanager
    def filled(fault: str, root: Path) -> Iterator[Callable[[], None]]:
        if not (root.parent / OBJECTS).exists():
            if not published.exists():
                fill_storage(["embed", *common, *teacher, *short], published)
            shutil.copytree(published, root.parent / OBJECTS)
        with object_server(fault, root) as connect:
            yield connect

    remote = ("--remote", REMOTE)
    file = world.folder / "vectors.parquet"
    vectors = ("--set", f"teacher.vectors={file}", "--set", "teacher.incomplete=true", *student)
    asked = {"endpoint": URL, "model": "large", **REQUESTS}
    endpoint = [part for name, value in asked.items() for part in ("--set", f"teacher.{name}={value}")]
    return [
        command("embed", "embed", *common, *teacher, *long),
        command("import vectors", "embed", *common, *short, *vectors),
        command("ask an endpoint", "embed", *common, *short, *student, *endpoint, service=endpoint_server),
        command(
            PUBLISH, "embed", *common, *teacher, *short, *remote, service=object_server, sign=with_published
        ),
        command(FETCH, "embed", *common, *teacher, *short, *remote, service=filled, sign=with_published),
        Scenario("search a study", search_a_study, study_of),
        Scenario("record runs", lambda root: record_runs(root, world.database), runs_of),
        Scenario(SERVED, lambda root: record_runs(root, world.database, TRACKING_URL), runs_of, served),
        command("train", "train", "ibkd", *common, *teacher, *short, *pairs, *budget, *batches),
    ]


def warm_up(scenario: Scenario, folder: Path) -> None:
    """Import in this process what a scenario's command imports, as it finds out in a child."""
    names, root = folder / "modules.txt", folder / f"warm-up {scenario.name}" / "runs"
    root.parent.mkdir()

    def work() -> int:
        code = scenario.work(root)
        names.write_text("\n".join(name for name in sys.modules if name != "__main__"))
        return code

    with scenario.service("", root) as connect:
        ended = run_function(work, folder / "printed.txt", limit=10 * LIMIT, prepare=connect)
    if ended.code != 0:
        raise RuntimeError(f"{scenario.name} must end without a fault, but: {ended.output}")
    import_all(names)


def learn(scenario: Scenario, folder: Path) -> None:
    """Run a scenario undisturbed, once per base, and keep the bases.

    Raises:
        RuntimeError: The command failed without any fault, or gives another result from another base.
    """
    root, counters = folder / scenario.name / "runs", Counters()
    root.parent.mkdir(parents=True)
    names = folder / scenario.name / "replaced.txt"
    ended = scenario.run(root, counters, prepare=lambda calls: calls.trace(names))
    if ended.code != 0:
        raise RuntimeError(f"{scenario.name} must end without a fault, but: {ended.output}")
    scenario.expected.update(scenario.sign(root))
    if not rows_add_up(scenario.expected):
        raise RuntimeError(f"{scenario.name}: the counts must add up, but: {scenario.expected}")
    _keep(scenario, "empty", None, counters, ended.seconds)
    finished = root.parent / "finished"
    shutil.copytree(root, finished)
    prepared = root.parent / "prepared"
    shutil.copytree(root, prepared)
    shutil.rmtree(prepared / "stages", ignore_errors=True)
    half = root.parent / "half" / "runs"
    half.parent.mkdir()
    replaced = names.read_text().split() if names.exists() else []
    written = [at for at, name in enumerate(replaced, 1) if name.startswith(("part-", "step-"))]
    fatal = dies_of(signal.SIGKILL)
    if len(written) > 1:
        scenario.run(half, Counters(), prepare=lambda calls: calls.on("replace", written[-2], after=fatal))
    else:
        middle = max(1, scenario.calls["empty"][CALLS.index("statement")] // 2)
        scenario.run(half, Counters(), prepare=lambda calls: calls.on("statement", middle, before=fatal))
    for name, base in (("prepared", prepared), ("half", half), ("finished", finished)):
        copy, counters = root.parent / f"try-{name}" / "runs", Counters()
        shutil.copytree(base, copy)
        ended = scenario.run(copy, counters)
        if ended.code != 0 or scenario.sign(copy) != scenario.expected:
            raise RuntimeError(f"{scenario.name} from {name} must give the same result, but: {ended.output}")
        _keep(scenario, name, base, counters, ended.seconds)


def _keep(scenario: Scenario, name: str, base: Path | None, counters: Counters, seconds: float) -> None:
    if base is not None:
        scenario.bases[name] = base
    scenario.calls[name] = [counters[place] for place in range(len(CALLS) + 2)]
    scenario.seconds[name] = seconds


def signature(root: Path) -> dict[str, Any]:
    """Return what decides results in a workspace: counts, checksums, weights, curves; no times."""
    found: dict[str, Any] = {}
    for kind in _KINDS:
        for path in sorted((root / kind).glob("*/manifest.json")):
            try:
                manifest = json.loads(path.read_bytes())
            except ValueError:
                manifest = {"files": "not JSON"}
            shards = [
                {name: shard[name] for name in ("name", "rows", "sha256") if name in shard}
                for shard in manifest.get("shards", ())
            ]
            decided = {name: manifest[name] for name in (*_COUNTED, *_DECIDED) if name in manifest}
            found[f"{kind}/{path.parent.name}"] = {**decided, "shards": shards}
    return found


def fill_storage(arguments: list[str], folder: Path) -> None:
    """Let a command publish into a folder what an object store keeps after the same command.

    Raises:
        RuntimeError: The command failed.
    """
    new = folder.with_name(f"{folder.name} (new)")
    mounted = new / REMOTE.removeprefix("s3://")
    mounted.mkdir(parents=True)
    root = new.with_name("published from")
    given = ["--root", str(root), "--remote", str(mounted)]
    ended = run_command([*arguments, *given], new.with_name("published.txt"), limit=10 * LIMIT)
    if ended.code != 0:
        raise RuntimeError(f"publishing must end without a fault, but: {ended.output}")
    new.rename(folder)


def with_published(root: Path) -> dict[str, Any]:
    """The signature of a workspace, and of what another machine fetches that has its remote alone.

    A store that is whole in the remote is fetched when it is read, and no command of the suite reads one: it
    counts as the workspace's own.
    """
    from stillhouse.core.errors import BadInput
    from stillhouse.core.remotes import Remote

    mounted = root.parent / OBJECTS / REMOTE.removeprefix("s3://")
    found = signature(root)
    remote = Remote(str(mounted))
    with tempfile.TemporaryDirectory(dir=root.parent) as name:
        elsewhere = Path(name) / "runs"
        for kind in _KINDS:
            for folder in sorted((mounted / kind).glob("*")):
                key = f"{kind}/{folder.name}"
                try:
                    remote.fetch(key, elsewhere / key, Path(name) / "coming")
                except BadInput as error:
                    found[f"published {key}"] = str(error)
        fetched = signature(elsewhere)
    stores = {key: content for key, content in fetched.items() if key.startswith("stores/")}
    return stores | found | {f"published {key}": content for key, content in fetched.items()}


def rows_of(result: dict[str, Any]) -> int:
    """Rows of all stores in a signature."""
    return sum(int(each.get("rows", 0)) for name, each in result.items() if name.startswith("stores/"))


def rows_add_up(result: dict[str, Any]) -> bool:
    """Whether input = stored + quarantined + duplicates holds for every store."""
    return all(
        each["input_rows"] == each["rows"] + each["quarantined"] + each["duplicates"]
        for name, each in result.items()
        if name.startswith("stores/")
    )


def same_to_rounding(root: Path, undisturbed: Path, keys: Collection[str]) -> bool:
    """Whether artifacts have the same counts, and every vector a cosine of `SAME` with its own at least."""
    from stillhouse.teachers.runtime_check import lowest_cosine

    ours, theirs = signature(root), signature(undisturbed)
    counts = [{name: of.get(key, {}).get(name) for key in keys for name in _COUNTED} for of in (ours, theirs)]
    if counts[0] != counts[1] or not all(key in ours and key in theirs for key in keys):
        return False
    return all(
        lowest_cosine(_vectors(root / key), _vectors(undisturbed / key)) >= SAME
        for key in keys
        if key.startswith("stores/")
    )


def _vectors(store: Path) -> Any:
    import numpy as np
    import pyarrow as pa

    parts = [
        pa.ipc.open_file(str(path)).read_all()["embedding"] for path in sorted(store.glob("part-*.arrow"))
    ]
    rows = [part.combine_chunks() for part in parts]
    return np.concatenate([np.asarray(row.flatten()).reshape(len(row), -1) for row in rows])


def leftovers(root: Path) -> list[str]:
    """Name temporary files, checkpoints of finished stages, and locks that are held."""
    found = [str(path.relative_to(root)) for path in root.rglob(".*.tmp") if "quarantine" not in path.parts]
    for path in root.glob("stages/*/checkpoints/step-*.pt"):
        if (path.parents[1] / "manifest.json").exists():
            found.append(str(path.relative_to(root)))
    for path in root.rglob("*.lock"):
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"{path.relative_to(root)} is held")
    return found


def damaged(root: Path) -> list[str]:
    """Name files of finished artifacts whose bytes are not those that were written."""
    from stillhouse.core.integrity import damage_of

    folders = [path.parent for kind in _KINDS for path in (root / kind).glob("*/manifest.json")]
    return [f"{folder.parent.name}/{folder.name}: {each}" for folder in folders for each in damage_of(folder)]
