"""From an experiment to a `Setting`: its data is read, embedded by the teacher once, and mined."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from stillhouse.cluster.resources import teacher_actors
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec, canonical, fingerprint
from stillhouse.core.machine import cores
from stillhouse.core.notes import has_note, publish_notes, write_note
from stillhouse.core.roles import PLAIN
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.pydocs.selection import pydocs
from stillhouse.corpora.reading.corpus import TokenLimit
from stillhouse.corpora.reading.understood import Understood, recorded
from stillhouse.corpora.tables import count_rows, open_texts
from stillhouse.experiments.data_kind import PYDOCS_PAIRS, PYDOCS_SENTENCES, of_pydocs
from stillhouse.experiments.embedding import Embedding
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.collection import SearchCollection
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.shares import counted, cut
from stillhouse.experiments.unread import Unread
from stillhouse.students.head import dimension_of, head_of
from stillhouse.teachers.choosing import Chooser
from stillhouse.teachers.embedding import build_stores, resolve_compute
from stillhouse.teachers.kinds import kind_of
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.store import open_vectors
from stillhouse.values.data import AnyStore, Examples, Store, StoreEnsemble, TableStore, Teacher, TextTable
from stillhouse.values.kinds import Kind
from stillhouse.values.setting import Setting
from stillhouse.values.stage import DevSuite, TestSuite

P = TypeVar("P")
_FIRST_FACTS = (
    *("corpus", "sentences", "pairs", "fraction", "fraction_of"),
    *("teacher", "teacher_head", "store", "compute"),
)


@dataclass(frozen=True)
class Prepared:
    """An experiment whose data is read, embedded and mined.

    Attributes:
        setting: What the methods' plans read.
        test: The locked suite.
        facts: What the report and the model card say of the data.
        summary: One line on the data; empty where preparing it has already said so.
        refit: What the plans of a refit read; None where none is asked for.
        embedding_s: Seconds that the teacher took.
        understood: What the sources were taken for.
    """

    setting: Setting
    test: TestSuite
    facts: dict[str, Any]
    summary: str = ""
    refit: Setting | None = None
    embedding_s: float = field(default=0.0, compare=False)
    understood: tuple[Understood, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Measure:
    """Something that the dev and the test suite measure.

    Attributes:
        name: Its name in ``selection.by``.
        figure: The dev figure that selects.
        dev: The evaluator of the dev split, made once the teacher has embedded everything.
        test: The evaluator of the locked test split.
    """

    name: str
    figure: str
    dev: Callable[[], Spec[Any]]
    test: Spec[Any]


@dataclass
class Preparation:
    """Everything that the kinds of data of an experiment share while they are prepared.

    A kind reads its data and registers the rest here: what the teacher must embed, what is done after that,
    what is measured, which texts students read, and facts for reports.

    Attributes:
        experiment: The experiment.
        workspace: Where everything is found and put.
        embedding: Where the teacher runs.
        refresh: Whether corpora are read again.
        training: Whether the data to train on is prepared; otherwise only what evaluators read.
        unread: What is not made, as nothing reads it.
        found: The experiment's teacher, where it has been found already; None finds it.
        measures: Whether a teacher may be converted to find its runtime; otherwise ``auto`` takes PyTorch.
        facts: What the report and the model card say of the data.
        texts: Text tables whose words students may read.
        test: Further evaluators of the locked test split.
        data: The prepared data, by `Kind.key`.
        held_out: Teacher's vectors of the texts on which stages report their loss; None where none is asked
            for.
        understood: What the sources were taken for.
    """

    experiment: Experiment
    workspace: Workspace
    embedding: Embedding
    refresh: bool = False
    training: bool = True
    unread: Unread = field(default_factory=Unread)
    found: Teacher | None = None
    measures: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    texts: list[TextTable] = field(default_factory=list)
    test: tuple[Spec[Any], ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    held_out: AnyStore | None = None
    understood: list[Understood] = field(default_factory=list)
    _stores: list[Store] = field(default_factory=list)
    _later: list[Callable[[], None]] = field(default_factory=list)
    _measures: list[Measure] = field(default_factory=list)

    @cached_property
    def teacher(self) -> Teacher:
        """The experiment's teacher."""
        teacher = self.found or self.experiment.teacher.resolve()
        self.experiment.check_prompts(teacher)
        longest = self.experiment.common_length(teacher)
        for line in (
            *self.experiment.teacher.remarks(teacher),
            *self.experiment.student.remarks(teacher, longest),
        ):
            say(f"  {line}")
        with recorded() as found:
            for member in teacher.members:
                for each in kind_of(member.maker).understood(member):
                    each.say()
        self.understood += found
        return teacher

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Tokens per text that each teacher reads."""
        return self.experiment.lengths(self.teacher)

    def read_by_student(self, role: str) -> TokenLimit:
        """Return the part of a text of a role that the student reads."""
        student = self.experiment.student
        length = student.length(self.teacher, self.experiment.common_length(self.teacher))
        return TokenLimit(student.base(self.teacher), length, student.prompts.of(role))

    @cached_property
    def compute(self) -> str:
        """The precision of teacher and training: ``float32`` or ``bfloat16``."""
        return resolve_compute(self.embedding.device, self.experiment.compute)

    @cached_property
    def runtimes(self) -> Chooser:
        """The chooser of runtimes for the stores."""
        return chooser_of(self.experiment, self.workspace, self.embedding, measures=self.measures)

    def store(self, texts: TextTable, role: str = PLAIN) -> TableStore:
        """The teacher's vectors of some texts of a role; naming a store embeds nothing."""
        return self._named(texts, role, made=self.training)

    def _named(self, texts: TextTable, role: str, *, made: bool) -> TableStore:
        store = teacher_store(texts, self.teacher, role, lengths=self.lengths, compute=self.compute)
        return self.runtimes.choose(store, made=made)

    def embedded(self, texts: TextTable, role: str = PLAIN) -> TableStore:
        """The teacher's vectors of some texts of a role, which the teacher will embed."""
        store = self._named(texts, role, made=True)
        self._stores += store.stores
        return store

    def trained_on(self, texts: TextTable, role: str = PLAIN) -> TableStore:
        """The teacher's vectors of texts to train on; nothing is embedded that no stage reads."""
        read = self.training and not self.unread.vectors
        return self.embedded(texts, role) if read else self._named(texts, role, made=False)

    @property
    def stores(self) -> list[Store]:
        """The teacher's vectors that have been registered, each once."""
        return list(dict.fromkeys(self._stores))

    def later(self, action: Callable[[], None]) -> None:
        """Register what is done once the teacher has embedded everything."""
        self._later.append(action)

    def measure(self, name: str, figure: str, *, dev: Callable[[], Spec[Any]], test: Spec[Any]) -> None:
        """Register a `Measure`; the first one selects unless ``selection.by`` names another."""
        self._measures.append(Measure(name, figure, dev, test))

    def reads(self, texts: TextTable) -> None:
        """Register texts whose words students may read."""
        self.texts.append(texts)

    def get(self, kind: type[Kind[P]]) -> P | None:
        """The prepared data of a kind, prepared now if it has not been; None where there is none."""
        if kind.key not in self.data:
            value = None if kind.key in self.unread.kinds else self.experiment.get(kind)
            with recorded() as found:
                self.data[kind.key] = None if value is None else value.prepare(self)
            self.understood += [each for each in found if each not in self.understood]
        known: P | None = self.data[kind.key]
        return known

    def provide(self, kind: type[Kind[P]], value: P) -> None:
        """Add prepared data of another kind than the one that is being prepared."""
        self.data[kind.key] = value

    def prepare_others(self, last: object) -> None:
        """Prepare every kind of the experiment but this one, which reads what they register."""
        for kind in self.experiment.kinds:
            if kind is not last:
                self.get(type(kind))

    @cached_property
    def barrier(self) -> Barrier:
        """Texts that are measured with. A kind declares its own, and adds those that it holds out."""
        barrier = Barrier(self.workspace)
        for kind in self.experiment.kinds:
            measured = {} if kind.key in self.unread.kinds else kind.measured(self)
            for evaluator, texts in measured.items():
                barrier.declare(evaluator, texts)
        return barrier

    def rows(self, texts: TextTable) -> int:
        """Number of texts of a table."""
        return len(open_texts(self.workspace, texts))

    def row_count(self, examples: Examples) -> int:
        """Number of rows of examples."""
        return count_rows(self.workspace, examples)

    def pydocs(self) -> Any:
        """The selection from the corpus ``pydocs`` that the experiment's kinds ask for, read once."""
        return self._pydocs

    @cached_property
    def _pydocs(self) -> Any:
        return read_pydocs(self.experiment, self.workspace, refresh=self.refresh)

    def finish(self) -> Prepared:
        """Prepare every kind, run the teacher, do what waits for it, and assemble the setting."""
        for kind in self.experiment.kinds:
            self.get(type(kind))
        began = time.monotonic()
        if self._stores:
            embed_stores(self.stores, self.workspace, self.embedding)
        embedding_s = time.monotonic() - began
        for action in self._later:
            action()
        whole = self._whole(self._dev_suite(), self._teacher_dim(self.data.get(Sentences.key)))
        refit = self._refit(whole) if self.experiment.budget.refit.asked_for else None
        setting = counted(self._completed(cut(whole, self.experiment.budget)), self.workspace)
        facts = self._facts()
        source = self.experiment.source
        summary = "" if source.key in self.unread.kinds else source.summary(facts)
        said = tuple(self.understood)
        return Prepared(setting, self._test_suite(), facts, summary, refit, embedding_s, said)

    def sized(self) -> Prepared:
        """Read every kind, and assemble what can be counted: the teacher does not run, nothing is mined.

        The setting serves to plan with, not to train on: its hard negatives are not there, and what is
        measured among the teacher's vectors is left out of its dev suite.
        """
        for kind in self.experiment.kinds:
            self.get(type(kind))
        try:
            dev = self._dev_suite()
        except BadInput:  # A pool of passages is chosen among the teacher's vectors.
            dev = DevSuite((), select="")
        whole = self._whole(dev, dimension_of(self.teacher))
        setting = counted(cut(whole, self.experiment.budget), self.workspace)
        asked_for = self.experiment.budget.refit.asked_for
        refit = counted(self._lengthened(whole), self.workspace) if asked_for else None
        return Prepared(setting, self._test_suite(), self._facts(), refit=refit)

    def _whole(self, dev: DevSuite, teacher_dim: int) -> Setting:
        """The setting with all of the rows."""
        experiment = self.experiment
        data = {key: value for key, value in self.data.items() if value is not None}
        fine_tuned = any(kind.counts_as == "labels" and kind.key in data for kind in experiment.kinds)
        return Setting(
            teacher=self.teacher.having(lengths=self.lengths),
            student=experiment.student.spec(self.teacher, experiment.seed),
            dev=dev,
            data=data,
            teacher_dim=teacher_dim,
            finetune_budget=experiment.budget.settled().finetune if fine_tuned else 0,
            autocast=self.compute,
            **experiment.stage_settings(self.teacher),
        )

    def _test_suite(self) -> TestSuite:
        return TestSuite(tuple(measure.test for measure in self._measures) + self.test)

    def _refit(self, whole: Setting) -> Setting:
        """All of the rows, with the budgets of a refit."""
        return counted(self._completed(self._lengthened(whole)), self.workspace)

    def _lengthened(self, whole: Setting) -> Setting:
        """The setting with the budgets of a refit."""
        budget = self.experiment.budget.of_refit()
        return dataclasses.replace(
            whole,
            distil_budget=budget.distil,
            finetune_budget=budget.finetune if whole.finetune_budget else 0,
            evaluations=budget.evaluations,
        )

    def _completed(self, setting: Setting) -> Setting:
        """The setting whose kinds have been completed."""
        self.data |= setting.data
        for kind in self.experiment.kinds:
            value = self.data.get(kind.key)
            if value is not None:
                setting = setting.having(type(kind), kind.complete(value, self))
        return setting

    def _dev_suite(self) -> DevSuite:
        if not self._measures:  # every stage selects by a figure of its own
            return DevSuite((), select="")
        by = self.experiment.selection.by or self._measures[0].name
        figures = {measure.name: measure.figure for measure in self._measures}
        suite = tuple(measure.dev() for measure in self._measures)
        return DevSuite(suite, select=figures[by], held_out=self.held_out)

    def _teacher_dim(self, sentences: Any) -> int:
        if sentences is None or not self.training:
            return 0
        if self.unread.vectors or self.teacher.dimension:
            return dimension_of(self.teacher)
        return open_vectors(self.workspace, sentences.store, streamed=True).dim

    def _facts(self) -> dict[str, Any]:
        budget = self.experiment.budget
        share = (
            {"fraction": budget.fraction, "fraction_of": budget.fraction_of} if budget.fraction < 1 else {}
        )
        left_out = {f"{rows}_left_out": sum(by.values()) for rows, by in self.barrier.left_out.items()}
        left_out = {name: count for name, count in left_out.items() if count or "collection" in self.facts}
        facts = {
            "teacher": self.teacher.name,
            "teacher_head": str(head_of(self.teacher)),
            **self._reading(),
            "pairs": 0,
            **left_out,
            **self.facts,
            **share,
            "compute": self.compute,
        }
        first = {name: facts[name] for name in _FIRST_FACTS if name in facts}
        return {**first, **facts}

    def _reading(self) -> dict[str, str]:
        """Facts on prompts, and on dimensions that are left out; nothing where there are neither."""
        members, student = self.teacher.members, self.experiment.student.prompts
        facts = {"student_prompts": str(student)} if student else {}
        for number, member in enumerate(members, start=1):
            who = "teacher" if len(members) == 1 else f"teacher_{number}"
            if prompts := prompts_of(member):
                facts[f"{who}_prompts"] = str(prompts)
            if kept := member.dimension if member.checkpoint else member.kept:
                facts[f"{who}_dimension"] = f"the first {kept}"
        return facts


def teacher_store(
    texts: TextTable, teacher: Teacher, role: str, *, lengths: Sequence[int], compute: str
) -> TableStore:
    """A teacher's vectors of texts of a role: with the prompt that the teacher wants for that role.

    Args:
        texts: The texts.
        teacher: The teacher, or several.
        role: The texts' role.
        lengths: Tokens per text that each of them reads.
        compute: Precision of a forward pass.
    """
    stores = []
    for member, length in zip(teacher.members, lengths, strict=True):
        store = Store(texts, member.read_as(role), prompt=prompts_of(member).of(role))
        stores.append(replace(store, max_length=length, compute=compute) if member.checkpoint else store)
    return StoreEnsemble(texts, tuple(stores), teacher.weights) if teacher.weights else stores[0]


def chooser_of(
    experiment: Experiment, workspace: Workspace, embedding: Embedding, *, measures: bool = True
) -> Chooser:
    """Return the chooser of runtimes for an experiment's stores.

    Args:
        experiment: Its teachers say which runtime is wanted.
        workspace: Holds texts and stores.
        embedding: Where the teacher runs.
        measures: See `Preparation`.
    """
    return Chooser(
        [choice.runtime for choice in experiment.teacher.each],
        workspace,
        embedding.device,
        threads=_threads(embedding),
        measures=measures,
    )


def _actors(embedding: Embedding) -> int:
    return embedding.actors or (1 if embedding.local else teacher_actors(embedding.device))


def _threads(embedding: Embedding) -> int:
    return cores() if embedding.local else embedding.threads


def prepare(
    experiment: Experiment,
    workspace: Workspace,
    embedding: Embedding,
    *,
    refresh: bool = False,
    training: bool = True,
    unread: Unread | None = None,
    teacher: Teacher | None = None,
) -> Prepared:
    """Read an experiment's data, run the teacher once over it, and mine hard negatives; skip what exists.

    Args:
        experiment: The experiment.
        workspace: Where everything is found and put.
        embedding: Where the teacher runs.
        refresh: Whether corpora are read again.
        training: Whether the data to train on is prepared. To measure a model only what evaluators read is
            needed: no training text is embedded, augmented or mined, and there is nothing to plan with.
        unread: What is not made, as no stage reads it; None makes everything.
        teacher: The experiment's teacher, where it has been found already; None finds it, which reads all of
            its weights or vectors, or asks its endpoint.
    """
    read = unread or Unread()
    prepared = Preparation(experiment, workspace, embedding, refresh, training, read, teacher).finish()
    publish_notes(workspace)
    return prepared


def read_pydocs(experiment: Experiment, workspace: Workspace, *, refresh: bool) -> Any:
    """Select from ``pydocs`` what the kinds of an experiment name."""
    sentences = experiment.get(Sentences) or Sentences()
    pairs = experiment.get(Pairs) or Pairs()
    search = experiment.get(SearchCollection) or SearchCollection()
    return pydocs(
        workspace,
        sentences=None if sentences.sources else of_pydocs(sentences.count, PYDOCS_SENTENCES) or None,
        pairs=of_pydocs(pairs.count, PYDOCS_PAIRS) or None,
        dev_queries=search.dev_queries,
        dev_passages=search.dev_passages,
        test_queries=search.test_queries,
        test_passages=search.test_passages,
        held_out_sentences=sentences.held_out,
        refresh=refresh,
        progress=Progress("reading docstrings", "files"),
    )


def embed_stores(stores: list[Store], workspace: Workspace, embedding: Embedding) -> None:
    """Run the teacher for the stores that are missing, and note that an experiment reads them all."""
    if not stores:
        return
    # `store gc` keeps what an experiment reads.
    note = workspace.root / "experiments" / f"{fingerprint(stores)}.json"
    if not has_note(note):
        write_note(note, {"stores": [canonical(part) for part in stores]})
    missing = [store for store in stores if not workspace.finished(store)]
    if not missing:
        return
    imported = all(store.teacher.imported for store in missing)
    asked = all(store.teacher.asked for store in missing)
    what = "reading the vectors of" if imported else "asking for" if asked else "starting the teacher for"
    say(f"  {what} {', '.join(dict.fromkeys(store.label for store in missing))}")
    build_stores(
        workspace,
        missing,
        actors=_actors(embedding),
        threads=_threads(embedding),
        local=embedding.local,
        device=embedding.device,
        progress=Progress("importing" if imported else "embedding", "texts"),
    )


def documents_of(suite: DevSuite | TestSuite) -> list[Store]:
    """The teacher's vectors of documents that a suite's queries search."""
    found = (each.kwargs["documents"] for each in suite.evaluators if "documents" in each.kwargs)
    return [store for vectors in found for store in vectors.stores]
