"""An experiment with its teacher: what both models read, and the setting of data that is not there."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.roles import Reading
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.student_makers import StudentMaker
from stillhouse.students.head import positions, published_length
from stillhouse.teachers.prompts import check_prompts, prompts_of
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import DevSuite


@dataclass(frozen=True)
class WithTeacher:
    """An experiment whose teacher has been found; its folder states the length if the experiment does not."""

    experiment: Experiment
    teacher: Teacher

    @cached_property
    def student(self) -> StudentMaker[Any]:
        """What makes the student."""
        return self.experiment.student.of(self.teacher)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Tokens per text that each teacher reads; 0 for one that is not run."""
        own = self.teacher.lengths or (self.experiment.teacher.max_length,)
        return tuple(
            length or self.experiment.of(member).common_length if member.checkpoint else 0
            for member, length in zip(self.teacher.members, own, strict=True)
        )

    @cached_property
    def common_length(self) -> int:
        """Tokens per text of teacher and student where neither states its own.

        Of a teacher that is there by its vectors alone, what the student's checkpoint states counts; of
        several, what the one counts that the student starts from.
        """
        lead = self.teacher.lead
        own = self.teacher.lengths[self.teacher.members.index(lead)] if self.teacher.lengths else 0
        stated = self.experiment.max_length or self.experiment.teacher.max_length or own
        return stated or published_length(lead.checkpoint or self.experiment.student.of(lead).base)

    @property
    def student_length(self) -> int:
        """Tokens per text that the student reads."""
        return self.student.length(self.common_length)

    def check_teacher_prompts(self) -> None:
        """Refuse prompts of the teacher that leave no room for a text; see `check_prompts`."""
        for member, length in zip(self.teacher.members, self.lengths, strict=True):
            if member.checkpoint:
                check_prompts(prompts_of(member), member.checkpoint, length, "teacher")

    def check_prompts(self) -> None:
        """Refuse prompts of teacher or student that leave no room for a text.

        Raises:
            BadInput: There is such a prompt.
        """
        self.check_teacher_prompts()
        length, prompts = self.student_length, self.experiment.student.prompts
        check_prompts(prompts, self.student.base, length, "student")

    def check_lengths(self) -> None:
        """Refuse more tokens per text than a model has positions for, where a length is stated.

        Raises:
            BadInput: There are more.
        """
        experiment = self.experiment
        own = experiment.teacher.max_length or experiment.max_length
        student = experiment.student.max_length or experiment.max_length
        read = [("teacher", model, own) for model in self.teacher.models]
        if student:
            read.append(("student", self.student.base, student))
        for role, model, length in read:
            most = positions(model) if length else 0
            require(
                most == 0 or length <= most,
                f"the {role} must have a position for each token",
                max_length=length,
                positions=most,
                remedy=f"Lower max_length or {role}.max_length.",
            )

    def sketch(self) -> Setting:
        """A setting of data that is not there, all of it, to check plans with before any work."""
        experiment = self.experiment
        self.check_lengths()
        self.check_prompts()
        kinds = [kind for kind in experiment.kinds if kind.present(experiment)]
        data = {kind.key: kind.reader.sketch(experiment) for kind in kinds}
        for kind in experiment.kinds:
            for each in kind.provides:
                data.setdefault(each.key, data_kinds()[each.key]().reader.sketch(experiment))
        settings = {**self.stage_settings(), "distil_budget": 1 << 40}
        return Setting(
            teacher=experiment.placeholder_teacher if self.teacher.checkpoint else self.teacher,
            student=self.student.spec(experiment.seed),
            dev=DevSuite((), select="sketched"),
            data=data,
            teacher_dim=4,
            finetune_budget=1 << 40,
            **settings,
        )

    def stage_settings(self) -> dict[str, Any]:
        """The fields of a `Setting` that the experiment states."""
        budget, reading = self.experiment.budget, None
        if self.teacher.checkpoint:
            (longest,) = self.lengths
            reading = Reading(longest, prompts_of(self.teacher.checkpoint))
        return {
            "distil_budget": budget.settled().distil,
            "epochs": budget.epochs,
            "finetune_epochs": budget.finetune_epochs,
            "evaluations": budget.evaluations,
            "every": budget.every,
            "patience": budget.patience,
            "finetune_patience": budget.finetune_patience,
            **budget.loop(),
            "max_length": self.student_length,
            "prompts": self.experiment.student.prompts,
            "teacher_reading": reading,
            "seed": self.experiment.seed,
        }
