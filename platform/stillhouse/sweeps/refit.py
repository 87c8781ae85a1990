"""The refit: after the search, the best trials are trained again, for longer and on all of the rows.

A search compares hyper-parameters with short trials. The student that is delivered has those of one of the
best trials and a budget of its own, `experiments.budget.Refit`. Of the refits and the best trial the one with
the best dev figure is delivered.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stillhouse.cluster.resources import Need, largest_share
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import say
from stillhouse.search.observer import Observer
from stillhouse.search.records import TrialRecord, best_records
from stillhouse.search.shared_stages import build_stage
from stillhouse.search.trial import Context
from stillhouse.sweeps.contenders import Champion
from stillhouse.tracking import readable
from stillhouse.training.follower import PlanFollower
from stillhouse.values.stage import Stage


def refit(
    context: Context, need: Need, records: Sequence[TrialRecord], top: int, observer: Observer
) -> list[Champion]:
    """Train the best trials again, all at once as tasks of the cluster; what is finished is not trained.

    Args:
        context: What the trials share, with the setting of the refit.
        need: Resources of one trial. A single process takes its share of a node instead, since no trial runs.
        records: All trials.
        top: Number of trials.
        observer: Reports the runs.

    Returns:
        The students, best first on dev; one that diverged is left out.
    """
    chosen = best_records(records)[:top]
    if not chosen:
        return []
    need = largest_share(need, len(chosen))
    # A task that waits for the search pool would lend its CPU to another task, so it searches itself.
    threads = context.where.threads if need.nested else max(1, int(need.cpus))
    context = dataclasses.replace(
        context, where=dataclasses.replace(context.where, search=None, threads=threads)
    )
    workspace = context.workspace
    plans = [(record, context.plan(dict(record.hyper_parameters))) for record in chosen]
    missing = [(record, stage) for record, stage in plans if not workspace.finished(stage)]
    numbers = ", ".join(str(record.number) for record, _ in plans)
    examples, several = plans[0][1].examples_in_all, "s" if len(plans) > 1 else ""
    say(f"\nrefit of trial{several} {numbers}: {examples:,} examples each")
    for record, stage in plans:
        observer.refit_started(record, stage)
    reasons = _train(missing, context, need, workspace)
    for record, stage in plans:
        reason = reasons.get(record.number, "")
        figures = {} if reason else dict(read_manifest(workspace.path(stage))["metrics"])
        observer.refit_ended(record, stage, figures, reason)
        now = f"diverged, {reason}" if reason else _figure(context.quality, figures)
        before = _figure(context.quality, record.metrics)
        say(f"  refit of trial {record.number}: {now}; the trial has {before}")
    students = [
        Champion(record, stage, workspace.path(stage), refitted=True)
        for record, stage in plans
        if record.number not in reasons
    ]
    return sorted(students, key=lambda student: _quality(student, context.quality), reverse=True)


def chosen_student(trial: Champion, refits: Sequence[Champion], quality: str) -> Champion:
    """Choose what is delivered, by dev: the best refit, unless the trial's own student is better."""
    best = max((trial, *refits), key=lambda student: _quality(student, quality))
    if refits and not best.refitted:
        say(f"No refit is better than trial {trial.record.number} on dev, whose student is delivered.")
    return best


def refit_remark(champion: Champion, quality: str) -> list[str]:
    """Say beside the final comparison that the best student is a refit, and how long it was trained."""
    if not champion.refitted:
        return []
    record, dev, examples = champion.record, champion.dev, champion.stage.examples_in_all
    return [
        f"The best student is the refit of trial {record.number}: {examples:,} examples instead of "
        f"{record.examples:,}, {_figure(quality, dev)} on dev instead of "
        f"{record.metrics.get(quality, math.nan):.4f}. The baseline has the work of a trial."
    ]


def _train(
    plans: Sequence[tuple[TrialRecord, Stage]], context: Context, need: Need, workspace: Workspace
) -> dict[int, str]:
    """Train plans at once; return why each of those that diverged did, by trial."""
    import ray

    train = ray.remote(build_stage).options(**need.options)
    running = {train.remote(stage, context): record.number for record, stage in plans}
    reasons: dict[int, str] = {}
    with PlanFollower(workspace) as follower:
        for record, stage in plans:
            follower.follow(_title(record.number), stage)
        while running:
            (task,), _ = ray.wait(list(running), num_returns=1)
            number = running.pop(task)
            follower.leave(_title(number))
            if reason := ray.get(task):
                reasons[number] = reason
    return reasons


def _title(number: int) -> str:
    return f"refit of trial {number}"


def _quality(student: Champion, quality: str) -> float:
    value = float(student.dev.get(quality, math.nan))
    return value if math.isfinite(value) else -math.inf


def _figure(quality: str, figures: Any) -> str:
    return f"{readable(quality)} {figures.get(quality, math.nan):.4f}"
