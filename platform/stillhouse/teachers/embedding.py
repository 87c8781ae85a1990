"""Build a store: every shard of texts through the teacher, once, by Ray Data or in this process.

Ray Data is the engine; the shard files and the manifest are the contract. CPU tasks read and tokenise, a pool
of actors holds the teacher, and each actor writes the file of its shard itself: what travels back is a line a
shard. A run that was killed goes on with the shards that are missing.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stillhouse.core.artifacts import Workspace, locked
from stillhouse.core.errors import mistake_in, require
from stillhouse.plan.data import Model, Store
from stillhouse.teachers.build_state import Build
from stillhouse.teachers.forward import usual_batch_tokens
from stillhouse.teachers.shards import Embedders, Shard, Work, tokenise
from stillhouse.teachers.weights import check_teacher, on_this_machine, tokenizer_of

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int, int], None]


def resolve_compute(device: str = "cpu", wanted: str = "auto") -> str:
    """The precision of a forward pass: the driver resolves ``auto`` once, it then belongs to the store's key.

    Args:
        device: ``cpu``, ``cuda``, ``mps``.
        wanted: ``auto`` (bfloat16 where the hardware multiplies it), ``bfloat16`` or ``float32``.

    Raises:
        BadInput: This machine cannot run what is wanted.
    """
    allowed = ("auto", "bfloat16", "float32")
    require(wanted in allowed, "compute in (auto, bfloat16, float32)", compute=wanted)
    able = _has_bfloat16(torch.device(device).type)
    require(
        able or wanted != "bfloat16",
        "bfloat16 runs where the hardware has it",
        device=device,
        remedy="Use compute=float32 (another store), or a machine with AVX512-BF16, AMX or a recent GPU.",
    )
    return "float32" if wanted == "float32" or not able else "bfloat16"


def build_store(workspace: Workspace, store: Store, **where: Any) -> None:
    """Embed one text table; see `build_stores`, whose keyword arguments it takes."""
    build_stores(workspace, [store], **where)


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
    no_progress_seconds: float = 600.0,
) -> None:
    """Embed text tables with one pool of teachers, if nobody has yet; others who want them wait.

    Args:
        workspace: Where the texts are and the vectors go; every worker must see it under the same path.
        stores: What to build.
        actors: Processes that hold the teacher.
        threads: Of each of them.
        local: Work in this process, without Ray.
        device: ``cpu``, ``cuda`` or ``mps``.
        progress: Called with the rows done and their number.
        batch_tokens: Padded tokens a batch; 0 takes what suits the device.
        no_progress_seconds: Ray gives up when no shard moves for so long.

    Raises:
        BadInput: The texts or the teacher are missing or not those of the plan, Ray is not running or too
            small, or the disk is full. What is finished stays, and the same call goes on from there.
    """
    require(actors >= 1, "actors >= 1", actors=actors)
    require(threads >= 1, "threads >= 1", threads=threads)
    wanted = {store.fingerprint: store for store in stores if not workspace.finished(store)}
    for store in wanted.values():
        texts = workspace.path(store.texts)
        require(
            workspace.finished(store.texts), "the texts are read before they are embedded", texts=str(texts)
        )
    with contextlib.ExitStack() as locks:
        for _, store in sorted(wanted.items()):
            locks.enter_context(locked(workspace.path(store).with_suffix(".lock")))
        left = [store for store in wanted.values() if not workspace.finished(store)]
        builds = [Build(_work(workspace, store, device, threads, batch_tokens)) for store in left]
        missing = [(number, part) for number, build in enumerate(builds) for part in build.missing()]
        works = [build.work for build in builds]
        if local:
            made = _in_process(works, missing)
        else:
            made = _through_ray(works, missing, actors, no_progress_seconds)
        _follow(builds, made, progress)


def _follow(builds: list[Build], made: Iterator[tuple[int, Shard]], progress: Progress | None) -> None:
    """Take in the shards as they are made, and declare the stores finished."""
    total = sum(build.total for build in builds)
    for number, shard in made:
        builds[number].add(shard)
        if progress is not None:
            progress(sum(build.done for build in builds), total)
    for build in builds:
        build.finish()


def _has_bfloat16(kind: str) -> bool:
    if kind == "cuda":
        # A cluster's driver may have none, and plans for a recent one: each actor asks again.
        return not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    flags = Path("/proc/cpuinfo")
    known = flags.read_text() if flags.exists() else ""
    return "avx512_bf16" in known or "amx_bf16" in known or " bf16 " in known


def _work(workspace: Workspace, store: Store, device: str, threads: int, batch_tokens: int) -> Work:
    resolve_compute(device, store.compute)
    if isinstance(store.teacher, Model):
        check_teacher(on_this_machine(store.teacher))
    return Work(
        store,
        workspace.root.resolve(),
        tokenizer_of(store.teacher),
        device,
        threads,
        batch_tokens or usual_batch_tokens(device, threads),
    )


def _in_process(works: list[Work], missing: list[tuple[int, int]]) -> Iterator[tuple[int, Shard]]:
    if not missing:
        return
    before = torch.get_num_threads()
    try:
        embedders = Embedders(works)
        for number, part in missing:
            yield number, embedders(number, part, *tokenise(works[number], part))
    finally:
        torch.set_num_threads(before)


def _through_ray(
    works: list[Work], missing: list[tuple[int, int]], actors: int, no_progress_seconds: float
) -> Iterator[tuple[int, Shard]]:
    import ray

    require(
        ray.is_initialized(),
        "Ray runs before a store is built with it",
        remedy="Call ray.init first, or build with local=True.",
    )
    if not missing:
        return
    actors = min(actors, len(missing))
    import ray.data

    with ray.data.DataContext.current(_context(no_progress_seconds)), _quiet():
        of_tasks, of_actors = _shares(works[0], actors, ray.cluster_resources())
        items = [{"number": number, "index": part} for number, part in missing]
        rows = ray.data.from_items(items, override_num_blocks=len(missing))
        tokens = rows.map_batches(
            _tokenise_task, fn_args=(works,), batch_size=1, batch_format="pyarrow", **of_tasks
        )
        shards = tokens.map_batches(
            _TeacherActor,
            fn_constructor_args=(works,),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=actors),
            runtime_env={"env_vars": _environment(works[0].threads)},
            **of_actors,
        )
        try:
            for row in shards.iter_rows():
                yield row.pop("number"), Shard(**row)
        except Exception as error:
            raise mistake_in(error) or error from None


def _tokenise_task(batch: "pa.Table", works: list[Work]) -> "pa.Table":
    import pyarrow as pa

    (number,), (index,) = batch["number"].to_pylist(), batch["index"].to_pylist()
    ids, offsets = tokenise(works[number], index)
    columns = {"ids": _as_list(ids), "offsets": _as_list(offsets)}
    return pa.table({"number": [number], "index": [index], **columns})


def _as_list(values: Any) -> "pa.ListArray":
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))


class _TeacherActor:
    def __init__(self, works: list[Work]) -> None:
        resolve_compute(works[0].device, works[0].store.compute)
        self._embedders = Embedders(works)

    def __call__(self, batch: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        (number,), (index,) = batch["number"].to_pylist(), batch["index"].to_pylist()
        ids, offsets = (batch[name].combine_chunks().flatten().to_numpy() for name in ("ids", "offsets"))
        shard = self._embedders(number, index, ids, offsets)
        return pa.table({"number": [number], **{name: [value] for name, value in shard._asdict().items()}})


def _context(no_progress_seconds: float) -> Any:
    import ray.data

    context = ray.data.DataContext.get_current().copy()
    context.execution_no_progress_timeout_s = no_progress_seconds
    context.max_errored_blocks = 0
    # A worker's refusal would otherwise arrive as text inside another exception.
    context.raise_original_map_exception = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    return context


def _environment(threads: int) -> dict[str, str]:
    """Read by torch and the tokenizers when they are imported: it must be there before the actor starts."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return {**counts, "TOKENIZERS_PARALLELISM": "false"}


def _shares(work: Work, actors: int, cluster: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Logical resources of a task and an actor: half of the CPUs stay free for tasks, or nothing would move.

    An autoscaled cluster may have no worker yet; then the usual sizes are asked for.
    """
    cpus = cluster.get("CPU", 0.0) or float(actors * work.threads + 2)
    each = min(float(work.threads), cpus / 2 / actors)
    task, actor = {"num_cpus": min(0.5, cpus / 4)}, {"num_cpus": max(0.01, round(each - 0.005, 2))}
    if torch.device(work.device).type == "cuda":
        gpus = cluster.get("GPU", 0.0)
        actor["num_gpus"] = min(1.0, round(gpus / actors - 0.005, 2)) if gpus else 1.0
    return task, actor


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's chatter in its log file; what goes wrong is raised, and told once."""
    handlers = [h for h in logging.getLogger("ray.data").handlers if type(h).__name__ == "PlainRayHandler"]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
