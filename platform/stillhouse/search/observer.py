"""The driver's report of a running sweep: lines on the screen, and runs in the tracker."""

import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import tell, warn
from stillhouse.core.errors import Hindered
from stillhouse.core.identity import canonical
from stillhouse.core.job_clock import duration
from stillhouse.core.notes import STAGE_NOTE
from stillhouse.evaluation.paired import Paired
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context
from stillhouse.tracking import (
    BASELINE,
    BEST_SUFFIX,
    BEST_TRIAL,
    REFIT,
    REFITTED,
    TRIAL,
    Data,
    Key,
    MetricsTail,
    Row,
    View,
    provenance,
    readable,
)
from stillhouse.tracking.location import tracking_uri
from stillhouse.tracking.mlflow_tracker import MLflowTracker
from stillhouse.training.follower import PlanFollower
from stillhouse.training.metrics_log import NAME as METRICS_LOG
from stillhouse.training.published_run import abandon
from stillhouse.values.stage import Stage

_COLUMNS = 8
_COMPARED = ("difference", "low", "high", "p")
_ENDED = {"COMPLETE": "finished", "PRUNED": "stopped early", "FAIL": "failed", "RUNNING": "interrupted"}


class Observer(Callback):  # type: ignore[misc]
    """Follows the trials of one sweep; the only part that prints and the only writer of MLflow."""

    def __init__(
        self,
        name: str,
        context: Context,
        tracker: MLflowTracker,
        facts: dict[str, Any],
        plan: Stage | None = None,
    ) -> None:
        """Open the sweep's run.

        The facts are of the data, and are logged as parameters of the run. The plan is that of any trial; its
        texts are the data of the run.

        Attributes:
            search: What it follows, in words.
            running: Plans of the trials in training.
            over: Numbers of the trials that have ended.
            refits: Plans of the refits that have begun.
        """
        self.name, self.context, self.tracker = name, context, tracker
        self.workspace = context.workspace
        self.tail = MetricsTail(self._rows)
        self.key: Key = (name,)
        tracker.run(
            self.key,
            f"{context.method} sweep {name}",
            parameters={
                "method": context.method,
                "preset": context.preset,
                "seed": context.setting.seed,
                "selected_by": context.quality,
                **facts,
            },
            tags=provenance(),
            documents={"setting.json": canonical(context.setting)},
            datasets=self._data(list(plan.chain()) if plan else ()),
        )
        self._stages: dict[Key, tuple[Stage, bool]] = {}
        self._last: dict[Key, float] = {}
        self.follower = PlanFollower(self.workspace)
        self._all: list[Observer] = []
        self._begin("search", "", "")

    def _begin(self, search: str, title: str, prefix: str) -> None:
        self.search, self._title, self._prefix = search, title, prefix
        self._live: dict[int, dict[str, Any]] = {}
        self._dead: list[Stage] = []
        self._reused: dict[int, set[str]] = {}
        self._hindered, self._recall_said = "", False
        self.running: dict[int, Stage] = {}
        self.over: set[int] = set()
        self.refits: list[Stage] = []
        self._all.append(self)

    def of_baseline(self, title: str, context: Context) -> "Observer":
        """The observer of the baseline's search, whose runs are runs of this sweep."""
        other = Observer.__new__(Observer)
        other.__dict__.update(self.__dict__)
        other.context = context
        other._begin(f"search of the {title}", f"{title}, ", f"{BASELINE}-")
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks for a restore that never happens."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial begins, or resumes after a failure."""
        number, values = trial.config["trial"], trial.config["hyper_parameters"]
        key = self.trial_key(number)
        title = self.title_of(number)
        tell(textwrap.fill(f"{title}: {_short(values)}", 110, subsequent_indent=" " * 8))
        plan = self.context.plan(values)
        self.tracker.run(
            key,
            title,
            parameters={**values, **({"method": self.context.method} if self._prefix else {})},
            documents={STAGE_NOTE: canonical(plan)},
            datasets=self._data(list(plan.chain())),
        )
        if not self._prefix:
            self.offer_views(list(values)[:_COLUMNS])
        self.follower.follow(title, plan)
        self._live[number] = values
        self.running[number] = plan
        self._reused[number] = {stage.label for stage in plan.chain() if self.workspace.finished(stage)}
        self._follow(number, values)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial reported an evaluation, or how it ended."""
        number, quality = trial.config["trial"], self.context.quality
        title = self.title_of(number)
        self.follower.heard(title)
        self._follow(number, trial.config["hyper_parameters"])
        if result.get("hindered"):
            self._hindered = result["hindered"]
            return
        if result.get("preempted"):
            tell(f"{title}: its node is about to go; it continues from its checkpoint on another")
            # Tune counts the end that follows as a failure, and ends a trial that failed a few times.
            trial.run_metadata.num_failures -= 1
            return
        if result.get("reason"):
            tell(f"{title}: failed, {result['reason']}")
            return
        figure = result.get(quality, float("nan"))
        if result.get("finished"):  # The trial reports its last evaluation once more.
            tell(f"{title}: finished in {duration(result['seconds'])}")
        else:
            tell(f"{title}: {result['examples_seen']:,} examples, {quality} {figure:.4f}")
        figures = {f"dev/{name}": value for name, value in result["metrics"].items()}
        self._say_recall(result["metrics"])
        if result.get("finished"):
            figures["seconds"] = result["seconds"]
        row = Row(int(result["examples_seen"]), time.time(), figures)
        self.tracker.metrics(self.trial_key(number), [row])

    def _say_recall(self, metrics: Mapping[str, float]) -> None:
        """Say once how many of the nearest passages an index finds."""
        found = [value for name, value in metrics.items() if name.endswith("recall_of_exact@10")]
        if found and not self._recall_said:
            self._recall_said = True
            tell(f"the index of dev searches finds {100 * found[0]:.2f} % of the ten nearest passages")

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """End the search if the workspace cannot serve it: every other trial would fail alike."""
        if self._hindered:
            raise Hindered(self._hindered)

    def ended(self, record: TrialRecord) -> None:
        """Close the runs of a trial and of its stages according to the study, whichever process ran it."""
        live = self._live.pop(record.number, None) is not None
        self.running.pop(record.number, None)
        self.over.add(record.number)
        self.follower.leave(self.title_of(record.number))
        values, state = dict(record.hyper_parameters), _ENDED[record.state]
        self._close(record.number, values, state, record.reason or "", live=live)
        if record.state in ("PRUNED", "FAIL") and (plan := self.context.planned(values)):
            self._dead += plan.chain()
        self._abandon()

    def _abandon(self) -> None:
        """Remove the checkpoints that no trial goes on from; a trial that is just ending keeps its own."""
        used = {stage.fingerprint for plan in self.running.values() for stage in plan.chain()}
        self._dead = [
            stage for stage in self._dead if stage.fingerprint in used or not abandon(stage, self.workspace)
        ]

    def opened(self, suite: str, before: int) -> None:
        """Tag the run with the test suite that is about to be opened, and how often it was opened."""
        tags = {"stillhouse.test.suite": suite, "stillhouse.test.openings": str(before + 1)}
        self.tracker.describe(self.key, "test", tags=tags)

    def refit_started(self, record: TrialRecord, stage: Stage) -> None:
        """A trial is trained again for longer, or was."""
        self.refits.append(stage)
        key = self.refit_key(record.number)
        lengths = {f"refit_{part.label}_budget": part.budget for part in stage.chain()}
        self.tracker.run(
            key,
            self.title_of_refit(record.number),
            parameters={**record.hyper_parameters, **lengths},
            documents={STAGE_NOTE: canonical(stage)},
            datasets=self._data(list(stage.chain())),
        )
        for part in stage.chain():
            self._follow_stage((*key, part.label), part, reused=self.workspace.finished(part))

    def refit_ended(self, record: TrialRecord, stage: Stage) -> None:
        """A refit has ended, with the dev figures of its record, or because of its reason."""
        key = self._key_of(record)
        self.tail.poll()
        if not record.reason:
            row = {f"dev/{name}": value for name, value in record.metrics.items()}
            row["seconds"] = record.seconds or 0.0
            self.tracker.metrics(key, [Row(record.examples, time.time(), row)])
        keys = [(*key, part.label) for part in stage.chain()]
        self._finish(key, keys, _ENDED[record.state], record.reason or "", live=False)

    def costs(self, record: TrialRecord, cost: Mapping[str, float]) -> None:
        """Log what the student of a trial or of a refit costs as metrics of its run."""
        row = {f"cost/{name}": value for name, value in cost.items()}
        self.tracker.metrics(self._key_of(record), [Row(record.examples, time.time(), row)])

    def compared(self, records: Sequence[TrialRecord], against: Mapping[int, Paired]) -> None:
        """Log how trials compare with the best one on dev, by their numbers, as metrics of their runs."""
        for record in records:
            if record.number in against:
                row = _compared("dev/against_best", vars(against[record.number]))
                self.tracker.metrics(self._key_of(record), [Row(record.examples, time.time(), row)])

    def report(self, report: dict[str, Any], teacher_dev: Mapping[str, float]) -> None:
        """Log the test metrics to the sweep's run, and what figures are of; the step counts the trials."""
        row = {
            f"test/{who}/{name}": float(value)
            for who in ("student", "trial", "teacher", "baseline", "baseline_trial", "untrained")
            if report.get(who)
            for part in ("metrics", "cost")
            for name, value in report[who][part].items()
        }
        row |= {f"dev/teacher/{name}": value for name, value in teacher_dev.items()}
        for who, one in report["verdict"]["against"].items():
            row |= _compared(f"test/against_{who}", one)
        row[BEST_TRIAL] = float(report["student"]["trial"])
        row[REFITTED] = float(report["student"]["refitted"])
        self.tracker.metrics(self.key, [Row(len(report["trials"]), time.time(), row)])
        about = report["about"]
        said = {
            f"stillhouse.figures.{split}.{start}": "{split} split, {count} {unit}, data {data}".format(**fact)
            for split in ("dev", "test")
            for start, fact in about[split].items()
        }
        models = {f"stillhouse.model.{who}": identity for who, identity in about["models"].items()}
        self.tracker.describe(self.key, "figures", tags={**said, **models})

    def mark_best(self, records: Sequence[TrialRecord], best: TrialRecord) -> None:
        """Mark the run that trained the best student by a tag and by its name; an earlier one loses both."""
        for record in records:
            self.tracker.describe(
                self._key_of(record),
                "best student",
                tags={"stillhouse.best_student": "yes" if record is best else "no"},
                name=f"{record.title}{BEST_SUFFIX if record is best else ''}",
            )

    def offer_views(self, names: Sequence[str]) -> None:
        """Offer tables of the trials, with the named hyper-parameters among the columns, and of the sweep."""
        quality = self.context.quality
        costs = ("seconds", "cost/latency_ms_p50", "cost/megabytes")
        models = ("student", "teacher", "baseline", "untrained")
        facts = ("method", "teacher", "sentences", "pairs")
        tested = [f"test/{model}/{quality}" for model in models]
        tested += [f"test/against_{BASELINE}/{name}" for name in _COMPARED]
        apart = [f"dev/against_best/{name}" for name in _COMPARED]
        trials = View(
            f"Trials by {readable(quality)}", "trial", (f"dev/{quality}", *apart, *costs), tuple(names)
        )
        self.tracker.views(self.key, [trials, View("Sweep on the test split", "sweep", tested, facts)])

    def trial_key(self, number: int) -> Key:
        """The key of a trial's run."""
        return (*self.key, f"{self._prefix}{TRIAL}-{number:04d}")

    def refit_key(self, number: int) -> Key:
        """The key of the run of a trial's refit."""
        return (*self.key, f"{self._prefix}{REFIT}-{number:04d}")

    def title_of(self, number: int) -> str:
        """Name a trial in lines."""
        return f"{self._title}trial {number}"

    def title_of_refit(self, number: int) -> str:
        """Name the refit of a trial in lines."""
        return f"{self._title}refit of trial {number}"

    def _key_of(self, record: TrialRecord) -> Key:
        return (self.refit_key if record.refit else self.trial_key)(record.number)

    def __enter__(self) -> "Observer":
        """Follow the metrics logs until the block ends."""
        self.follower.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is waiting, and warn about what could not be sent."""
        self.follower.__exit__(kind, error, trace)
        resumable = kind is not None and issubclass(kind, KeyboardInterrupt | Hindered)
        state = "finished" if kind is None else "interrupted" if resumable else "failed"
        for each in self._all:
            each._abandon()
            for number, values in each._live.items():
                each._close(number, values, "interrupted", str(error or ""), live=True)
        self.tail.close()
        self.tracker.finish(self.key, state, str(error or ""))
        waiting = self.tracker.close(30.0 if kind is None else 5.0)
        if waiting:
            warn(waiting)

    def _follow(self, number: int, values: dict[str, Any]) -> list[Key]:
        """Follow each stage that a trial has begun; return the keys of their runs."""
        keys: list[Key] = []
        plan = self.context.planned(values)
        for index, stage in enumerate(plan.chain() if plan else ()):
            key = (*self.trial_key(number), stage.label)
            if index and not (self.workspace.path(stage) / STAGE_NOTE).exists():
                break
            keys.append(key)
            if key not in self._stages:
                self._follow_stage(key, stage, reused=stage.label in self._reused.get(number, ()))
        return keys

    def _follow_stage(self, key: Key, stage: Stage, *, reused: bool) -> None:
        self._stages[key] = (stage, reused)
        self.tail.follow(key, self.workspace.path(stage) / METRICS_LOG)

    def _rows(self, key: Key, rows: list[Row]) -> None:
        """Pass on what a stage logged; its first row opens its run, whose times are those of the log."""
        if key not in self._last:
            stage, reused = self._stages[key]
            self.tracker.run(
                key,
                stage.label,
                parameters={
                    "budget": stage.budget,
                    "batch_size": stage.batch_size,
                    "fingerprint": stage.fingerprint,
                },
                tags={"reused": "yes"} if reused else {},
                datasets=self._data([stage]),
                at=_began(rows[0]),
            )
        self._last[key] = rows[-1].time
        self.tracker.metrics(key, rows)

    def _data(self, stages: Sequence[Stage]) -> list[Data]:
        """The texts that stages are trained on."""
        tables = {t.fingerprint: t for stage in stages for t in stage.examples.columns.values()}
        return [
            Data(table.label, fingerprint, str(self.workspace.place(table)))
            for fingerprint, table in tables.items()
        ]

    def _close(self, number: int, values: dict[str, Any], state: str, reason: str, *, live: bool) -> None:
        keys = self._follow(number, values)
        self.tail.poll()
        self._finish(self.trial_key(number), keys, state, reason, live=live)

    def _finish(self, key: Key, stages: Sequence[Key], state: str, reason: str, *, live: bool) -> None:
        """End the run of a trial or a refit, and those of its stages with the last row of their logs.

        One that ended in another process, or before the others that it was waited for with, ended with its
        last stage.
        """
        logged = [each for each in stages if each in self._last]
        for each in logged:
            whole = self.workspace.finished(self._stages[each][0])
            ended = ("finished", "") if whole else (state, reason)
            self.tracker.finish(each, *ended, at=self._last[each])
        last = max((self._last[each] for each in logged), default=None)
        self.tracker.finish(key, state, reason, at=None if live else last)


def _compared(prefix: str, one: Mapping[str, Any]) -> dict[str, float]:
    """A comparison as metrics: the difference, its interval and p, as far as there are any."""
    values = {**one, "p": one["p"] if one.get("p_holm") is None else one["p_holm"]}
    return {f"{prefix}/{name}": float(values[name]) for name in _COMPARED if values[name] is not None}


def _began(first: Row) -> float:
    """When a stage began, by the first row of its log: what that measures has taken its time."""
    speed = first.metrics.get("examples_per_second", 0.0)
    return first.time - (first.metrics["examples"] / speed if speed else 0.0)


def _short(values: dict[str, Any]) -> str:
    shown = [
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    ]
    return ", ".join(shown)


def open_tracker(workspace: Workspace, folder: Path, name: str) -> MLflowTracker:
    """Open MLflow at ``$MLFLOW_TRACKING_URI`` or in the workspace, with a journal in the sweep's folder."""
    return MLflowTracker(tracking_uri(workspace.root), f"stillhouse-{name}", folder)
