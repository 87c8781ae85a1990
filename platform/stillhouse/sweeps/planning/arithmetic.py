"""From work and rates to seconds: what runs at once, what waits, how long each part of a command takes."""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stillhouse.cluster.resources import Need
from stillhouse.core.errors import require
from stillhouse.sweeps.planning.nodes import Nodes
from stillhouse.sweeps.planning.rates import Rates

START, READING, EMBEDDING, TRAINING, REFITS, DELIVERY = (
    "start",
    "reading",
    "embedding",
    "training",
    "refits",
    "test and export",
)
PARTS = (START, READING, EMBEDDING, TRAINING, REFITS, DELIVERY)
"""Parts of a sweep, in their order."""
CHECKPOINT_S = 60.0
"""Seconds after which a stage writes a checkpoint; see `training.where.Where`."""


@dataclass(frozen=True)
class TableWork:
    """Texts that the teacher embeds.

    Attributes:
        label: Name of the texts.
        rows: Number of texts.
        tokens: Their tokens, as the teacher reads them.
        shards: Number of shards, which are embedded one by one.
    """

    label: str
    rows: int
    tokens: int
    shards: int


@dataclass(frozen=True)
class StageWork:
    """A stage of a plan.

    Attributes:
        label: Its label.
        examples: Examples that it sees.
        evaluations: Number of its dev evaluations.
    """

    label: str
    examples: int
    evaluations: int


@dataclass(frozen=True)
class Work:
    """What a command does.

    Attributes:
        tables: What the teacher embeds; nothing of it is there.
        reading_s: Seconds that reading the text will take; 0 where it has been read.
        tokenising_s: Seconds in which one process writes the token tables that students read.
        large_tokenising_s: The same of the large ones, which the CPUs of all nodes make together.
        shared: Stages that all trials share, trained once before them.
        trial: The other stages of a trial.
        trials: Number of trials.
        share: Expected share of a trial that runs before it is stopped early.
        full: Number of trials that are never stopped early.
        baselines: Number of students of the baseline.
        baseline: Stages of each.
        refit: Stages of a refit.
        refits: Number of refits.
        dev_tokens: Tokens that a dev evaluation encodes.
        test_tokens: Tokens that the test of a model encodes, its speed included.
        tested: Number of students that are tested, beside the teacher.
        ray: Whether Ray is started.
    """

    tables: tuple[TableWork, ...] = ()
    reading_s: float = 0.0
    tokenising_s: float = 0.0
    large_tokenising_s: float = 0.0
    shared: tuple[StageWork, ...] = ()
    trial: tuple[StageWork, ...] = ()
    trials: int = 0
    share: float = 1.0
    full: int = 0
    baselines: int = 0
    baseline: tuple[StageWork, ...] = ()
    refit: tuple[StageWork, ...] = ()
    refits: int = 0
    dev_tokens: int = 0
    test_tokens: int = 0
    tested: int = 0
    ray: bool = True


@dataclass(frozen=True)
class Estimate:
    """How long a command takes.

    Attributes:
        seconds: Seconds of each part, by its name.
        at_once: Trials at once.
        teachers: Teacher processes at once.
    """

    seconds: Mapping[str, float]
    at_once: int = 1
    teachers: int = 1
    cost: float | None = field(default=None)

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())


def makespan(jobs: Sequence[Sequence[float]], slots: Sequence[int], *, ready: float = 0.0) -> float:
    """Seconds until all jobs are done, if each is begun, in order, by the slot that is free first.

    Args:
        jobs: For every job, its seconds on each kind of slot.
        slots: Number of slots of each kind.
        ready: Seconds until a slot takes its first job.
    """
    free = [(ready, kind, number) for kind, count in enumerate(slots) for number in range(count)]
    heapq.heapify(free)
    last = 0.0
    for seconds in jobs:
        began, kind, number = heapq.heappop(free)
        last = max(last, began + seconds[kind])
        heapq.heappush(free, (began + seconds[kind], kind, number))
    return last


def stage_seconds(stage: StageWork, rates: Rates, dev_tokens: int, *, processes: float = 1.0) -> float:
    """Seconds of a stage in one slot: its start, its steps, its checkpoints and its evaluations.

    Args:
        stage: The stage.
        rates: Rates of the node.
        dev_tokens: Tokens that an evaluation encodes.
        processes: Processes' worth of computing that it has.
    """
    require(
        stage.label in rates.training,
        "the rates of a node must cover every stage",
        stage=stage.label,
        stages=sorted(rates.training),
        source=rates.source,
        remedy="Measure them with the arguments of this plan.",
    )
    rate = rates.training[stage.label]
    stepping = stage.examples / (rate.examples_per_second * processes)
    checkpoints = stage.evaluations + 1 + stepping // CHECKPOINT_S
    evaluating = stage.evaluations * _at(rates.encoding * processes, dev_tokens)
    return rate.setup_s + stepping + checkpoints * rate.save_s + evaluating


def estimated(
    work: Work, nodes: Sequence[Nodes], need: Need, device: str, *, limit: int = 0, teachers: int = 0
) -> Estimate:
    """Estimate every part of a command on some nodes.

    Args:
        work: What it does.
        nodes: Where it runs.
        need: Resources of one trial.
        device: Device of teacher and students.
        limit: Most trials at once; 0 for as many as fit.
        teachers: Teacher processes; 0 for as many as fit.

    Raises:
        BadInput: No trial fits, or a rate is missing.
    """
    slots = [each.slots(need) for each in nodes]
    pools = [each.teachers(device) for each in nodes]
    pools = _begun(pools, teachers) if teachers else pools
    require(
        sum(slots) > 0,
        "a trial must fit on a node",
        needs=f"{need.workers} x {need.worker}",
        nodes=", ".join(f"{each.count}x{each.kind}" for each in nodes),
        remedy="Lower --workers or the resources of a worker, or describe larger nodes.",
    )
    first = nodes[0].rates
    at_once = min(sum(slots), limit or sum(slots), max(1, work.trials))
    seconds = {
        START: first.start_s * _RAY_STARTS if work.ray else 0.0,
        READING: work.reading_s,
        EMBEDDING: _embedding(work, nodes, pools),
        TRAINING: _training(work, nodes, slots, need, at_once),
        REFITS: _refits(work, nodes, slots, need),
        DELIVERY: _delivery(work, first),
    }
    return Estimate(seconds, at_once, sum(pools))


_RAY_STARTS = 1.5
"""How many times as long as a process of ours Ray takes to start; measured were 1.0 and 1.7 times."""
_DELIVERY_STARTS = 1.0
"""The same for loading what draws figures and registers models."""


def _embedding(work: Work, nodes: Sequence[Nodes], teachers: Sequence[int]) -> float:
    """Shards in the order of the tables, each by the next free teacher, once they have loaded it."""
    if not work.tables:
        return 0.0
    shards = [table.tokens / table.shards for table in work.tables for _ in range(table.shards)]
    jobs = [[_at(each.rates.embedding, tokens) for each in nodes] for tokens in shards]
    begun = _begun(teachers, len(shards))
    rates = nodes[0].rates
    # Under Ray another process per node tokenises, and it starts on the same cores.
    starts = rates.start_s * (1 + 1 / max(1.0, rates.cpus)) if work.ray else 0.0
    return makespan(jobs, begun, ready=starts + rates.load_s)


def _at(rate: float, amount: float) -> float:
    """Seconds at a rate; none for what is not run, whose rate is 0."""
    return amount / rate if rate else 0.0


def _begun(slots: Sequence[int], jobs: int) -> list[int]:
    """The slots that are used by a number of jobs, the first ones first."""
    used, left = [], jobs
    for count in slots:
        used.append(min(count, left))
        left -= used[-1]
    return used


def _training(work: Work, nodes: Sequence[Nodes], slots: Sequence[int], need: Need, at_once: int) -> float:
    """Shared stages one after another, then the baseline and the trials on all slots."""
    rates = [each.rates for each in nodes]

    def of(stages: Sequence[StageWork], share: float = 1.0) -> list[float]:
        return [
            share
            * sum(stage_seconds(stage, each, work.dev_tokens, processes=need.workers) for stage in stages)
            for each in rates
        ]

    if not (work.shared or work.trials or work.trial):
        return 0.0
    cpus = sum(each.count * max(1.0, each.rates.cpus) for each in nodes) if work.ray else 1.0
    tokenising = work.tokenising_s + work.large_tokenising_s / cpus
    before = tokenising + sum(of([stage])[0] for stage in work.shared)
    stopped = max(0, work.trials - work.full)
    jobs = [of(work.baseline)] * work.baselines + [of(work.trial)] * (work.trials - stopped)
    jobs += [of(work.trial, work.share)] * stopped
    limit = list(slots) if work.baselines else _begun(slots, at_once)
    # Slots beyond the ceiling serve the baseline alone, which is over before the trials are.
    ready = rates[0].start_s if work.ray else 0.0
    everything = makespan(jobs, limit, ready=ready)
    trials = makespan(jobs[work.baselines :], _begun(slots, at_once), ready=ready)
    return before + max(everything, trials)


def _refits(work: Work, nodes: Sequence[Nodes], slots: Sequence[int], need: Need) -> float:
    """All refits at once; on CPUs each has its share of a node's, see `cluster.resources.largest_share`."""
    if not work.refits:
        return 0.0
    rates, per_node = nodes[0].rates, math.ceil(work.refits / nodes[0].count)
    processes = 1.0
    if not (need.nested or need.gpus):
        processes = max(1.0, (rates.cpus // per_node) / need.cpus)
    one = sum(stage_seconds(stage, rates, work.dev_tokens, processes=processes) for stage in work.refit)
    waves = math.ceil(work.refits / max(1, min(sum(slots), work.refits)))
    return waves * one + (rates.start_s if work.ray else 0.0)


def _delivery(work: Work, rates: Rates) -> float:
    """The driver tests the models one after another; the teacher is measured on dev and on test."""
    if not work.tested:
        return 0.0
    students = work.tested * _at(rates.tested_student, work.test_tokens)
    teacher = _at(rates.tested_teacher, work.test_tokens + work.dev_tokens)
    loading = 2 * rates.load_s + work.tested * max(
        (rates.training[stage.label].setup_s for stage in work.trial if stage.label in rates.training),
        default=0.0,
    )
    saving = max((rate.save_s for rate in rates.training.values()), default=0.0)
    return students + teacher + loading + saving + _DELIVERY_STARTS * rates.start_s


def expected_share(
    points: Sequence[float], rungs: Sequence[float], *, continue_p: float, last: float
) -> float:
    """Expected share of its budget that a trial runs if it may be stopped at rungs.

    Args:
        points: Shares of the budget at which it reports, in order.
        rungs: Shares at which it is judged: at the first report at or after each.
        continue_p: Probability with which it continues past a rung.
        last: Share from which on it is not stopped.
    """
    alive, expected, before, left = 1.0, 0.0, 0.0, list(rungs)
    for point in points:
        expected += alive * (point - before)
        before = point
        if left and point >= left[0] and point < last:
            alive *= continue_p
            left = [rung for rung in left if rung > point]
    return expected + alive * (1.0 - before)
