"""The refit: after the search, the best trials are trained again, for longer and on all of the rows.

A search compares hyper-parameters with short trials. The student that is delivered has those of one of the
best trials and a budget of its own, `experiments.budget.Refit`. Of the refits and the best trial the one with
the best dev figure is delivered.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stillhouse.cluster.resources import Need, largest_share
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import say, tell
from stillhouse.search.observer import Observer
from stillhouse.search.records import TrialRecord, best_records
from stillhouse.search.shared_stages import build_stage
from stillhouse.search.trial import Context, attempted, reason_of
from stillhouse.sweeps.contenders import Candidate
from stillhouse.tracking import readable
from stillhouse.training.follower import PlanFollower
from stillhouse.values.stage import Stage


def refit(
    context: Context, need: Need, records: Sequence[TrialRecord], top: int, observer: Observer
) -> list[Candidate]:
    """Train the best trials again, all at once as tasks of the cluster; what is finished is not trained.

    Args:
        context: What the trials share, with the setting of the refit.
        need: Resources of one trial. A single process takes its share of a node instead, since no trial runs.
        records: All trials.
        top: Number of trials.
        observer: Reports the runs.

    Returns:
        The students, best first on dev; one that failed is left out.
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
    reasons = _train(missing, context, need, observer.follower)
    students = []
    for trial, stage in plans:
        reason = reasons.get(trial.number, "")
        record = refit_record(trial, stage, context.quality, workspace, reason)
        observer.refit_ended(record, stage)
        now = f"{record.title} failed: {reason}"
        if not reason:
            now = f"{record.title}: {_figure(context.quality, record.metrics)}"
        tell(f"{now}; the trial has {_figure(context.quality, trial.metrics)}")
        if not reason:
            students.append(Candidate(record, stage, workspace.path(stage)))
    return sorted(students, key=lambda student: _quality(student, context.quality), reverse=True)


def chosen_student(trial: Candidate, refits: Sequence[Candidate], quality: str) -> Candidate:
    """Choose what is delivered, by dev: the best refit, unless the trial's own student is better."""
    best = max((trial, *refits), key=lambda student: _quality(student, quality))
    if refits and not best.record.refit:
        say(f"No refit is better than trial {trial.record.number} on dev, whose student is delivered.")
    return best


def refit_record(
    trial: TrialRecord, stage: Stage, quality: str, workspace: Workspace, reason: str = ""
) -> TrialRecord:
    """Make the record of a refit from the manifests of its stages, as tables and curves read it."""
    if reason:
        return dataclasses.replace(trial, state="FAIL", refit=True, values=None, metrics={}, reason=reason)
    curve, seconds, before = {}, 0.0, 0
    for part in stage.chain():
        manifest = read_manifest(workspace.path(part))
        seconds += float(manifest["seconds"])
        for point in manifest["evaluations"]:
            if quality in (point["metrics"] or {}):
                curve[before + point["examples"]] = point["metrics"][quality]
        before += part.examples_seen
    metrics = manifest["metrics"]
    return dataclasses.replace(
        trial,
        values=(metrics.get(quality, math.nan),),
        curve=curve,
        seconds=seconds,
        examples=stage.examples_in_all,
        metrics=metrics,
        attributes={"weights_sha256": manifest["weights_sha256"]},
        refit=True,
    )


def refit_remark(best: TrialRecord, trial: TrialRecord | None, quality: str) -> list[str]:
    """Say beside the final comparison that the best student is a refit, and how long it was trained."""
    if trial is None:
        return []
    return [
        f"The best student is the {best.title}: {best.examples:,} examples instead of {trial.examples:,}, "
        f"{_figure(quality, best.metrics)} on dev instead of {trial.metrics.get(quality, math.nan):.4f}. "
        "The baseline was trained as long as one trial, not as long as the refit."
    ]


def _train(
    plans: Sequence[tuple[TrialRecord, Stage]], context: Context, need: Need, follower: PlanFollower
) -> dict[int, str]:
    """Train plans at once; return why each of those that failed did, by trial."""
    import ray

    train = ray.remote(_retrained).options(**need.options)
    running = {
        train.remote(stage, context, record.hyper_parameters): record.number for record, stage in plans
    }
    reasons: dict[int, str] = {}
    for record, stage in plans:
        follower.follow(_title(record.number), stage)
    while running:
        (task,), _ = ray.wait(list(running), num_returns=1)
        number = running.pop(task)
        follower.leave(_title(number))
        if reason := reason_of(task):
            reasons[number] = reason
    return reasons


def _retrained(stage: Stage, context: Context, values: Mapping[str, Any]) -> str:
    return attempted(lambda: build_stage(stage, context), values)


def _title(number: int) -> str:
    return f"refit of trial {number}"


def _quality(student: Candidate, quality: str) -> float:
    value = float(student.record.metrics.get(quality, math.nan))
    return value if math.isfinite(value) else -math.inf


def _figure(quality: str, figures: Any) -> str:
    return f"{readable(quality)} {figures.get(quality, math.nan):.4f}"
