"""The models of the final comparison as full-precision encoders: teacher, students, untrained student."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.devices import usable_device
from stillhouse.core.identity import fingerprint
from stillhouse.core.roles import Prompts
from stillhouse.core.types import Encoder, FloatArray, InRoles, encode_as
from stillhouse.evaluation.items import FiguresAndItems
from stillhouse.evaluation.suites import measure_suite, run_suite
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.preparation import Prepared
from stillhouse.search.records import TrialRecord
from stillhouse.teachers.kinds import kind_of
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.store import joined
from stillhouse.teachers.vector_files import FilesEncoder, NoVector
from stillhouse.training.models import encoder_in
from stillhouse.training.pair_scores import teacher_scorer
from stillhouse.training.start_figures import first_of, untrained
from stillhouse.values.data import Scored, Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import DevSuite, Stage, TestSuite


@dataclass(frozen=True)
class Candidate:
    """The student of a trial or a refit; its record has the dev figures of the checkpoint that was kept."""

    record: TrialRecord
    stage: Stage
    folder: Path


@dataclass(frozen=True)
class Contenders:
    """The models that are compared on the test split.

    Attributes:
        best: The sweep's best student.
        baseline: The baseline's best student; None if there is none.
        prepared: The data and the locked test suite.
        device: Device that they encode on; the CPU if the driver does not have it.
        trial: The student of the trial that was refitted; None where the best student is a trial's own.
        baseline_trial: The same of the baseline, where only its best student is a refit.
    """

    best: Candidate
    baseline: Candidate | None
    prepared: Prepared
    device: str
    trial: Candidate | None = None
    baseline_trial: Candidate | None = None

    @property
    def fingerprint(self) -> str:
        """Identifies the models and the suite."""
        stages = [self.best.stage.fingerprint, self.baseline.stage.fingerprint if self.baseline else ""]
        stages += [each.stage.fingerprint for each in (self.trial, self.baseline_trial) if each]
        return fingerprint([self.prepared.test.fingerprint, *stages, *self._teacher_reading()])

    def _teacher_reading(self) -> list[Prompts | int]:
        """The teacher's prompts, if it has any, and its length, if it is not the students'.

        No store need name them: the prompt of a role that is only measured is in none.
        """
        setting = self.prepared.setting
        known = () if setting.get(Claims) else setting.teacher.members
        prompts = [prompts_of(member) for member in known]
        lengths = setting.teacher.lengths or (setting.teacher_length,)
        longer = bool(known) and any(length not in (0, setting.max_length) for length in lengths)
        return [*(prompts if any(prompts) else []), *(lengths if longer else ())]

    def found_in(self, workspace: Workspace) -> "Contenders":
        """The same with the students' folders in a workspace, which may be another node's."""
        found: dict[str, Any] = {
            name: replace(each, folder=workspace.path(each.stage))
            for name in ("best", "baseline", "trial", "baseline_trial")
            if (each := getattr(self, name)) is not None
        }
        return replace(self, **found)

    @property
    def students(self) -> dict[str, Candidate]:
        """The trained students, by the names that the comparison has for them."""
        named = {
            "student": self.best,
            "trial": self.trial,
            "baseline": self.baseline,
            "baseline_trial": self.baseline_trial,
        }
        return {name: each for name, each in named.items() if each is not None}

    @property
    def of_equal_work(self) -> tuple[str, str]:
        """The rows of the comparison that say whether the method is better than its baseline.

        They are the best students, unless only one of them is a refit; then they are the trials.
        """
        if self.baseline is None or self.best.record.refit == self.baseline.record.refit:
            return "student", "baseline"
        return ("trial", "baseline") if self.trial else ("student", "baseline_trial")

    def encoders(self, workspace: Workspace) -> dict[str, tuple[Any, nn.Module | None]]:
        """Load each model by name: its encoder, and the module whose cost is measured, where there is one."""
        setting = self.prepared.setting
        device = usable_device(self.device)
        start = untrained(first_of(self.best.stage), workspace, device)
        models: dict[str, tuple[Any, nn.Module | None]] = {}
        for name, each in self.students.items():
            encoder = encoder_in(each.folder, device)
            models[name] = (encoder, encoder.student)
        ranks = setting.get(Claims) is not None
        scorer = scoring_teacher(self.best.stage, workspace, device) if ranks else None
        if scorer is not None:
            models["teacher"] = (scorer, scorer.student)
        elif not ranks and not asks(setting):
            taught_by = teacher_of(self.best.stage, setting)
            models["teacher"] = teacher(taught_by, setting.teacher_length, device)
        return {**models, "untrained": (start, start.student)}


class EnsembleEncoder(InRoles):
    """Several teachers, with weights of sum 1, as one encoder with the vectors of `values.data.Ensemble`."""

    def __init__(self, members: Sequence[Encoder], weights: Sequence[float]) -> None:
        self.members, self.weights = list(members), list(weights)

    def encoded(self, role: str, texts: Sequence[str]) -> FloatArray:
        """Encode texts of a role as vectors, (N, E), in their order."""
        return joined([encode_as(member, role, texts) for member in self.members], self.weights)


def teacher_of(stage: Stage, setting: Setting) -> Teacher:
    """The setting's teacher; of several, with the weights that a stage learnt with, which may be searched."""
    for part in stage.chain():
        for vectors in part.stores.values():
            if vectors.teacher.weights:
                return setting.teacher.having(weights=vectors.teacher.weights)
    return setting.teacher


def asks(setting: Setting) -> bool:
    """Return whether a teacher is behind an endpoint, to which no text of a suite is sent."""
    return any(member.asked for member in setting.teacher.members)


def scoring_teacher(stage: Stage, workspace: Workspace, device: str) -> Any:
    """Load the teacher whose recorded pair scores a stage reads, as a scorer; None if it reads none."""
    for examples in stage.examples.sources():
        if isinstance(examples.origin, Scored):
            return teacher_scorer(examples.origin, workspace, device)
    return None


def teacher(model: Teacher, max_length: int, device: str) -> tuple[Encoder, nn.Module | None]:
    """Load the teacher as an encoder, with its module; files of vectors have none.

    Several teachers are one encoder, whose module has the weights of all of them.
    """
    lengths = model.lengths or (0,) * len(model.members)
    loaded = [
        kind_of(member.maker).encoder(member, length or max_length, device)
        for member, length in zip(model.members, lengths, strict=True)
    ]
    if not model.weights:
        return loaded[0]
    modules = [module for _, module in loaded if module is not None]
    together = nn.ModuleList(modules) if len(modules) == len(loaded) else None
    return EnsembleEncoder([encoder for encoder, _ in loaded], model.weights), together


def figures_of(suite: DevSuite | TestSuite, encoder: Any, workspace: Workspace) -> FiguresAndItems:
    """Measure a model; a teacher of vectors alone has the figures of texts that its files have, no items."""
    if not any(isinstance(each, FilesEncoder) for each in getattr(encoder, "members", [encoder])):
        return measure_suite(suite, encoder, workspace)
    figures: dict[str, float] = {}
    for evaluator in suite.evaluators:
        try:
            # Alone, and without the figure that a dev suite must return.
            figures |= run_suite(TestSuite((evaluator,)), encoder, workspace)
        except NoVector as error:
            say(f"  the teacher has no figures of {evaluator.target.__name__}: {error}")
    return figures, {}
