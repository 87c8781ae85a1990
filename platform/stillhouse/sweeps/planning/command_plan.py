"""Planning a command: its data is counted, what has not run here is timed, nothing is embedded or trained."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch

from stillhouse.cluster.resources import Need, capacity
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import doing, say
from stillhouse.core.errors import require
from stillhouse.core.job_clock import duration
from stillhouse.core.machine import available_memory, cores, describe_machine
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.preparation import Preparation
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import kinds_read
from stillhouse.preflight import disk_and_memory
from stillhouse.preflight.planned import Planned
from stillhouse.reports.row_table import Rows
from stillhouse.search.options import SweepOptions
from stillhouse.search.trial import context_of
from stillhouse.sweeps.baseline import baseline_search
from stillhouse.sweeps.forecast import (
    DELIVERY,
    EMBEDDING,
    READING,
    SEARCH,
    Forecast,
    Remaining,
    seconds_of_parts,
    seconds_per_model,
)
from stillhouse.sweeps.planning import counting
from stillhouse.sweeps.planning.bench import Bench
from stillhouse.sweeps.planning.counting import Counted, counted, with_rows
from stillhouse.sweeps.runs import Training
from stillhouse.sweeps.sweep import asked_by
from stillhouse.training.estimate import Kind, Pace, Paces, kind_of, parts_of
from stillhouse.training.where import Where
from stillhouse.values.data import Store, Teacher, TokenTable
from stillhouse.values.stage import Stage

_MOST = 16
"""Most processes that measure at once."""
_PROCESS = 1_000_000_000
"""Bytes of a process that has loaded the libraries, at most."""
_SIZE, _FOR_A_TIME = "gigabytes", "gigabytes_meanwhile"


@dataclass(frozen=True)
class Request:
    """Place and options of the planned command.

    Attributes:
        nodes: Number of nodes; 0 for this machine alone.
        speed: How many times as fast as this machine one of them is.
        local: Whether the command runs in one process, without Ray.
        need: Resources of one trial.
        actors: Teacher processes; 0 for as many as fit.
        at_once: Most trials at once; 0 for as many as fit.
        device: Device of teacher and students.
    """

    nodes: int = 0
    speed: float = 1.0
    local: bool = False
    need: Need = field(default_factory=Need)
    actors: int = 0
    at_once: int = 0
    device: str = "cpu"

    @property
    def embedding(self) -> Embedding:
        """Where the data is read and named; nothing is embedded."""
        return Embedding(local=True, device=self.device)

    @property
    def cores(self) -> float:
        """Cores of one training."""
        return cores() if self.local else self.need.cpus * self.need.workers

    def places(self, nodes: int) -> tuple[int, int]:
        """Trials and teacher processes at once on some nodes like this machine."""
        if self.local:
            return 1, 1
        on_gpu, need = self.device.startswith("cuda"), self.need.on(self.device)
        node = {"CPU": float(cores()), "GPU": float(torch.cuda.device_count() if on_gpu else 0)}
        slots = capacity(need, [(node, float(nodes))]) // need.workers
        require(
            slots > 0,
            "a trial must fit on a node",
            needs=f"{need.workers} x {need.worker}",
            node=node,
            remedy="Lower --workers or the resources of a worker.",
        )
        teachers = self.actors or max(1, int(nodes * node["GPU" if on_gpu else "CPU"]))
        return min(slots, self.at_once or slots), teachers


@dataclass(frozen=True)
class Plan:
    """The forecast of a command.

    Attributes:
        share: Share of the text to distil on that was read to count it.
        made: The artifacts with rows, tokens and gigabytes; the last line has those that stay.
        memory_gb: Gigabytes of each kind of process.
        times: Trials, hours, and seconds of each part, here and on the nodes that were asked for.
        remarks: The rates, and what the estimate rests on.
    """

    share: float
    made: Rows
    memory_gb: Mapping[str, float]
    times: Rows
    remarks: tuple[str, ...]

    def rows(self) -> Rows:
        """A table of the time here, the disk and the memory."""
        seconds = {name: value for name, value in self.times[0].items() if isinstance(value, float)}
        seconds["in all"] = 3600 * seconds.pop("hours")
        rows: list[dict[str, Any]] = [{"part": name, "seconds": s} for name, s in seconds.items() if s]
        rows.append({"part": "on the disk at the end", _SIZE: self.made[-1][_SIZE]})
        return Rows(rows + [{"part": f"memory of {name}", _SIZE: gb} for name, gb in self.memory_gb.items()])

    def lines(self) -> Iterator[str]:
        """The lines that the command prints."""
        if self.share < 1:
            yield f"estimated from {self.share:.2%} of the text to distil on"
        yield from str(Rows(map(_printed, self.made))).splitlines()
        yield f"memory: {', '.join(f'{name} {gb:.1f} GB' for name, gb in self.memory_gb.items())}"
        yield from self.remarks
        yield from str(Rows(map(_timed, self.times))).splitlines()


def _timed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line of times in words."""
    seconds = {**row, "hours": 3600 * row["hours"]}.items()
    return {"time" if n == "hours" else n: duration(v) if isinstance(v, float) else v for n, v in seconds}


def _printed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line of what is made, with its size in words."""
    names = {_SIZE: "size", _FOR_A_TIME: "for a time"}
    return {names.get(n, n): disk_and_memory.in_bytes(1e9 * v) if n in names else v for n, v in row.items()}


def plan_sweep(options: SweepOptions, workspace: Workspace, request: Request) -> Plan:
    """Plan a sweep, whose device is settled; small corpora are read into the workspace.

    Raises:
        BadInput: The data cannot be read or counted.
    """
    experiment, teacher = options.experiment, options.teacher or options.experiment.teacher.finder.resolve()
    data = Preparation(experiment, workspace, request.embedding, options.refresh, found=teacher)
    with counted(data, partial(asked_by, options)) as known:
        setting = with_rows(known.setting, known)
        context = context_of(options, setting, known.workspace, Where(device=options.device))
        refit = None if known.refit is None else with_rows(known.refit, known)
        baseline, _ = baseline_search(options, context)
        forecast = Forecast(options, context, workspace, refit=refit, baseline=baseline)
        work, stages = forecast.remaining(), forecast.stages()
        return _Planner(experiment, teacher, workspace, known, request, stages, work, options).plan()


def plan_training(training: Training, workspace: Workspace, request: Request, *, refresh: bool) -> Plan:
    """Plan the training of one student; see `plan_sweep`."""
    method, hp, experiment, teacher = training.method, training.hp, training.experiment, training.teacher
    kinds = kinds_read(method, hp, experiment, experiment.of(teacher).sketch())
    data = Preparation(experiment, workspace, request.embedding, refresh, kinds, teacher)
    with counted(data, lambda data: [method.plan(hp, data.setting)]) as known:
        stage = method.plan(hp, with_rows(known.setting, known))
        stages, work = [(part, 1) for part in stage.chain()], Remaining(students=[parts_of(stage, workspace)])
        return _Planner(experiment, teacher, workspace, known, request, stages, work).plan()


def plan_embedding(experiment: Experiment, workspace: Workspace, request: Request, *, refresh: bool) -> Plan:
    """Plan the embedding of an experiment's text; see `plan_sweep`."""
    teacher = experiment.teacher.finder.resolve()
    data = Preparation(experiment, workspace, request.embedding, refresh, found=teacher)
    with counted(data, lambda data: [data.setting, data.test]) as known:
        return _Planner(experiment, teacher, workspace, known, request, [], Remaining()).plan()


@dataclass(frozen=True)
class _Planner:
    """Puts a plan together: of what was counted, of every stage with its number, and of the work left."""

    experiment: Experiment
    teacher: Teacher
    workspace: Workspace
    known: Counted
    request: Request
    stages: Sequence[tuple[Stage, int]]
    work: Remaining
    options: SweepOptions | None = None

    def plan(self) -> Plan:
        """Count, measure, and estimate."""
        request, kinds = self.request, self._kinds
        with doing("counting tokens"):
            vectors = counting.stores_to_make(self.known, self.workspace)
            tokens = counting.token_tables(self.known, kinds.values())
        paces, teacher, source = self._rates([store for store, _ in vectors])
        taught = sum(count for _, count in vectors) / teacher if teacher else 0.0
        where = [(1, 1.0), *([(request.nodes, request.speed)] if request.nodes else [])]
        times, memory = Rows(self._time(paces, taught, *each) for each in where), self._memory()
        said = [f"the teacher embeds {teacher:,.0f} tokens per second and process"] if teacher else []
        for kind, stage in kinds.items():
            said.append(
                f"{stage.label} trains {request.cores / max(paces[kind].example_s, 1e-9):,.1f} examples per "
                f"second; an evaluation takes {duration(paces[kind].evaluation_s / request.cores)}"
            )
        said += [f"  {source}", *self._concerns(memory, times[0])]
        made = self._made(vectors, tokens, times[0]["trials at once"])
        return Plan(min(1.0, 1.0 / self.known.factor), made, memory, times, tuple(said))

    @property
    def _trials(self) -> int:
        return self.options.trials if self.options else 1

    @cached_property
    def _kinds(self) -> dict[Kind, Stage]:
        """One stage of every kind."""
        return {kind_of(stage): stage for stage, _ in reversed(self.stages)}

    def _rates(self, stores: Sequence[Store]) -> tuple[dict[Kind, Pace], float, str]:
        """Paces of one core, of what ran here or measured now, and tokens per second of a teacher."""
        known, request, paces, teacher = self.known, self.request, Paces(self.workspace).known(), 0.0
        run = [store for store in stores if store.teacher.checkpoint]
        new = [stage for kind, stage in self._kinds.items() if kind not in paces]
        if not new and not run:
            return paces, teacher, "as similar stages took here"
        trials, actors = request.places(1)
        # What does not fit into memory at once is measured by fewer processes.
        fit = int(available_memory() / 1e9 / self._memory()["teacher actor"])
        actors, trials = min(actors, _MOST, fit), min(trials, self._trials) * request.need.workers
        trials, cpus = (1, cores()) if request.local else (min(trials, _MOST), int(request.need.cpus))
        say("  timing what has not run here yet: less than a minute")
        with doing("timing teacher and student"):
            if run:
                bench = Bench(known.workspace, request.device, max(1, actors), cpus if request.local else 1)
                teacher = bench.embedding_rate(run[0])
            if new:
                bench = Bench(known.workspace, request.device, trials, max(1, cpus))
                found, encoding = bench.training_paces(new, known.setting.teacher_dim)
                for stage, pace in zip(new, found, strict=True):
                    evaluation_s = counting.suite_tokens(known, stage) / encoding if encoding else 0.0
                    paces[kind_of(stage)] = Pace(
                        pace.example_s * request.cores, evaluation_s * request.cores, pace.setup_s
                    )
        machine = describe_machine(1)
        said = f"measured now on {machine['cores']} cores of {machine['cpu']}, load {machine['load']}"
        return paces, teacher, said

    def _time(self, paces: dict[Kind, Pace], taught: float, nodes: int, speed: float) -> dict[str, Any]:
        """Hours and seconds of every part on some nodes; ``taught`` are those of one teacher process."""
        request, (slots, teachers) = self.request, self.request.places(nodes)
        alone, per_node = request.cores, -(-max(1, len(self.work.refits)) // nodes)
        if not request.need.on(request.device).gpus and not request.need.nested:
            alone = max(alone, cores() // per_node)
        work = replace(self.work.anew(), slots=slots, cores=request.cores * speed, refit_cores=alone * speed)
        found = seconds_of_parts(work, paces, model_s=seconds_per_model(self.workspace))
        assert found is not None, "every kind of stage has run here or was timed"
        found[DELIVERY] /= speed
        parts = found if self.options else {"training": found[SEARCH]}
        seconds = {READING: self.known.unread_s, EMBEDDING: taught / speed / teachers, **parts}
        return {
            "where": "here" if (nodes, speed) == (1, 1) else f"on {nodes} nodes, {speed:g} x as fast",
            **({"trials": self._trials} if self.options else {}),
            "trials at once": min(slots, self._trials),
            "teachers at once": teachers,
            "hours": sum(seconds.values()) / 3600,
            **seconds,
        }

    def _made(
        self, vectors: Sequence[tuple[Store, int]], tokens: Sequence[tuple[TokenTable, int]], at_once: int
    ) -> Rows:
        """The artifacts with rows, tokens and gigabytes; the last line has those that stay."""
        known, made = self.known, list[dict[str, Any]]()
        dim = known.setting.teacher_dim / max(1, len(self.teacher.members))

        def add(what: str, number: int, size: float, column: str = _SIZE, **counts: int) -> None:
            made.append({"what": what, "number": number, **counts, column: size / 1e9})

        tables = [*(store.texts for store, _ in vectors), *(table.texts for table, _ in tokens)]
        for texts in dict.fromkeys(tables):
            add(f"texts {texts.label}", 1, known.bytes(texts), rows=known.rows(texts))
        for store, count in vectors:
            rows = known.rows(store.texts)
            add(f"vectors {store.label}", 1, disk_and_memory.vector_bytes(rows, dim), rows=rows, tokens=count)
        for table, count in tokens:
            rows = known.rows(table.texts)
            add(f"tokens {table.label}", 1, disk_and_memory.token_bytes(rows, count), rows=rows, tokens=count)
        sizes = {kind: 1e6 * disk_and_memory.student_megabytes(stage) for kind, stage in self._kinds.items()}
        for kind, stage in self._kinds.items():
            number = sum(count for each, count in self.stages if kind_of(each) == kind)
            add(f"students {stage.label}, {sizes[kind] / 1e6:,.1f} MB each", number, number * sizes[kind])
        total = sum(each[_SIZE] for each in made)
        if window := self.experiment.budget.shard_window:
            held = sum(disk_and_memory.held_rows(known.rows(store.texts), window) for store in known.stores)
            add("shards of a node", 2 * window, disk_and_memory.vector_bytes(held, dim), _FOR_A_TIME)
        if sizes:
            add("checkpoints", at_once, at_once * 3 * disk_and_memory.KEPT * max(sizes.values()), _FOR_A_TIME)
        return Rows([*made, {"what": "in all, at the end", _SIZE: total}])

    def _memory(self) -> dict[str, float]:
        """Gigabytes of each kind of process."""
        some: Any = next(iter(self._kinds.values()), None)
        setting, where = self.known.setting, self.known.workspace
        planned = Planned(self.experiment, self.teacher, setting, some, where, self.request.device)
        step = max(
            (disk_and_memory.training_bytes(planned, stage) for stage in self._kinds.values()), default=0
        )
        actor, trial = ((_PROCESS + each) / 1e9 for each in (disk_and_memory.teacher_bytes(planned), step))
        student = {"trial" if self.options else "training": trial} if step else {}
        return {"teacher actor": actor, **student, **({"driver": actor} if self.options else {})}

    def _concerns(self, memory: Mapping[str, float], here: Mapping[str, Any]) -> Iterator[str]:
        """Return remarks on the scheduler, and on processes that do not fit into this machine's memory."""
        if self.work.stops is not None and self.work.stoppable:
            stopped = 1 - self.work.stops.continues
            yield f"  {stopped:.0%} of the trials are expected to be stopped at each rung of the scheduler"
        free = available_memory() / 1e9
        for name, count in (("teacher actor", here["teachers at once"]), ("trial", here["trials at once"])):
            needed = count * memory.get(name, 0.0)
            if self.request.device == "cpu" and needed > free:
                yield (
                    f"memory: {count} processes at once ({name}) need {needed:.0f} GB, but {free:.0f} GB are "
                    "free here: lower --concurrency, --actors or the batch"
                )
