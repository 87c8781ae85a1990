"""Planning a command: its data is counted, what has not run here is timed, nothing is embedded or trained."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stillhouse.cluster.resources import Need, capacity
from stillhouse.core.artifacts import MANIFEST, Workspace, read_manifest
from stillhouse.core.console import doing, say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import canonical
from stillhouse.core.job_clock import duration
from stillhouse.core.machine import available_memory, cores
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.unread import Unread
from stillhouse.methods import load_method, unread
from stillhouse.preflight.planned import Planned
from stillhouse.preflight.space import (
    KEPT,
    held_rows,
    in_bytes,
    student_megabytes,
    teacher_bytes,
    token_bytes,
    training_bytes,
    vector_bytes,
)
from stillhouse.reports.layout import table_lines
from stillhouse.reports.rows import Rows
from stillhouse.search.options import SweepOptions
from stillhouse.search.shared_stages import first_point, shared_stages
from stillhouse.search.trial import Context
from stillhouse.sweeps.baseline import baseline_choices
from stillhouse.sweeps.forecast import (
    DELIVERY,
    EMBEDDING,
    PARTS,
    READING,
    SEARCH,
    Remaining,
    seconds_of_parts,
    seconds_per_model,
    stops_of,
    tested_models,
)
from stillhouse.sweeps.planning.bench import Measured, Sample, calibrated
from stillhouse.sweeps.planning.counting import (
    Counted,
    TextCount,
    counted,
    suite_tokens,
    tables_to_embed,
    text_bytes,
    token_tables,
    with_rows,
)
from stillhouse.sweeps.runs import Training
from stillhouse.training.estimate import Kind, Pace, Paces, Part, as_if_new, kind_of, parts_of
from stillhouse.training.where import Where
from stillhouse.values.data import Model, Store, Teacher, TextTable, members_of
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

_TOKENISING = 400_000.0
"""Tokens per second that one process makes: 20,000 texts of 20 tokens."""
_MOST = 16
"""Most processes that measure at once."""
_PROCESS = 1_000_000_000
"""Bytes of a process that has loaded the libraries, at most."""


@dataclass(frozen=True)
class Request:
    """What a plan is made for, beside the experiment.

    Attributes:
        nodes: Number of nodes; 0 for this machine alone.
        speed: How many times as fast as this machine one of them is.
        local: Whether the command runs in one process, without Ray.
        need: Resources of one trial.
        actors: Teacher processes; 0 for as many as fit.
        at_once: Most trials at once; 0 for as many as fit.
        device: Device of teacher and students.
        logs: Folder for what the libraries print.
    """

    nodes: int = 0
    speed: float = 1.0
    local: bool = False
    need: Need = field(default_factory=Need)
    actors: int = 0
    at_once: int = 0
    device: str = "cpu"
    logs: Path = Path("logs")

    def __post_init__(self) -> None:
        """Check the numbers."""
        require(self.nodes >= 0, "--nodes >= 1", nodes=self.nodes)
        require(self.speed > 0, "--speed > 0", speed=self.speed)


@dataclass(frozen=True)
class Made:
    """Artifacts that a command makes.

    Attributes:
        name: What they are.
        count: How many.
        gigabytes: Of all of them, 10^9 bytes.
        stays: Whether they stay when the command has ended.
    """

    name: str
    count: int
    gigabytes: float
    stays: bool = True


@dataclass(frozen=True)
class Estimate:
    """How long a command takes on some nodes.

    Attributes:
        where: The nodes, in words.
        seconds: Seconds of each part, by its name.
        at_once: Trials at once.
        teachers: Teacher processes at once.
    """

    where: str
    seconds: Mapping[str, float]
    at_once: int
    teachers: int

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Plan:
    """What a command will take.

    Attributes:
        command: ``sweep``, ``train`` or ``embed``.
        share: Share of the text to distil on that was read to count it.
        texts: Rows and tokens of the tables.
        made: The artifacts.
        students_mb: 10^6 bytes of a finished student of each stage, by label.
        memory_gb: Gigabytes of each kind of process.
        trials: Number of trials.
        estimates: Seconds here, and on the nodes that were asked for.
        rates: Rates in words.
        remarks: What the estimate rests on.
    """

    command: str
    share: float
    texts: tuple[TextCount, ...]
    made: tuple[Made, ...]
    students_mb: Mapping[str, float]
    memory_gb: Mapping[str, float]
    trials: int
    estimates: tuple[Estimate, ...]
    rates: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The content of ``--json``."""
        hours = [{**dataclasses.asdict(each), "hours": each.total / 3600} for each in self.estimates]
        return {**dataclasses.asdict(self), "estimates": hours}

    def rows(self) -> Rows:
        """A table of the time here, the disk and the memory."""
        here = self.estimates[0]
        rows: list[dict[str, Any]] = [
            *({"part": part, "seconds": seconds} for part, seconds in here.seconds.items() if seconds),
            {"part": "in all", "seconds": here.total},
            {"part": "on the disk at the end", "gigabytes": sum(m.gigabytes for m in self.made if m.stays)},
            *({"part": f"memory of {name}", "gigabytes": gb} for name, gb in self.memory_gb.items()),
        ]
        return Rows(rows)

    def lines(self) -> Iterator[str]:
        """The lines that the command prints."""
        share = "" if self.share >= 1 else f" (estimated from {self.share:.2%} of the text to distil on)"
        yield f"text{share}"
        cells = [[each.label, each.what, f"{each.rows:,}", f"{each.tokens:,}"] for each in self.texts]
        yield from _table(["table", "tokens of", "rows", "tokens"], cells, {0, 1})
        yield "on the disk"
        gone = ["gone at the end", ""]
        cells = [
            [each.name, f"{each.count:,}", in_bytes(1e9 * each.gigabytes), gone[each.stays]]
            for each in self.made
        ]
        stay = sum(each.gigabytes for each in self.made if each.stays)
        total = ["in all, at the end", "", in_bytes(1e9 * stay), ""]
        yield from _table(["what", "number", "size", ""], [*cells, total], {0, 3})
        for label, megabytes in self.students_mb.items():
            yield f"a student of the stage {label}: {megabytes:,.1f} MB"
        memory = ", ".join(f"{name} {in_bytes(1e9 * gb)}" for name, gb in self.memory_gb.items())
        yield f"memory of a process: {memory}"
        yield from self.rates
        for each in self.estimates:
            at_once = f"{self.trials} trials, {each.at_once} at once; " if self.trials else ""
            parts = ", ".join(f"{name} {duration(s)}" for name, s in each.seconds.items() if s >= 1)
            yield f"time {each.where}: {duration(each.total)} ({each.total / 3600:.2f} h)"
            yield f"  {at_once}{each.teachers} teachers at once; {parts}"
        for remark in self.remarks:
            yield f"  {remark}"


def _table(names: list[str], cells: list[list[str]], left: set[int]) -> Iterator[str]:
    for line in table_lines(names, cells, left):
        yield f"  {line}".rstrip()


@dataclass(frozen=True)
class _Students:
    """The plans of a command's students.

    Attributes:
        shared: Stages that all trials share.
        trial: Plan of one trial, or of the student of a training.
        trials: Number of trials.
        baseline: Plans of the baseline's students.
        refits: Plans of the refits.
    """

    shared: tuple[Stage, ...] = ()
    trial: Stage | None = None
    trials: int = 0
    baseline: tuple[Stage, ...] = ()
    refits: tuple[Stage, ...] = ()

    @property
    def stages(self) -> list[tuple[Stage, int]]:
        """Every stage that is trained, and how often."""
        kept = {stage.fingerprint for stage in self.shared}
        chain = () if self.trial is None else self.trial.chain()
        trial = [(part, self.trials) for part in chain if part.fingerprint not in kept]
        others = [(part, 1) for plan in (*self.baseline, *self.refits) for part in plan.chain()]
        return [*((part, 1) for part in self.shared), *trial, *others]

    @property
    def by_label(self) -> dict[str, Stage]:
        """One stage of every label."""
        return {stage.label: stage for stage, _ in reversed(self.stages)}


def plan_sweep(options: SweepOptions, workspace: Workspace, request: Request) -> Plan:
    """Plan a sweep.

    Args:
        options: The sweep, whose device is settled.
        workspace: Where it would run; small corpora are read into it.
        request: Where it would run.

    Raises:
        BadInput: The data cannot be read or counted.
    """
    teacher = options.teacher or options.experiment.teacher.resolve()
    with counted(options.experiment, workspace, teacher, request.device, refresh=options.refresh) as known:
        context = Context(
            method=options.method,
            preset=options.preset,
            setting=with_rows(known.prepared.setting, known),
            root=str(known.workspace.root),
            where=Where(device=options.device),
            quality=known.prepared.setting.dev.select,
        )
        students = _of_sweep(options, context, known)
        planner = _Planner("sweep", options.experiment, teacher, workspace, known, request, students)
        return planner.plan(options)


def plan_training(training: Training, workspace: Workspace, request: Request, *, refresh: bool) -> Plan:
    """Plan the training of one student; see `plan_sweep`."""
    method, hp = training.method, training.hp
    experiment, teacher = training.experiment, training.teacher
    skipped = unread(method, hp, experiment, experiment.sketch(teacher))
    with counted(experiment, workspace, teacher, request.device, refresh=refresh, unread=skipped) as known:
        stage = method.plan(hp, with_rows(known.prepared.setting, known))
        students = _Students(trial=stage, trials=1)
        return _Planner("train", experiment, teacher, workspace, known, request, students).plan()


def plan_embedding(experiment: Experiment, workspace: Workspace, request: Request, *, refresh: bool) -> Plan:
    """Plan the embedding of an experiment's text; see `plan_sweep`."""
    teacher = experiment.teacher.resolve()
    with counted(experiment, workspace, teacher, request.device, refresh=refresh, unread=Unread()) as known:
        return _Planner("embed", experiment, teacher, workspace, known, request, _Students()).plan()


def _of_sweep(options: SweepOptions, context: Context, known: Counted) -> _Students:
    """The plans of a sweep's students."""
    point = first_point(options.space)
    plan = context.plan(point)
    by_baseline, choices = baseline_choices(context, plan, point)
    refits: tuple[Stage, ...] = ()
    if known.prepared.refit is not None:
        longer = dataclasses.replace(context, setting=with_rows(known.prepared.refit, known))
        refits = (longer.plan(point),) * min(options.experiment.budget.refit.top, options.trials)
    return _Students(
        shared=tuple(shared_stages(context, options.space)),
        trial=plan,
        trials=options.trials,
        baseline=tuple(by_baseline.plan(values) for values in choices),
        refits=refits,
    )


class _Planner:
    """Puts a plan together from what was counted."""

    def __init__(
        self,
        command: str,
        experiment: Experiment,
        teacher: Teacher,
        workspace: Workspace,
        known: Counted,
        request: Request,
        students: _Students,
    ) -> None:
        self.command, self.experiment, self.teacher = command, experiment, teacher
        self.workspace, self.known, self.request, self.students = workspace, known, request, students
        self.setting: Setting = known.prepared.setting
        self.stages = students.by_label
        self.need = request.need.on(request.device)
        self.cpus, self.gpus = cpus_here(), gpus_here(request.device)

    def plan(self, options: SweepOptions | None = None) -> Plan:
        """Count, measure, and estimate."""
        with doing("counting tokens"):
            embedded = tables_to_embed(self.known, self.workspace)
            tokens = token_tables(self.known, list(self.stages.values()))
        sizes = {label: student_megabytes(stage) for label, stage in self.stages.items()}
        paces, teacher_rate, measured = self._rates(embedded)
        remaining = self._remaining(options)
        estimates = [self._estimate(remaining, paces, teacher_rate, measured, embedded, tokens, 1, 1.0)]
        if nodes := self.request.nodes:
            speed = self.request.speed
            estimates.append(
                self._estimate(remaining, paces, teacher_rate, measured, embedded, tokens, nodes, speed)
            )
        texts = [count for _, count in embedded]
        texts += [TextCount(table.label, "student", rows, count) for table, rows, count in tokens]
        memory = self._memory()
        return Plan(
            command=self.command,
            share=self.known.share,
            texts=tuple(texts),
            made=tuple(self._made(embedded, tokens, sizes, estimates[0].at_once)),
            students_mb=sizes,
            memory_gb=memory,
            trials=self.students.trials if self.command == "sweep" else 0,
            estimates=tuple(estimates),
            rates=tuple(self._rates_in_words(paces, teacher_rate, measured)),
            remarks=(*_remarks(options), *self._too_much(memory, estimates[0])),
        )

    def _rates(self, embedded: Sequence[tuple[Store, TextCount]]) -> tuple[dict[Kind, Pace], float, Measured]:
        """Paces of one core and tokens per second of a teacher: from what ran here, else measured now."""
        paces = Paces(self.workspace).known()
        runs = [store for store, _ in embedded if isinstance(store.teacher, Model)]
        teacher_rate = _embedded_here(runs[0], self.workspace) if runs else 0.0
        new = [stage for stage in self.stages.values() if kind_of(stage) not in paces]
        if not new and (teacher_rate or not runs):
            return paces, teacher_rate, Measured()
        store = runs[0] if runs and not teacher_rate else None
        found = self._measured(store, tuple(new))
        cores = self._cores()
        for stage in new:
            evaluation_s = 0.0
            if found.encoding and stage.dev is not None:
                evaluation_s = suite_tokens(self.known, self.setting.dev, stage) / found.encoding
            pace = found.training[stage.label]
            paces[kind_of(stage)] = Pace(pace.example_s * cores, evaluation_s * cores, pace.setup_s)
        return paces, teacher_rate or found.embedding, found

    def _cores(self) -> float:
        """Cores of one training."""
        return self.cpus if self.request.local else self.need.cpus * self.need.workers

    def _measured(self, store: Store | None, stages: tuple[Stage, ...]) -> Measured:
        request = self.request
        slots = max(1, min(self._slots(1), self.students.trials))
        trainers = 1 if request.local else slots * request.need.workers
        teachers = 1 if request.local else min(request.actors or self._teachers(1), _MOST)
        # What does not fit into memory at once is measured by fewer processes.
        teachers = min(teachers, int(available_memory() // (teacher_bytes(self._planned()) + _PROCESS)))
        sample = Sample(
            self.known.workspace,
            store,
            stages,
            self.setting.teacher_dim,
            request.device,
            embedding_threads=int(self.cpus) if request.local else 1,
            threads=int(self.cpus) if request.local else max(1, int(request.need.cpus)),
        )
        say("  timing what has not run here yet: less than a minute")
        with doing("timing teacher and student"):
            return calibrated(
                sample,
                teachers=max(1, teachers) if store is not None else 0,
                trainers=min(trainers, _MOST) if stages else 0,
                logs=request.logs,
            )

    def _slots(self, nodes: int) -> int:
        """Trials at once on some nodes like this machine."""
        if self.request.local:
            return 1
        shape = {"CPU": self.cpus, "GPU": self.gpus}
        slots = capacity(self.need, [(shape, float(nodes))]) // self.need.workers
        require(
            slots > 0,
            "a trial must fit on a node",
            needs=f"{self.need.workers} x {self.need.worker}",
            node=shape,
            remedy="Lower --workers or the resources of a worker.",
        )
        return min(slots, self.request.at_once or slots)

    def _teachers(self, nodes: int) -> int:
        """Teacher processes at once: one per GPU, or one per CPU where the teacher runs on CPUs."""
        if self.request.local:
            return 1
        each = self.gpus if self.request.device.startswith("cuda") else self.cpus
        return self.request.actors or max(1, int(nodes * each))

    def _remaining(self, options: SweepOptions | None) -> Remaining:
        """The students that will be trained.

        Nothing counts as begun. Of a sweep's trials and refits nothing counts as finished either: an earlier
        sweep may have trained the point that stands for all of them.
        """
        if self.students.trial is None:
            return Remaining()
        kept = {stage.fingerprint for stage in self.students.shared}
        first = "" if options is None else str(load_method(options.method).PRUNABLE_FROM)

        def of(stage: Stage, without: set[str] = kept, judged_from: str = "") -> list[Part]:
            parts = parts_of(stage, self.workspace, without=without, judged_from=judged_from)
            return parts if all(part.done for part in parts) else as_if_new(parts)

        trial = of(self.students.trial, judged_from=first)
        trial = trial if options is None else as_if_new(trial)
        baseline = [of(stage, set()) for stage in self.students.baseline]
        stops, full = (None, 0) if options is None else stops_of(options)
        refits = [as_if_new(of(stage, set())) for stage in self.students.refits]
        places = range(len(baseline) + full, len(baseline) + self.students.trials)
        return Remaining(
            shared=[of(stage, set()) for stage in self.students.shared],
            students=[*baseline, *([trial] * self.students.trials)],
            refits=refits,
            stops=stops,
            stoppable=frozenset(places),
            models=0 if options is None else tested_models(bool(refits)),
        )

    def _estimate(
        self,
        work: Remaining,
        paces: dict[Kind, Pace],
        teacher_rate: float,
        measured: Measured,
        embedded: Sequence[tuple[Store, TextCount]],
        tokens: Sequence[tuple[Any, int, int]],
        nodes: int,
        speed: float,
    ) -> Estimate:
        """Estimate every part on so many nodes, each so many times as fast as this machine."""
        slots, teachers, cores = self._slots(nodes), self._teachers(nodes), self._cores()
        per_node = -(-max(1, len(work.refits)) // nodes)
        share = cores if self.need.gpus or self.need.nested else max(cores, self.cpus // per_node)
        work = dataclasses.replace(work, slots=slots, cores=cores * speed, refit_cores=share * speed)
        found = seconds_of_parts(work, paces, model_s=seconds_per_model(self.workspace))
        if found is None:
            raise BadInput("every stage must have run here or have been timed. Run the plan again.")
        read = self.known.seconds * max(0.0, self.known.factor - 1)
        new = sum(count for table, _, count in tokens if not self.workspace.finished(table))
        taught = sum(count.tokens for _, count in embedded)
        embedding = (
            taught / (teacher_rate * speed * teachers) + measured.load_s / speed
            if taught and teacher_rate
            else 0
        )
        seconds = {
            READING: read if self.known.workspace is not self.workspace else 0.0,
            EMBEDDING: embedding,
            **found,
        }
        seconds[DELIVERY] /= speed
        seconds[SEARCH] += new / _TOKENISING / (1 if self.request.local else max(1.0, self.cpus * nodes))
        where = "here"
        if nodes != 1 or speed != 1:
            where = f"on {nodes} node{'s' if nodes > 1 else ''}, each {speed:g} times as fast"
        return Estimate(where, {name: seconds[name] for name in PARTS}, slots, teachers)

    def _rates_in_words(
        self, paces: Mapping[Kind, Pace], teacher_rate: float, measured: Measured
    ) -> Iterator[str]:
        """The rates of one process, and where they come from."""
        if teacher_rate:
            yield f"the teacher embeds {teacher_rate:,.0f} tokens per second and process"
        for label, stage in self.stages.items():
            pace = paces[kind_of(stage)]
            yield (
                f"{label} trains {self._cores() / max(pace.example_s, 1e-9):,.1f} examples per second; an "
                f"evaluation takes {duration(pace.evaluation_s / self._cores())}"
            )
        yield f"  {measured.source or 'as similar stages and stores took here'}"

    def _too_much(self, memory: Mapping[str, float], estimate: Estimate) -> list[str]:
        """Say that the processes of this machine do not fit into its memory."""
        if self.request.device != "cpu":
            return []
        free, said = available_memory() / 1e9, []
        trials = min(estimate.at_once, max(1, self.students.trials))
        for name, count in (("teacher actor", estimate.teachers), ("trial", trials)):
            needed = count * memory.get(name, 0.0)
            if needed > free:
                said.append(
                    f"memory: {count} processes at once ({name}) need {needed:.0f} GB, but {free:.0f} GB are "
                    "free here: lower --concurrency, --actors or the batch"
                )
        return said

    def _made(
        self,
        embedded: Sequence[tuple[Store, TextCount]],
        tokens: Sequence[tuple[Any, int, int]],
        sizes: Mapping[str, float],
        at_once: int,
    ) -> list[Made]:
        """The artifacts with their gigabytes."""
        known, dim = self.known, self.setting.teacher_dim / max(1, len(members_of(self.teacher)))
        tables: list[TextTable] = list(dict.fromkeys(store.texts for store, _ in embedded))
        tables += [table.texts for table, _, _ in tokens if table.texts not in tables]
        texts = text_bytes(known, list(dict.fromkeys(tables)))
        vectors = sum(vector_bytes(table.rows, dim) for _, table in embedded)
        made = [
            Made("tables of texts", len(texts), sum(texts.values()) / 1e9),
            Made("stores of vectors", len(embedded), vectors / 1e9),
            Made("token tables", len(tokens), sum(token_bytes(rows, n) for _, rows, n in tokens) / 1e9),
        ]
        if window := self.experiment.budget.shard_window:
            held = sum(
                vector_bytes(held_rows(known.rows(store.texts), window), dim) for store in known.stores
            )
            made.append(Made("shards on a node while it trains", 2 * window, held / 1e9, stays=False))
        for label, megabytes in sizes.items():
            count = sum(times for stage, times in self.students.stages if stage.label == label)
            made.append(Made(f"students of the stage {label}", count, count * megabytes / 1e3))
        at_once = min(at_once, max(1, self.students.trials))
        kept = at_once * 3 * KEPT * max(sizes.values(), default=0.0) / 1e3
        made.append(Made("checkpoints while it runs", at_once if kept else 0, kept, stays=False))
        return [each for each in made if each.count]

    def _memory(self) -> dict[str, float]:
        """Gigabytes of each kind of process."""
        base, teacher = _PROCESS / 1e9, teacher_bytes(self._planned()) / 1e9
        found = {"teacher actor": base + teacher}
        if self.stages:
            counts = token_tables(self.known, list(self.stages.values()))
            per_text = max((tokens / max(1, rows) for _, rows, tokens in counts), default=32.0)
            steps = max(training_bytes(stage, per_text) for stage in self.stages.values()) / 1e9
            found["trial" if self.command == "sweep" else "training"] = base + steps
        if self.command == "sweep":
            found["driver"] = base + teacher
        return found

    def _planned(self) -> Planned:
        """What the estimates of memory read; a plan of an embedding has no stage, and none is read then."""
        some: Any = next(iter(self.stages.values()), None)
        return Planned(
            self.experiment, self.teacher, self.setting, some, self.known.workspace, self.request.device
        )


def _remarks(options: SweepOptions | None) -> list[str]:
    """What is expected of the sweep's scheduler."""
    if options is None:
        return []
    stops, full = stops_of(options)
    if stops is not None and options.trials > full:
        return [
            f"{options.scheduler} stops weak trials: beyond the first {full} one in "
            f"{1 / stops.continues:g} is expected to go on at each rung"
        ]
    if stops is None and options.scheduler != "none" and options.trials > options.full:
        return [f"{options.scheduler} may stop trials early, which is not estimated: it is less"]
    return []


def _embedded_here(store: Store, workspace: Workspace) -> float:
    """Tokens per second of one process of the same teacher, in the newest store that it made; 0 if none."""
    paths = sorted(
        workspace.root.glob(f"{Store.kind}/*/{MANIFEST}"), key=lambda path: path.stat().st_mtime_ns
    )
    teacher = canonical(store.teacher)
    for path in reversed(paths):
        try:
            manifest = read_manifest(path.parent)
            if manifest["plan"]["with"]["teacher"] == teacher and manifest["seconds"] > 1:
                return float(manifest["tokens"]) / float(manifest["seconds"])
        except (BadInput, OSError, KeyError, TypeError):
            continue  # an estimate needs none that is damaged
    return 0.0


def cpus_here() -> float:
    """CPUs that this process may use."""
    return float(cores())


def gpus_here(device: str) -> float:
    """GPUs of this machine, if the device is one."""
    return float(torch.cuda.device_count()) if device.startswith("cuda") else 0.0
