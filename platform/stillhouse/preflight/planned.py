"""A planned run: its stages, texts and stores, as far as they are known in seconds."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.roles import PLAIN
from stillhouse.corpora.tables import sample_of
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Preparation, compute_of, teacher_store
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import Method, kinds_read
from stillhouse.students.head import dimension_of
from stillhouse.values.data import Store, TableStore, Teacher, TextTable
from stillhouse.values.graph import reached
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

SAMPLE = 256
"""Texts that the checks look at."""
_TOKENS_PER_WORD = 1.4
_TOKENS_PER_TEXT = 32.0
"""Tokens of a text where none has been looked at."""


@dataclass(frozen=True)
class Planned:
    """A planned run, up to its last stage, with the data and the stores as far as the data has been read.

    ``texts`` are some of those to distil on, from ``label``; a glimpse of them where the data is not read.
    """

    experiment: Experiment
    teacher: Teacher
    setting: Setting
    stage: Stage
    workspace: Workspace
    device: str = "cpu"
    stores: tuple[Store, ...] = ()
    texts: tuple[str, ...] = ()
    label: str = ""
    is_read: bool = False

    @cached_property
    def stages(self) -> list[Stage]:
        """Every stage of the plan, the first one first."""
        return list(self.stage.chain())

    @cached_property
    def compute(self) -> str:
        """Precision of teacher and training."""
        return compute_of(self.workspace, self.teacher, self.device, self.experiment.compute)

    @property
    def role(self) -> str:
        """Role of the sampled texts; with several sources, that of the first."""
        return self.roles[0]

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the texts to distil on."""
        sentences: Sentences | None = self.experiment.get(Sentences)
        return sentences.roles if sentences is not None else (PLAIN,)

    @property
    def rows(self) -> int:
        """Number of texts to distil on; 0 where it is not known."""
        if self.is_read:
            return texts_of(self.setting)
        wanted: Sentences | None = self.experiment.get(Sentences)
        return wanted.stated_rows if wanted is not None else 0

    @property
    def tokens_per_text(self) -> float:
        """Approximate number of tokens per text."""
        words = [len(text.split()) for text in self.texts]
        return _TOKENS_PER_WORD * float(np.mean(words)) + 2 if words else _TOKENS_PER_TEXT

    @cached_property
    def encoder_store(self) -> TableStore | None:
        """A store with the prompt and the length of the texts to distil on; None unless the teacher is run.

        It need not exist: it says how the teacher reads. Of several teachers all must be run here.
        """
        if len(self.teacher.models) < len(self.teacher.members):
            return None
        return self.reading()

    def reading(self) -> TableStore:
        """The store of a sample of the texts to distil on, which need not exist."""
        lengths = self.experiment.of(self.teacher).lengths
        texts = TextTable("sample")
        return teacher_store(texts, self.teacher, self.role, lengths=lengths, compute=self.compute)


def texts_of(setting: Setting) -> int:
    """Number of texts to distil on in prepared data; 0 where there are none."""
    sentences = setting.get(Sentences)
    return sentences.rows if sentences is not None else 0


def sketched(
    method: Method, hp: Any, experiment: Experiment, workspace: Workspace, teacher: Teacher, device: str
) -> Planned:
    """The plan alone: nothing is read."""
    setting = dataclasses.replace(experiment.of(teacher).sketch(), teacher_dim=dimension_of(teacher))
    return Planned(experiment, teacher, setting, method.plan(hp, setting), workspace, device)


def read(
    method: Method, hp: Any, experiment: Experiment, workspace: Workspace, teacher: Teacher, device: str
) -> Planned:
    """The plan with the data that can be read in seconds; what is read is kept, as a run would keep it.

    Raises:
        BadInput: The data cannot be read.
    """
    plan = sketched(method, hp, experiment, workspace, teacher, device)
    kinds = kinds_read(method, hp, experiment, plan.setting)
    where = Embedding(local=True, device=device)
    context = Preparation(experiment, workspace, where, read=kinds, found=teacher)
    source = experiment.source
    # The source comes last: whether it has been read depends on what is measured.
    if not all(kind.reader.at_hand(context) for kind in reversed(experiment.kinds)):
        say("  the text has not been read yet: looking at some of it")
        label = str(getattr(source, "corpus", source.key))
        return dataclasses.replace(plan, texts=tuple(source.reader.glimpse(SAMPLE)), label=label)
    named = context.whole
    setting = dataclasses.replace(plan.setting, data={**plan.setting.data, **named.data}, dev=named.dev)
    stage = method.plan(hp, setting)
    sentences = setting.get(Sentences)
    found = reached(Store, sentences, stage)
    table = found[0].texts if found else next(iter(stage.examples.columns.values()))
    return dataclasses.replace(
        plan,
        setting=setting,
        stage=stage,
        stores=tuple(reached(Store, stage)),
        texts=tuple(sample_of(workspace, table, SAMPLE)[1]),
        label=table.label,
        is_read=True,
    )
