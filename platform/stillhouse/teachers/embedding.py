"""Building a store: every shard of texts goes through the teacher once, by Ray Data or in this process.

Ray Data is the engine; the shard files and the manifest are the contract. CPU tasks read and tokenise, a pool
of actors holds the teacher, and each actor writes the file of its shard itself: only one row per shard
travels back. A run that was killed continues with the missing shards.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from stillhouse.cluster.leases import making
from stillhouse.cluster.nodes import nodes_to_come, nodes_up
from stillhouse.cluster.ray_data import as_list, from_list, streaming
from stillhouse.cluster.resources import grows, in_all, teacher_actors
from stillhouse.cluster.running import require_usable_gpu
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, mistake_in, require
from stillhouse.core.watchdog import Watchdog
from stillhouse.teachers.build_state import Build
from stillhouse.teachers.kinds import kind_of
from stillhouse.teachers.shards import Embedders, Shard, Work, tokenise
from stillhouse.values.data import Store

if TYPE_CHECKING:
    import pyarrow as pa

_FOR_TASKS = 0.1
"""CPUs of a task that tokenises, and the share of a node's that an actor leaves for them, on a cluster that
grows."""

_SHARDS_PER_NODE = 8
"""Shards that make it worth to wait for another node; about a minute's work on a CPU."""

_SHAPES = "32"
"""Shapes of products that oneDNN keeps; a transformer's layers have a handful for each batch."""

_BATCH_SECONDS = 1800.0
"""Seconds after which an actor whose batch does not end is ended, and its shard begun anew by another one."""

Progress = Callable[[int, int, float], None]


def resolve_compute(device: str = "cpu", compute: str = "auto") -> str:
    """Resolve the precision of a forward pass: the driver does so once, and it enters the store's key.

    Args:
        device: ``cpu``, ``cuda``, ``mps``.
        compute: ``auto`` (bfloat16 if the hardware multiplies it faster), ``bfloat16`` or ``float32``.

    Raises:
        BadInput: This machine cannot run that precision.
    """
    allowed = ("auto", "bfloat16", "float32")
    require(compute in allowed, "compute in (auto, bfloat16, float32)", compute=compute)
    kind = torch.device(device).type
    supported = _has_bfloat16(kind)
    if compute == "auto":
        return "bfloat16" if supported and not (kind == "cpu" and _multiplies_slowly()) else "float32"
    if compute == "bfloat16" and not supported:
        raise BadInput(
            f"`compute = bfloat16` needs hardware that supports bfloat16, but {device} does not. Use "
            "compute=float32 (another store), or a machine with AVX512-BF16, AMX or a recent GPU."
        )
    return compute


def build_stores(
    workspace: Workspace,
    stores: Sequence[Store],
    *,
    actors: int = 1,
    threads: int = 1,
    local: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    batch_tokens: int = 0,
) -> None:
    """Embed text tables with one pool of teachers, unless finished; other processes wait for them.

    Every worker must see the workspace under the same path, unless it has a remote. ``actors`` processes hold
    the teacher, or this one alone if ``local``, without Ray. ``progress`` is called with the rows done, all
    rows, and the share of the work that is done. ``batch_tokens`` include the padding; 0 takes what suits the
    device and the runtime.

    Raises:
        BadInput: The texts or the teacher are missing or not those of the plan, Ray is not running or too
            small, or the disk is full. Finished shards stay, and the same call continues from there.
    """
    require(actors >= 1, "actors >= 1", actors=actors)
    require(threads >= 1, "threads >= 1", threads=threads)
    unfinished = {store.fingerprint: store for store in stores if not workspace.finished(store)}
    for store in unfinished.values():
        if not workspace.finished(store.texts):
            raise BadInput(
                "The texts must be read before they are embedded, but "
                f"{workspace.path(store.texts)} is not finished."
            )
    with contextlib.ExitStack() as locks:
        for _, store in sorted(unfinished.items()):
            locks.enter_context(making(workspace, store))
        left = [store for store in unfinished.values() if not workspace.finished(store)]
        # What is imported or asked for comes first: it may be refused before a teacher is loaded.
        left.sort(key=lambda store: not (store.teacher.imported or store.teacher.asked))
        where = None, device, threads, batch_tokens, workspace.remote
        works = [Work(store, workspace.root.resolve(), *where) for store in left]
        builds = [Build(kind_of(work.store.teacher.maker).ready(work)) for work in works]
        works = [build.work for build in builds]
        missing: dict[str, list[tuple[int, int]]] = {}
        for number, build in enumerate(builds):
            parts = [(number, part) for part in build.missing()]
            missing.setdefault(build.work.store.teacher.maker, []).extend(parts)
        told, pool = functools.partial(_tell, builds, progress), 0 if local else actors
        shards = (kind_of(kind).shards(works, parts, pool, told) for kind, parts in missing.items() if parts)
        ahead = sum(map(len, missing.values()))
        for number, shard in itertools.chain.from_iterable(shards):
            builds[number].add(shard)
            ahead -= 1
            # Of the shards that a pool is at, half is done.
            told(at_work=min(pool, ahead) / 2 / ahead if ahead else 0.0)
        for build in builds:
            build.finish()


def _tell(
    builds: list[Build], progress: Progress | None, number: int = 0, unfinished: int = 0, at_work: float = 0.0
) -> None:
    """Tell what is done: rows, those of an unfinished shard included, and work, with a part of the rest."""
    if progress is not None:
        done = [build.done + (unfinished if at == number else 0) for at, build in enumerate(builds)]
        work = sum(build.size * rows / max(1, build.total) for build, rows in zip(builds, done, strict=True))
        share = work / max(1, sum(build.size for build in builds))
        progress(sum(done), sum(build.total for build in builds), share + (1 - share) * at_work)


def _has_bfloat16(kind: str) -> bool:
    if kind == "cuda":
        # A cluster's driver may have no GPU, and assumes a recent one: each actor checks again.
        return not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    flags = _cpu_info()
    return "avx512_bf16" in flags or "amx_bf16" in flags or " bf16 " in flags


def _multiplies_slowly() -> bool:
    """Whether this CPU multiplies bfloat16 at half the rate of float32: Intel's, where a cloud hides AMX."""
    info = _cpu_info()
    return "GenuineIntel" in info and "amx_bf16" not in info


def _cpu_info() -> str:
    info = Path("/proc/cpuinfo")
    return info.read_text() if info.exists() else ""


def in_process(
    works: list[Work], missing: list[tuple[int, int]], told: Callable[[int, int], None]
) -> Iterator[tuple[int, Shard]]:
    """Embed shards in this process; see `teachers.kinds.TeacherKind.shards`."""
    before = torch.get_num_threads()
    try:
        embedders = Embedders(works)
        for number, part in missing:
            tokens, of_store = tokenise(works[number], part), functools.partial(told, number)
            yield number, embedders(number, part, *tokens, of_store)
    finally:
        torch.set_num_threads(before)


def through_ray(
    works: list[Work], missing: list[tuple[int, int]], actors: int
) -> Iterator[tuple[int, Shard]]:
    """Embed shards by Ray Data, in a pool of actors."""
    import ray.data

    if not ray.is_initialized():
        raise BadInput(
            "Ray must be running before a store is built with it. Call ray.init first, or build with "
            "local=True."
        )
    with streaming():
        first = works[missing[0][0]]
        actors = _worth_starting(first, actors, len(missing))
        per_task, per_actor = _resources(first, actors)
        items = [{"number": number, "index": part} for number, part in missing]
        rows = ray.data.from_items(items, override_num_blocks=len(missing))
        tokens = rows.map_batches(
            _tokenise_task, fn_args=(works,), batch_size=1, batch_format="pyarrow", **per_task
        )
        shards = tokens.map_batches(
            _TeacherActor,
            fn_constructor_args=(works,),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=actors),
            runtime_env={"env_vars": _environment(first.threads)},
            **_able_nodes(first),
            **per_actor,
        )
        try:
            for row in shards.iter_rows():
                yield row.pop("number"), Shard(**row)
        except Exception as error:
            if (mistake := mistake_in(error)) is not None:
                raise mistake from None
            raise


def _tokenise_task(batch: "pa.Table", works: list[Work]) -> "pa.Table":
    import pyarrow as pa

    (number,), (index,) = batch["number"].to_pylist(), batch["index"].to_pylist()
    ids, offsets = tokenise(works[number], index)
    columns = {"ids": as_list(ids), "offsets": as_list(offsets)}
    return pa.table({"number": [number], "index": [index], **columns})


class _TeacherActor:
    def __init__(self, works: list[Work]) -> None:
        self._works = works

    @functools.cached_property
    def _embedders(self) -> Embedders:
        """The teachers, loaded for the first shard: Ray says of an error before it that the actor died."""
        for work in self._works:
            require_usable_gpu(work.device)
            resolve_compute(work.device, work.store.compute)
        return Embedders(self._works)

    def __call__(self, batch: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        (number,), (index,) = batch["number"].to_pylist(), batch["index"].to_pylist()
        ids, offsets = from_list(batch, "ids"), from_list(batch, "offsets")
        with Watchdog(_BATCH_SECONDS) as watchdog:
            watchdog.feed()
            shard = self._embedders(number, index, ids, offsets, lambda _: watchdog.feed())
        return pa.table({"number": [number], **{name: [value] for name, value in shard._asdict().items()}})


def _able_nodes(work: Work) -> dict[str, dict[str, str]]:
    """Keep actors off the nodes that lack a store's precision, where others have it; a line names them."""
    import ray

    kind, node_id = torch.device(work.device).type, "ray.io/node-id"
    room = "GPU" if kind == "cuda" else "CPU"
    nodes = {each["NodeID"]: each for each in ray.nodes() if each["Alive"] and each["Resources"].get(room)}
    if work.store.compute != "bfloat16" or len(nodes) < 2:
        return {}
    task = ray.remote(num_cpus=0)(_has_bfloat16)
    asked = [task.options(label_selector={node_id: node}).remote(kind) for node in nodes]
    lacking = [node for node, able in zip(nodes, ray.get(asked), strict=True) if not able]
    if not 0 < len(lacking) < len(nodes):
        return {}
    where = ", ".join(nodes[node]["NodeManagerAddress"] for node in lacking)
    say(f"  no teacher runs on {where}, without bfloat16: --compute float32 takes every node")
    return {"label_selector": {node_id: f"!in({','.join(lacking)})"}}


def _environment(threads: int) -> dict[str, str]:
    """Return variables that torch and the tokenizers read on import, before the actor's code runs.

    oneDNN keeps what it has compiled for each shape of a product, by default for 1024 shapes of each kind. A
    teacher's batches rarely have the same number of tokens twice, so that this would only hold memory.
    """
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    shapes = dict.fromkeys(("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), _SHAPES)
    return {**counts, **shapes, "TOKENIZERS_PARALLELISM": "false"}


def _worth_starting(work: Work, actors: int, shards: int) -> int:
    """Number of actors: no more than shards and, on a cluster that grows, than are worth a node of their own.

    All are started at once: those without room wait for nodes, which is how an autoscaler learns that nodes
    are needed, and take part when theirs has come.
    """
    actors = min(actors, shards)
    if not grows():
        return actors
    return min(actors, max(shards // _SHARDS_PER_NODE, teacher_actors(work.device, grown=False)))


def _resources(work: Work, actors: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the logical resources of a task and of an actor.

    On a cluster of a fixed size the actors share it, and half of the CPUs stay free for tasks. On one that
    grows an actor waits for a node of its own, and so asks for it; whatever the size of a node, an actor and
    a task have room on it together.
    """
    on_gpu, up = torch.device(work.device).type == "cuda", nodes_up()
    cpus, gpus = in_all("CPU", up), in_all("GPU", up)
    if not grows() and cpus:
        each = min(float(work.threads), cpus / 2 / actors)
        task, actor = {"num_cpus": min(0.5, cpus / 4)}, {"num_cpus": max(0.01, round(each - 0.005, 2))}
        if on_gpu:
            actor["num_gpus"] = min(1.0, round(gpus / actors - 0.005, 2)) if gpus else 1.0
        return task, actor
    kinds = [shape for shape, _ in [*up, *nodes_to_come()] if shape.get("GPU" if on_gpu else "CPU")]
    largest = max((shape.get("CPU", 0.0) for shape in kinds), default=float(work.threads))
    actor = {"num_cpus": round(min(float(work.threads), largest) * (1 - _FOR_TASKS), 2)}
    return {"num_cpus": _FOR_TASKS}, actor | ({"num_gpus": 1.0} if on_gpu else {})
