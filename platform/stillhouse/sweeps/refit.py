"""The refit: after the search, the best trials are trained again, for longer and on all of the rows.

A search compares hyper-parameters with short trials. The student that is delivered has those of one of the
best trials and a budget of its own, `experiments.budget.Refit`. Of the refits and the best trial the one with
the best dev figure is delivered. The best trials of the baseline are trained again beside them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from stillhouse.values.stage import Stage


@dataclass(frozen=True)
class Refitting:
    """A trial that is trained again; its context is what the refits of its search share."""

    trial: TrialRecord
    context: Context
    observer: Observer

    @cached_property
    def stage(self) -> Stage:
        """The last stage of its plan."""
        return self.context.plan(dict(self.trial.hyper_parameters))

    @property
    def title(self) -> str:
        """Its name in lines."""
        return self.observer.title_of_refit(self.trial.number)

    def ended(self, reason: str) -> Candidate | None:
        """Report how it ended; return its student, or None if it failed for a reason."""
        workspace, quality = self.context.workspace, self.context.quality
        record = refit_record(self.trial, self.stage, quality, workspace, reason)
        self.observer.refit_ended(record, self.stage)
        now = f" failed: {reason}" if reason else f": {_figure(quality, record.metrics)}"
        tell(f"{self.title}{now}; the trial has {_figure(quality, self.trial.metrics)}")
        return None if reason else Candidate(record, self.stage, workspace.path(self.stage))


def refits_of(
    context: Context, records: Sequence[TrialRecord], top: int, observer: Observer
) -> list[Refitting]:
    """The best trials of a search, to be trained again with the setting of the context."""
    return [Refitting(record, context, observer) for record in best_records(records)[:top]]


def refit(refits: Sequence[Refitting], need: Need) -> list[Candidate | None]:
    """Train trials again, all at once as tasks of the cluster; what is finished is not trained.

    ``need`` are the resources of a trial. A single process takes its share of a node instead, since no trial
    runs. A refit that failed has None instead of a student.
    """
    if not refits:
        return []
    lengths = " and ".join(f"{length:,}" for length in dict.fromkeys(r.stage.examples_in_all for r in refits))
    say(f"\n{'; '.join(each.title for each in refits)}: {lengths} examples each")
    for each in refits:
        each.observer.refit_started(each.trial, each.stage)
    reasons = _train(
        [r for r in refits if not r.context.workspace.finished(r.stage)], largest_share(need, len(refits))
    )
    return [each.ended(reasons.get(each.title, "")) for each in refits]


def chosen_student(trial: Candidate, refits: Sequence[Candidate], quality: str, title: str = "") -> Candidate:
    """Choose what is delivered, by dev: the best refit, unless the best trial's own student is better.

    ``title`` names the baseline that it is a student of, and is empty for the method.
    """
    best = max((trial, *refits), key=lambda student: _quality(student, quality))
    if refits and not best.record.refit:
        who = f"{title}, trial {trial.record.number}" if title else f"trial {trial.record.number}"
        say(f"No refit is better than {who} on dev, whose student is {'tested' if title else 'delivered'}.")
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


def refit_remark(best: TrialRecord, trial: TrialRecord, quality: str) -> list[str]:
    """Say beside the final comparison that the best student is a refit, and how long it was trained."""
    if not best.refit:
        return []
    return [
        f"The best student is the {best.title}: {best.examples:,} examples instead of {trial.examples:,}, "
        f"{_figure(quality, best.metrics)} on dev instead of {trial.metrics.get(quality, math.nan):.4f}."
    ]


def _train(refits: Sequence[Refitting], need: Need) -> dict[str, str]:
    """Train plans at once; return why each of those that failed did, by title."""
    import ray

    train, running = ray.remote(_retrained).options(**need.options), dict[Any, Refitting]()
    for each in refits:
        # A task that waits for the search pool would lend its CPU to another task, so it searches itself.
        threads = each.context.where.threads if need.nested else max(1, int(need.cpus))
        where = dataclasses.replace(each.context.where, search=None, threads=threads)
        context = dataclasses.replace(each.context, where=where)
        running[train.remote(each.stage, context, each.trial.hyper_parameters)] = each
        each.observer.follower.follow(each.title, each.stage)
    reasons: dict[str, str] = {}
    while running:
        (task,), _ = ray.wait(list(running), num_returns=1)
        each = running.pop(task)
        each.observer.follower.leave(each.title)
        if reason := reason_of(task):
            reasons[each.title] = reason
    return reasons


def _retrained(stage: Stage, context: Context, values: Mapping[str, Any]) -> str:
    return attempted(lambda: build_stage(stage, context), values)


def _quality(student: Candidate, quality: str) -> float:
    value = float(student.record.metrics.get(quality, math.nan))
    return value if math.isfinite(value) else -math.inf


def _figure(quality: str, figures: Any) -> str:
    return f"{readable(quality)} {figures.get(quality, math.nan):.4f}"
