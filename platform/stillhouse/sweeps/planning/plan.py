"""Planning a command: its data is counted, this machine is measured, and nothing is embedded or trained."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import doing, say
from stillhouse.core.errors import require
from stillhouse.core.machine import available_memory
from stillhouse.corpora.tables import ROWS_PER_SHARD
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.unread import Unread
from stillhouse.methods import load_method, unread
from stillhouse.preflight.planned import Planned
from stillhouse.preflight.space import (
    KEPT,
    held_rows,
    teacher_bytes,
    token_bytes,
    training_bytes,
    vector_bytes,
)
from stillhouse.search.options import SweepOptions
from stillhouse.search.scheduler import NEARLY_DONE
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.shared_stages import first_point, shared_stages
from stillhouse.search.trial import Context
from stillhouse.sweeps.baseline import baseline_choices
from stillhouse.sweeps.planning.arithmetic import Estimate, Work, estimated, expected_share
from stillhouse.sweeps.planning.bench import Sample, calibrated
from stillhouse.sweeps.planning.counting import (
    Counted,
    counted,
    speed_tokens,
    stage_work,
    suite_tokens,
    tables_to_embed,
    text_bytes,
    token_tables,
    with_rows,
)
from stillhouse.sweeps.planning.nodes import Nodes, chosen_nodes, price_of
from stillhouse.sweeps.planning.rates import HERE, SPEEDS, Rates
from stillhouse.sweeps.runs import Training
from stillhouse.training.token_job import WORTH_A_JOB
from stillhouse.training.where import Where
from stillhouse.values.data import Model, Teacher, TextTable, members_of
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

_TOKENISING = 400_000.0
"""Tokens per second that one process makes: 20,000 texts of 20 tokens."""


@dataclass(frozen=True)
class Request:
    """What a plan is made for, beside the experiment.

    Attributes:
        nodes: Numbers and kinds of nodes; empty for this machine.
        rates: Rates of kinds of nodes that are known without measuring.
        prices: Price of an hour of each kind; empty where none is given.
        price: Price of an hour of any node; None where none is given.
        local: Whether the command runs in one process, without Ray.
        need: Resources of one trial.
        actors: Teacher processes; 0 for as many as fit.
        at_once: Most trials at once; 0 for as many as fit.
        device: Device of teacher and students.
        logs: Folder for what the libraries print.
    """

    nodes: tuple[tuple[int, str], ...] = ()
    rates: Mapping[str, Rates] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    price: float | None = None
    local: bool = False
    need: Need = field(default_factory=Need)
    actors: int = 0
    at_once: int = 0
    device: str = "cpu"
    logs: Path = Path("logs")


@dataclass(frozen=True)
class TextCount:
    """Texts that a command reads.

    Attributes:
        label: Name of the table.
        what: Whose tokens were counted: the teacher's or the student's.
        rows: Number of texts.
        tokens: Number of tokens.
    """

    label: str
    what: str
    rows: int
    tokens: int


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
class Plan:
    """What a command will take.

    Attributes:
        command: ``sweep``, ``train`` or ``embed``.
        share: Share of the text to distil on that was read to count it.
        texts: Rows and tokens of the tables.
        made: The artifacts.
        memory_gb: Gigabytes of each kind of process.
        trials: Number of trials.
        estimate: Seconds of each part, trials and teachers at once, cost.
        rates: Rates of the kinds of nodes.
        nodes: The nodes, in words.
        remarks: What the estimate rests on.
    """

    command: str
    share: float
    texts: tuple[TextCount, ...]
    made: tuple[Made, ...]
    memory_gb: Mapping[str, float]
    trials: int
    estimate: Estimate
    rates: Mapping[str, Rates]
    nodes: str
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The content of ``--json``, and of the note; `read_rates` reads its ``rates``."""
        return {
            "command": self.command,
            "nodes": self.nodes,
            "share_read": self.share,
            "texts": [dataclasses.asdict(each) for each in self.texts],
            "artifacts": [dataclasses.asdict(each) for each in self.made],
            "memory_gb": dict(self.memory_gb),
            "trials": self.trials,
            "at_once": self.estimate.at_once,
            "teachers": self.estimate.teachers,
            "seconds": dict(self.estimate.seconds),
            "cost": self.estimate.cost,
            "rates": {name: rates.as_json() for name, rates in self.rates.items()},
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True)
class _Stages:
    """The stages of a command, by what they are for."""

    shared: tuple[Stage, ...] = ()
    trial: tuple[Stage, ...] = ()
    baseline: tuple[Stage, ...] = ()
    baselines: int = 0
    refit: tuple[Stage, ...] = ()
    refits: int = 0
    trials: int = 0

    @property
    def by_label(self) -> dict[str, Stage]:
        """One stage of every label, those of trials first."""
        found: dict[str, Stage] = {}
        for stage in (*self.shared, *self.trial, *self.baseline, *self.refit):
            found.setdefault(stage.label, stage)
        return found

    def students(self) -> dict[str, int]:
        """How many stages of every label are kept."""
        found: dict[str, int] = {}
        for stages, times in (
            (self.shared, 1),
            (self.trial, self.trials),
            (self.baseline, self.baselines),
            (self.refit, self.refits),
        ):
            for stage in stages:
                found[stage.label] = found.get(stage.label, 0) + times
        return found


def plan_sweep(options: SweepOptions, workspace: Workspace, request: Request) -> Plan:
    """Plan a sweep.

    Args:
        options: The sweep, whose device is settled.
        workspace: Where it would run; small corpora are read into it.
        request: Where, and for which price.

    Raises:
        BadInput: The data cannot be read or counted, or the rates of a node are not known.
    """
    teacher = options.teacher or options.experiment.teacher.resolve()
    with counted(options.experiment, workspace, teacher, request.device, refresh=options.refresh) as known:
        context = _context(options, with_rows(known.prepared.setting, known), known)
        stages = _of_sweep(options, context, known)
        share, full = _stopped(options, stages)
        remarks = []
        if options.trials > full and share < 1:
            remarks.append(
                f"{options.scheduler} stops weak trials: beyond the first {full} a trial is expected to run "
                f"{share:.0%} of its budget"
            )
        elif options.trials > options.full and options.scheduler != "none":
            remarks.append(f"{options.scheduler} may stop trials early, which is not estimated: it is less")
        planner = _Planner("sweep", options.experiment, teacher, workspace, known, request, stages)
        return planner.plan(share=share, full=full, remarks=remarks)


def plan_training(training: Training, workspace: Workspace, request: Request, *, refresh: bool) -> Plan:
    """Plan the training of one student; see `plan_sweep`."""
    method, hp = training.method, training.hp
    experiment, teacher = training.experiment, training.teacher
    skipped = unread(method, hp, experiment, experiment.sketch(teacher))
    with counted(experiment, workspace, teacher, request.device, refresh=refresh, unread=skipped) as known:
        stage = method.plan(hp, with_rows(known.prepared.setting, known))
        left = tuple(part for part in stage.chain() if not workspace.finished(part))
        planner = _Planner(
            "train", experiment, teacher, workspace, known, request, _Stages(trial=left, trials=1)
        )
        return planner.plan()


def plan_embedding(experiment: Experiment, workspace: Workspace, request: Request, *, refresh: bool) -> Plan:
    """Plan the embedding of an experiment's text; see `plan_sweep`."""
    teacher = experiment.teacher.resolve()
    with counted(experiment, workspace, teacher, request.device, refresh=refresh, unread=Unread()) as known:
        return _Planner("embed", experiment, teacher, workspace, known, request, _Stages()).plan()


def _context(options: SweepOptions, setting: Setting, known: Counted) -> Context:
    return Context(
        method=options.method,
        preset=options.preset,
        setting=setting,
        root=str(known.workspace.root),
        where=Where(device=options.device),
        quality=setting.dev.select,
    )


def _of_sweep(options: SweepOptions, context: Context, known: Counted) -> _Stages:
    """The stages that a sweep trains, by what they are for."""
    point = first_point(options.space)
    plan = context.plan(point)
    shared = shared_stages(context, options.space)
    kept = {stage.fingerprint for stage in shared}
    by_baseline, choices = baseline_choices(context, plan, point)
    refit: tuple[Stage, ...] = ()
    refits = 0
    if known.prepared.refit is not None:
        longer = dataclasses.replace(context, setting=with_rows(known.prepared.refit, known))
        refit, refits = tuple(longer.plan(point).chain()), options.experiment.budget.refit.top
    return _Stages(
        shared=tuple(shared),
        trial=tuple(part for part in plan.chain() if part.fingerprint not in kept),
        baseline=tuple(by_baseline.plan(choices[0]).chain()),
        baselines=len(choices),
        refit=refit,
        refits=min(refits, options.trials),
        trials=options.trials,
    )


def _stopped(options: SweepOptions, stages: _Stages) -> tuple[float, int]:
    """Expected share of a trial that may be stopped, and the number of trials that are not."""
    scheduler: Any = load_scheduler(options.scheduler)
    if len(options.objectives) > 1 or not hasattr(scheduler, "RUNGS"):
        return 1.0, options.trials
    everything = (*stages.shared, *stages.trial)
    total, before, points = sum(stage.examples_seen for stage in everything), 0, []
    judged = False
    labels = [stage.label for stage in everything]
    first = load_method(options.method).PRUNABLE_FROM
    for stage in everything:
        judged = judged or stage.label == first or first not in labels
        count = stage_work(stage).evaluations if judged else 0
        every = stage.evaluate_every or stage.examples_seen
        points += [(before + min(stage.examples_seen, every * (at + 1))) / total for at in range(count)]
        before += stage.examples_seen
    share = expected_share(points, scheduler.RUNGS, continue_p=scheduler.CONTINUES, last=NEARLY_DONE)
    return share, min(options.full, options.trials)


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
        stages: _Stages,
    ) -> None:
        self.command, self.experiment, self.teacher = command, experiment, teacher
        self.workspace, self.known, self.request, self.stages = workspace, known, request, stages
        self.setting = known.prepared.setting

    def plan(self, *, share: float = 1.0, full: int = 0, remarks: Sequence[str] = ()) -> Plan:
        """Count, measure, and estimate."""
        known, request, stages = self.known, self.request, self.stages
        with doing("counting tokens"):
            embedded = tables_to_embed(known, self.workspace)
            by_label = stages.by_label
            tokens = token_tables(known, list(by_label.values()))
            work = self._work([table for _, table in embedded], tokens, share, full)
        nodes = self._nodes()
        self._require_speeds(work, nodes)
        estimate = estimated(
            work,
            nodes,
            request.need.on(request.device),
            request.device,
            limit=1 if request.local else request.at_once,
            teachers=1 if request.local else request.actors,
        )
        estimate = dataclasses.replace(estimate, cost=self._cost(estimate, nodes))
        texts = [TextCount(table.label, "teacher", table.rows, table.tokens) for _, table in embedded]
        texts += [TextCount(table.label, "student", rows, count) for table, rows, count in tokens]
        rates = {each.kind: each.rates for each in nodes}
        memory = self._memory(nodes[0].rates)
        return Plan(
            command=self.command,
            share=known.share,
            texts=tuple(texts),
            made=tuple(self._made(embedded, tokens, nodes[0].rates, estimate.at_once)),
            memory_gb=memory,
            trials=stages.trials if self.command == "sweep" else 0,
            estimate=estimate,
            rates=rates,
            nodes=" + ".join(f"{each.count} x {each.kind}" for each in nodes),
            remarks=(*remarks, *self._too_much(memory, estimate, nodes)),
        )

    def _require_speeds(self, work: Work, nodes: Sequence[Nodes]) -> None:
        """Refuse rates of other nodes that lack what this work takes."""
        runs = any(isinstance(member, Model) for member in members_of(self.teacher))
        taken = (bool(work.tables) and runs, bool(work.dev_tokens), work.tested > 0, work.tested > 0)
        for each in nodes:
            lacking = [
                name
                for name, used in zip(SPEEDS, taken, strict=True)
                if used and not getattr(each.rates, name)
            ]
            require(
                each.kind == HERE or not lacking,
                f"the rates of {each.kind} must be those of a plan like this one",
                lacking=lacking,
                remedy="Run the plan of this command on such a node, with --json.",
            )

    def _too_much(self, memory: Mapping[str, float], estimate: Estimate, nodes: Sequence[Nodes]) -> list[str]:
        """Say that the processes of this machine do not fit into its memory."""
        if [each.kind for each in nodes] != [HERE] or self.request.device != "cpu":
            return []
        free, said = available_memory() / 1e9, []
        for name, count in (("teacher actor", estimate.teachers), ("trial", estimate.at_once)):
            needed = count // nodes[0].count * memory.get(name, 0.0)
            if needed > free:
                said.append(
                    f"memory: {count // nodes[0].count} processes at once ({name}) need {needed:.0f} GB, but "
                    f"{free:.0f} GB are free here: lower --concurrency, --actors or the batch"
                )
        return said

    def _work(self, tables: Sequence[Any], tokens: Sequence[Any], share: float, full: int) -> Work:
        stages, sweeps = self.stages, self.command == "sweep"
        last = next(reversed(stages.by_label.values()), None)
        dev = test = 0
        if last is not None:
            dev = suite_tokens(self.known, self.setting.dev, last)
            test = suite_tokens(self.known, self.known.prepared.test, last) + speed_tokens(last)
        read = self.known.seconds * max(0.0, self.known.factor - 1)
        missing = [(rows, count) for table, rows, count in tokens if not self.workspace.finished(table)]
        large = sum(count for rows, count in missing if rows > WORTH_A_JOB * ROWS_PER_SHARD)
        return Work(
            tables=tuple(tables),
            reading_s=read if self.known.workspace is not self.workspace else 0.0,
            tokenising_s=(sum(count for _, count in missing) - large) / _TOKENISING,
            large_tokenising_s=large / _TOKENISING,
            shared=tuple(map(stage_work, self._unfinished(stages.shared))),
            trial=tuple(map(stage_work, stages.trial)),
            trials=stages.trials,
            share=share,
            full=full if sweeps else stages.trials,
            baselines=stages.baselines,
            baseline=tuple(map(stage_work, stages.baseline)),
            refit=tuple(map(stage_work, stages.refit)),
            refits=stages.refits,
            dev_tokens=dev,
            test_tokens=test,
            # The best student, the baseline, the untrained student, and the trial before its refit.
            tested=(3 + (stages.refits > 0)) if sweeps else 0,
            ray=not self.request.local,
        )

    def _unfinished(self, stages: Sequence[Stage]) -> list[Stage]:
        return [stage for stage in stages if not self.workspace.finished(stage)]

    def _nodes(self) -> list[Nodes]:
        """The nodes with their rates; this machine is measured if it is among them."""
        request = self.request
        written = request.nodes or ((1, HERE),)
        known = dict(request.rates)
        if any(kind == HERE for _, kind in written) and HERE not in known:
            known[HERE] = self._measured()
        nodes = chosen_nodes(written, known)
        for each in nodes:
            require(
                each.rates.teacher in ("", self.teacher.name),
                "the rates of a node must be those of this teacher",
                node=each.kind,
                measured=each.rates.teacher,
                teacher=self.teacher.name,
                remedy="Measure them with the arguments of this plan.",
            )
        return nodes

    def _measured(self) -> Rates:
        request = self.request
        cpus, gpus = cpus_here(), gpus_here(request.device)
        store = next((each for each in self.known.stores if isinstance(each.teacher, Model)), None)
        shape = Rates(cpus, gpus, 0, 0, 1, 1, 1, 1, {}, 1, "", "")
        here = Nodes(1, HERE, shape)
        slots = min(here.slots(request.need.on(request.device)), max(1, self.stages.trials))
        trainers = 1 if request.local else max(1, slots) * request.need.workers
        teachers = 1 if request.local else min(request.actors or here.teachers(request.device), _MOST)
        # What does not fit into memory at once is measured by fewer processes.
        teachers = min(teachers, int(available_memory() // (teacher_bytes(self._planned()) + _PROCESS)))
        threads = int(cpus) if request.local else max(1, int(request.need.cpus))
        stages = tuple(self.stages.by_label.values())
        sample = Sample(
            self.known.workspace,
            store,
            stages,
            self.setting.teacher_dim,
            request.device,
            embedding_threads=int(cpus) if request.local else 1,
            threads=threads,
            cpus=int(cpus),
            tests=self.command == "sweep",
        )
        say("  measuring this machine with the teacher, the student and the text: about a minute")
        with doing("measuring this machine"):
            return calibrated(
                sample,
                teachers=max(1, teachers),
                trainers=min(trainers, _MOST) if stages else 0,
                cpus=cpus,
                gpus=gpus,
                teacher=self.teacher.name,
                logs=request.logs,
            )

    def _cost(self, estimate: Estimate, nodes: Sequence[Nodes]) -> float | None:
        request = self.request
        if request.price is None and not request.prices:
            return None
        prices = request.prices or {each.kind: request.price or 0.0 for each in nodes}
        return estimate.total / 3600 * price_of(nodes, prices)

    def _made(self, embedded: Sequence[Any], tokens: Sequence[Any], rates: Rates, at_once: int) -> list[Made]:
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
        largest = 0.0
        for label, count in self.stages.students().items():
            gigabytes = rates.training[label].megabytes / 1e3 if label in rates.training else math.nan
            made.append(Made(f"students of the stage {label}", count, count * gigabytes))
            largest = max(largest, gigabytes)
        if largest:
            made.append(Made("checkpoints while it runs", at_once, at_once * 3 * KEPT * largest, stays=False))
        return [each for each in made if each.count]

    def _memory(self, rates: Rates) -> dict[str, float]:
        """Gigabytes of each kind of process."""
        stages = tuple(self.stages.by_label.values())
        base, teacher = rates.process_mb / 1e3, teacher_bytes(self._planned()) / 1e9
        found = {"teacher actor": base + teacher}
        if stages:
            per_text = self._tokens_per_text()
            steps = max(training_bytes(stage, per_text) for stage in stages) / 1e9
            found["trial" if self.command == "sweep" else "training"] = base + steps
        if self.command == "sweep":
            found["driver"] = base + teacher
        return found

    def _planned(self) -> Planned:
        """What the estimates of memory read; a plan of an embedding has no stage, and none is read then."""
        some: Any = next(iter(self.stages.by_label.values()), None)
        return Planned(
            self.experiment, self.teacher, self.setting, some, self.known.workspace, self.request.device
        )

    def _tokens_per_text(self) -> float:
        counts = token_tables(self.known, list(self.stages.by_label.values()))
        return max((tokens / max(1, rows) for _, rows, tokens in counts), default=32.0)


_MOST = 16
"""Most processes that measure at once."""
_PROCESS = 1_000_000_000
"""Bytes of a process that has loaded the libraries, at most."""


def cpus_here() -> float:
    """CPUs that this process may use."""
    return float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def gpus_here(device: str) -> float:
    """GPUs of this machine, if the device is one."""
    return float(torch.cuda.device_count()) if device.startswith("cuda") else 0.0
