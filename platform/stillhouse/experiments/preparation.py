"""From an experiment to a `Setting`: its data is read and named, and what is asked for is made."""

import dataclasses
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.core.notes import has_note, publish_notes, read_note, write_note
from stillhouse.core.roles import PLAIN
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.pydocs.pydocs_corpus import pydocs
from stillhouse.corpora.reading.corpus import TokenLimit
from stillhouse.corpora.reading.understood import Understood, recorded
from stillhouse.corpora.tables import count_rows, open_texts
from stillhouse.evaluation.pool import Pool, build_pool
from stillhouse.experiments.data_kind import PYDOCS_PAIRS, PYDOCS_SENTENCES, DataKind, Measure, of_pydocs
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.collection import SearchCollection
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.shares import counted, cut
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.experiments.with_teacher import WithTeacher
from stillhouse.students.head import dimension_of, head_of
from stillhouse.teachers.choosing import Chooser
from stillhouse.teachers.embedding import resolve_compute
from stillhouse.teachers.kinds import kind_of
from stillhouse.teachers.prompts import prompts_of
from stillhouse.training.inputs import get
from stillhouse.values.data import Examples, Store, StoreEnsemble, TableStore, Teacher, TextTable
from stillhouse.values.graph import missing, of_kind, reached, swapped
from stillhouse.values.kinds import Kind
from stillhouse.values.setting import Setting
from stillhouse.values.stage import DevSuite, TestSuite

P = TypeVar("P")
T = TypeVar("T")
_FIRST_FACTS = (
    *("corpus", "sentences", "pairs", "fraction", "fraction_of"),
    *("teacher", "teacher_head", "store", "compute"),
)


@dataclass(frozen=True)
class Prepared:
    """An experiment whose data is read, with what was asked for made of it.

    Attributes:
        setting: What the methods' plans read.
        test: The locked suite.
        facts: What the report and the model card say of the data.
        refit: What the plans of a refit read; None where none is asked for.
        embedding_s: Seconds that it took to make.
        understood: What the sources were taken for.
    """

    setting: Setting
    test: TestSuite
    facts: dict[str, Any]
    refit: Setting | None = None
    embedding_s: float = field(default=0.0, compare=False)
    understood: tuple[Understood, ...] = field(default=(), compare=False)

    @property
    def summary(self) -> str:
        """One line on the sentences; empty where there are none, which preparing has already said."""
        if self.setting.get(Sentences) is None:
            return ""
        return (
            "  {sentences:,} sentences of {corpus} embedded by {teacher} ({compute}), "
            "{pairs:,} labelled pairs, store {store}"
        ).format(**self.facts)


@dataclass
class Preparation:
    """Everything that the kinds of data of an experiment share while they are read.

    A kind reads its source and names whatever is made of it; nothing is embedded, mined or sampled unless
    `finish` is asked for something that reads it.

    Attributes:
        experiment: The experiment.
        workspace: Where everything is found and put.
        embedding: Where the teacher runs.
        refresh: Whether corpora are read again.
        read: Keys of the kinds that are read; None reads all.
        found: The experiment's teacher, where it has been found already; None finds it, which reads all of
            its weights or vectors, or asks its endpoint.
        facts: What the report and the model card say of the data.
        words: Text tables whose words students may read.
        data: The prepared data, by `Kind.key`; a kind may add that of another.
        understood: What the sources were taken for.
    """

    experiment: Experiment
    workspace: Workspace
    embedding: Embedding
    refresh: bool = False
    read: Collection[str] | None = None
    found: Teacher | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    words: list[TextTable] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    understood: list[Understood] = field(default_factory=list)
    _once: dict[str, Any] = field(default_factory=dict)
    _decided: dict[str, Store] = field(default_factory=dict)

    @property
    def kinds(self) -> list[DataKind[Any]]:
        """The kinds of data that are read; word vectors come last, since they are those of the others."""
        kinds = (kind for kind in self.experiment.kinds if self.read is None or kind.key in self.read)
        return sorted(kinds, key=lambda kind: kind.key == WordVectors.key)

    @cached_property
    def teacher(self) -> Teacher:
        """The experiment's teacher."""
        teacher = self.found or self.experiment.teacher.finder.resolve()
        self.experiment.of(teacher).check_teacher_prompts()
        for line in self.experiment.teacher.finder.remarks(teacher):
            say(f"  {line}")
        for member in teacher.members:
            for each in kind_of(member.maker).understood(member):
                self._understood(each.say)
        return teacher

    @cached_property
    def _models(self) -> WithTeacher:
        return self.experiment.of(self.teacher)

    def read_by_student(self, role: str) -> TokenLimit:
        """Return the part of a text of a role that the student reads."""
        models, prompts = self._models, self.experiment.student.prompts
        return TokenLimit(models.student.base, models.student_length, prompts.of(role))

    @cached_property
    def compute(self) -> str:
        """The precision of teacher and training: ``float32`` or ``bfloat16``."""
        asked, device = self.experiment.compute, self.embedding.device
        found, own = compute_of(self.workspace, self.teacher, device, asked), resolve_compute(device, asked)
        if found != own:
            say(f"  in {found}, as the teacher's vectors here are; --compute {own} embeds all texts anew")
        return found

    @cached_property
    def runtimes(self) -> Chooser:
        """The chooser of runtimes for the stores."""
        wanted = [choice.runtime for choice in self.experiment.teacher.each]
        where = self.embedding
        return Chooser(wanted, self.workspace, where.device, threads=where.each)

    def store(self, texts: TextTable, role: str = PLAIN) -> TableStore:
        """The teacher's vectors of some texts of a role; naming a store embeds nothing."""
        store = teacher_store(texts, self.teacher, role, lengths=self._models.lengths, compute=self.compute)
        return self.runtimes.choose(store)

    def once(self, read: "Callable[[Preparation], T]") -> T:
        """What a kind reads for its rows and for its evaluators, read once."""
        name = read.__qualname__
        if name not in self._once:
            self._once[name] = self._understood(lambda: read(self))
        known: T = self._once[name]
        return known

    def _understood(self, read: Callable[[], T]) -> T:
        with recorded() as found:
            value = read()
        self.understood += [each for each in found if each not in self.understood]
        return value

    def get(self, kind: type[Kind[P]]) -> P | None:
        """The prepared data of a kind, prepared now if it has not been; None where there is none."""
        if kind.key not in self.data:
            value = next((each for each in self.kinds if each.key == kind.key), None)
            self.data[kind.key] = value and self._understood(lambda: value.reader.prepare(self))
        known: P | None = self.data[kind.key]
        return known

    @cached_property
    def barrier(self) -> Barrier:
        """Texts that are measured with. A kind declares its own, and adds those that it holds out."""
        barrier = Barrier(self.workspace)
        for kind in self.experiment.kinds:
            for evaluator, texts in kind.reader.measured(self).items() if kind in self.kinds else ():
                barrier.declare(evaluator, texts)
        return barrier

    def rows(self, texts: TextTable) -> int:
        """Number of texts of a table."""
        return len(open_texts(self.workspace, texts))

    def row_count(self, examples: Examples) -> int:
        """Number of rows of examples."""
        return count_rows(self.workspace, examples)

    @cached_property
    def pydocs(self) -> Any:
        """The selection from the corpus ``pydocs`` that the experiment's kinds ask for."""
        return read_pydocs(self.experiment, self.workspace, refresh=self.refresh)

    @cached_property
    def _measures(self) -> list[Measure]:
        """Those of the source come last, as agreement selects only where nothing else does."""
        kinds = sorted(self.kinds, key=lambda kind: kind.is_source)
        return [each for kind in kinds for each in kind.reader.measures(self)]

    @cached_property
    def dev(self) -> DevSuite:
        """The suite that selects; a pool of passages stands for the collection that is sampled."""
        measures = [each for each in self._measures if each.dev is not None]
        if not measures:  # every stage selects by a figure of its own
            return DevSuite((), select="")
        figures = {each.name: each.figure for each in measures}
        by = self.experiment.selection.by or measures[0].name
        held_out = next((each.held_out for each in measures if each.held_out is not None), None)
        suite = tuple(each.dev for each in measures if each.dev is not None)
        return DevSuite(suite, select=figures.get(by, ""), held_out=held_out)

    @cached_property
    def test(self) -> TestSuite:
        """The locked suite."""
        own = sorted(self._measures, key=lambda each: each.dev is None)
        return TestSuite(tuple(each.test for each in own))

    @cached_property
    def whole(self) -> Setting:
        """The setting with all of the rows, as it is named before anything of it is made."""
        experiment, models = self.experiment, self._models
        models.check_prompts()
        for line in models.student.remarks(models.common_length):
            say(f"  {line}")
        for kind in self.kinds:
            self.get(type(kind))
        data = {key: value for key, value in self.data.items() if value is not None}
        fine_tuned = any(kind.counts_as == "labels" and kind.key in data for kind in experiment.kinds)
        return Setting(
            teacher=self.teacher.having(lengths=self._models.lengths),
            student=models.student.spec(experiment.seed),
            dev=self.dev,
            data=data,
            teacher_dim=dimension_of(self.teacher) if Sentences.key in data else 0,
            finetune_budget=experiment.budget.settled().finetune if fine_tuned else 0,
            autocast=self.compute,
            **models.stage_settings(),
        )

    @cached_property
    def setting(self) -> Setting:
        """The setting with the share of the rows that is trained on, named like `whole`."""
        return self._completed(cut(self.whole, self.experiment.budget))

    @cached_property
    def refit(self) -> Setting | None:
        """All of the rows with the budgets of a refit, named like `whole`; None where none is asked for."""
        if not self.experiment.budget.refit.asked_for:
            return None
        budget = self.experiment.budget.of_refit()
        longer = dataclasses.replace(
            self.whole,
            distil_budget=budget.distil,
            finetune_budget=budget.finetune if self.whole.finetune_budget else 0,
            evaluations=budget.evaluations,
        )
        return self._completed(longer)

    def _completed(self, setting: Setting) -> Setting:
        """The setting whose kinds have been completed, with its numbers of rows."""
        for kind in self.kinds:
            if (value := setting.get(type(kind))) is not None:
                setting = setting.having(type(kind), kind.reader.complete(value, self))
        return counted(setting, self.workspace)

    def make(self, *asked: object, check: Callable[[Setting], object] | None = None) -> None:
        """Make the stages, suites or stores that are asked for; ``check`` may refuse the setting before."""
        stores = of_kind(Store, missing(asked, self.workspace.finished))
        decided = ((each, self.runtimes.decide(each)) for each in stores)
        self._decided |= {each.fingerprint: chosen for each, chosen in decided if chosen != each}
        if check is not None:
            check(self.settled_setting())
        asked = self.settled(asked)
        stores = reached(Store, *asked)
        if stores:  # `store gc` keeps what an experiment reads.
            note = self.workspace.root / "experiments" / f"{fingerprint(stores)}.json"
            if not has_note(note):
                write_note(note, {"stores": [canonical(part) for part in stores]})
        get(asked, self.workspace, **self.embedding.resources())

    def settled_setting(self) -> Setting:
        """The setting as it is named once the runtimes are decided, with the rows that there are now."""
        return counted(self.settled(self.setting), self.workspace)

    def settled(self, value: T) -> T:
        """The same with the runtimes of the stores that were made; suites search what a pool has sampled."""

        def sampled(pool: Pool) -> object:
            return build_pool(self.workspace, pool) if self.workspace.finished(pool) else pool

        value = swapped(value, Store, lambda store: self._decided.get(store.fingerprint, store))
        return swapped(value, DevSuite, lambda suite: swapped(suite, Pool, sampled))

    def finish(self, *asked: object, check: Callable[[Setting], object] | None = None) -> Prepared:
        """Make what is asked for, and count what there is then; see `make`."""
        began = time.monotonic()
        self.make(*asked, check=check)
        seconds = time.monotonic() - began
        setting = self.settled_setting()
        refit = self.refit and counted(self.settled(self.refit), self.workspace)
        facts, said = self.facts_of(setting), tuple(self.understood)
        publish_notes(self.workspace)
        return Prepared(setting, self.settled(self.test), facts, refit, seconds, said)

    def facts_of(self, setting: Setting | None) -> dict[str, Any]:
        """What the report and the model card say of the data; of a setting also what is trained on."""
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
            **(_trained_on(setting) if setting is not None else {}),
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


def _trained_on(setting: Setting) -> dict[str, Any]:
    """Numbers of sentences and of labelled or translated pairs, and the store of the sentences."""
    sentences, pairs = setting.get(Sentences), setting.get(Pairs) or setting.get(Parallel)
    facts = {"sentences": sentences.rows, "store": sentences.store.fingerprint} if sentences else {}
    return {**facts, **({"pairs": setting.rows_of(pairs.examples)} if pairs else {})}


def teacher_store(
    texts: TextTable, teacher: Teacher, role: str, *, lengths: Sequence[int], compute: str
) -> TableStore:
    """A teacher's vectors of texts of a role: with the prompt that the teacher wants for that role.

    ``lengths`` has the tokens per text that each of several teachers reads.
    """
    stores = []
    for member, length in zip(teacher.members, lengths, strict=True):
        store = Store(texts, member.read_as(role), prompt=prompts_of(member).of(role))
        stores.append(replace(store, max_length=length, compute=compute) if member.checkpoint else store)
    return StoreEnsemble(texts, tuple(stores), teacher.weights) if teacher.weights else stores[0]


def prepare(
    experiment: Experiment, workspace: Workspace, embedding: Embedding, *, refresh: bool = False
) -> Prepared:
    """Read all of an experiment's data, run the teacher once over it, and mine; skip what exists."""
    context = Preparation(experiment, workspace, embedding, refresh)
    return context.finish(context.setting, context.test)


def compute_of(workspace: Workspace, teacher: Teacher, device: str, asked: str) -> str:
    """Settle the precision of teacher and training: ``float32`` or ``bfloat16`` where one is asked for.

    With ``auto`` it is that of the teacher's stores, whichever machine made them, by the notes of earlier
    commands here and on other nodes; without any it is what the device multiplies fastest.
    """
    own = resolve_compute(device, asked)
    if asked != "auto":
        return own
    notes = (read_note(path, "Nothing is lost.") for path in (workspace.root / "experiments").glob("*.json"))
    wanted = json.loads(json.dumps(canonical(teacher)))
    stores = [store["with"] for note in notes if note for store in note["stores"]]
    known = {str(store["compute"]) for store in stores if store.get("teacher") == wanted}
    return own if own in known or not known else known.pop()


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


def documents_of(suite: DevSuite | TestSuite) -> list[Store]:
    """The teacher's vectors of documents that a suite's queries search."""
    return reached(Store, *(each.kwargs.get("documents") for each in suite.evaluators))
