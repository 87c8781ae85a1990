"""The baseline of a sweep: a student of equal work, trained with several learning rates.

It is the MSE student, or the baseline that a method defines: for retrieval KD the student without a teacher.
"""

import dataclasses
import math
from functools import partial
from typing import Any

from stillhouse.cluster.resources import Need
from stillhouse.cluster.slots import Slots
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import doing, say
from stillhouse.core.roles import ASYMMETRIC
from stillhouse.corpora.tables import open_rows
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import load_method
from stillhouse.search.trial import Context, attempted, follow, reason_of
from stillhouse.tracking import MSE_BASELINE
from stillhouse.training.follower import PlanFollower
from stillhouse.values.data import Examples, Mined
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
BATCH_SIZE = 128
"""A quarter of the preset's: a sweep's budgets are short, and the larger batch would leave it few steps."""


class Baseline:
    """Three students, one per learning rate, trained as tasks of the cluster."""

    def __init__(
        self, context: Context, need: Need, plan: Stage, point: dict[str, Any], follower: PlanFollower
    ) -> None:
        """Train what is not finished: during the trials, or before them if runs have several workers.

        Such runs reserve their resources themselves; a trial at the same time would wait for resources that
        it was assumed to have.

        Args:
            context: What all trials share.
            need: Resources of one trial.
            plan: Plan of any trial, whose amount of work is matched.
            point: Hyper-parameters of any trial, which a baseline defined by the method keeps.
            follower: Prints how far the students are.
        """
        import ray

        # A task that waits for the search pool would lend its CPU to another task, so it searches itself.
        alone = dataclasses.replace(context, where=dataclasses.replace(context.where, search=None))
        self.context, self.choices = baseline_choices(alone, plan, point)
        train = ray.remote(_train).options(**need.options)
        missing = [values for values in self.choices if not self._finished(values)]
        for values in missing:
            title = f"baseline, rate {values['learning_rate']:g}"
            follower.follow(title, self.context.plan(values), beside=True)
        at_once = Slots(need, len(missing))() if need.nested and missing else len(missing)
        shares = [missing[start::at_once] for start in range(at_once)]
        self._running = [train.remote(share, self.context) for share in shares]
        if need.nested and missing:
            say(f"  baseline: {len(missing)} students, before the trials")
            self.wait()

    def wait(self) -> None:
        """Wait until all students are trained, and say which failed."""
        with doing("waiting for the students of the baseline"):
            failures = [line for task in self._running for line in reason_of(task).splitlines()]
        for failure in failures:
            say(f"  baseline, {failure}")
        self._running = []

    def best(self) -> tuple[Stage, dict[str, Any]] | None:
        """The stage with the best dev metric and its hyper-parameters; None if all students failed."""
        workspace = self.context.workspace

        def quality(values: dict[str, Any]) -> float:
            metrics = read_manifest(workspace.path(self.context.plan(values)))["metrics"]
            value = float(metrics.get(self.context.quality, -math.inf))
            return -math.inf if math.isnan(value) else value

        finished = [values for values in self.choices if self._finished(values)]
        if not finished:
            return None
        chosen = max(finished, key=quality)
        return self.context.plan(chosen), chosen

    def _finished(self, values: dict[str, Any]) -> bool:
        return self.context.workspace.finished(self.context.plan(values))


def baseline_choices(
    context: Context, plan: Stage, point: dict[str, Any]
) -> tuple[Context, list[dict[str, Any]]]:
    """The context of the baseline's students, and the hyper-parameters of each.

    Args:
        context: What all trials share.
        plan: See `Baseline`.
        point: See `Baseline`.
    """
    context = dataclasses.replace(context, points=())
    own: dict[str, Any] | None = getattr(load_method(context.method), "BASELINE", None)
    if own is not None:
        return context, [{**point, **own, "learning_rate": rate} for rate in rates_of(context.method)]
    setting = equal_work(context, plan)
    # Only a student of the teacher's dimension has the figure of asymmetric search.
    asymmetric = ASYMMETRIC in context.quality.split("_")
    kept = {"keep_projection": True} if asymmetric and plan.student.kwargs.get("projection") else {}
    choices = [
        {"learning_rate": rate, "batch_size": batch_size_of(setting)} | kept for rate in LEARNING_RATES
    ]
    return dataclasses.replace(context, method="mse", preset="paper", setting=setting), choices


def baseline_name(method: str) -> str:
    """Return the name of the baseline in tables of a method's sweep."""
    return str(getattr(load_method(method), "BASELINE_NAME", MSE_BASELINE))


def rates_of(method: str) -> tuple[float, ...]:
    """Learning rates that the baseline of a sweep of a method is trained with."""
    rates: tuple[float, ...] = getattr(load_method(method), "BASELINE_RATES", LEARNING_RATES)
    return rates


def batch_size_of(setting: Setting) -> int:
    """The batch of the MSE baseline: no larger than its rows or its budget."""
    return min(BATCH_SIZE, setting[Sentences].rows, setting.distil_budget)


def equal_work(context: Context, plan: Stage) -> Setting:
    """Make the setting of a one-stage method that encodes as many texts as all stages of a plan together.

    An example of several texts counts as often: one of fine-tuning has a query, a passage and K negatives.
    """
    workspace = context.workspace
    texts = sum(part.budget * texts_of(part.examples, workspace) for part in plan.chain())
    setting = context.setting.having(Pairs, None)
    return dataclasses.replace(setting, distil_budget=texts, epochs=None, finetune_budget=0)


def texts_of(examples: Examples, workspace: Workspace) -> int:
    """Number of texts per example."""
    if "negatives" not in examples.columns:
        return len(examples.columns)
    if isinstance(examples.origin, Mined):
        return len(examples.columns) - 1 + examples.origin.negatives
    return sum(1 if ids.ndim == 1 else ids.shape[1] for ids in open_rows(workspace, examples).values())


def _train(choices: list[dict[str, Any]], context: Context) -> str:
    """Train students one after another; return a line for each that failed."""
    failures: list[str] = []
    for values in choices:
        reports: list[dict[str, Any]] = []
        reason = attempted(partial(follow, values, context, reports.append), values)
        if reason := reason or (reports[-1].get("reason", "") if reports else ""):
            failures.append(f"rate {values['learning_rate']:g} failed: {reason}")
    return "\n".join(failures)
