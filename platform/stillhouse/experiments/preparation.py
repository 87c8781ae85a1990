"""From an experiment to a `Setting`: read the corpus, run the teacher once, mine hard negatives."""

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stillhouse.cluster.resources import teacher_actors
from stillhouse.core.artifacts import Workspace, write_json
from stillhouse.core.console import Progress, say
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.experiments.dev_pool import dev_pool, pooled_dev
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fractions import cut
from stillhouse.experiments.negatives import mine_negatives, with_negatives
from stillhouse.experiments.student_kinds import student_spec
from stillhouse.experiments.suites import dev_suite, test_suite
from stillhouse.experiments.task_data import task_and_words, with_varied_rows
from stillhouse.plan.data import Collection, Examples, Mined, Model, Store, TextTable
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import TestSuite

if TYPE_CHECKING:
    from stillhouse.evaluation.pool import Pool
    from stillhouse.teachers.store import StoreReader


@dataclass(frozen=True)
class Prepared:
    """An experiment whose data is read, embedded and mined.

    Attributes:
        setting: What the methods' plans take.
        test: The locked suite.
        facts: What the report and the model card say of the data.
        pool: The sample that dev queries search; None where they search all.
    """

    setting: Setting
    test: TestSuite
    facts: dict[str, Any]
    pool: "Pool | None" = None


@dataclass(frozen=True)
class _Data:
    sentences: TextTable
    dev_sentences: TextTable
    test_sentences: TextTable
    pairs: Examples | None
    dev: Collection | None
    test: Collection | None


@dataclass(frozen=True)
class Embedding:
    """Where and how the teacher runs.

    Attributes:
        actors: Teacher actors in the pool; 0 takes one a GPU, or one a CPU where there is none.
        threads: Threads an actor; fixed, so that the bytes of a store do not depend on the pool.
        local: One plain process without Ray, with a thread a CPU.
        device: ``cpu``, ``cuda``, ….
    """

    actors: int = 0
    threads: int = 1
    local: bool = False
    device: str = "cpu"


def prepare(
    wanted: Experiment, workspace: Workspace, embedding: Embedding, *, refresh: bool = False
) -> Prepared:
    """Read the corpus, run the teacher once over it, mine hard negatives; skip what exists."""
    if wanted.claims:
        from stillhouse.experiments.claim_data import prepare_claims

        return prepare_claims(wanted, workspace, embedding, refresh=refresh)
    if wanted.parallel:
        return _prepare_parallel(wanted, workspace, embedding, refresh=refresh)
    from stillhouse.corpora.tables import open_rows
    from stillhouse.experiments.augmented import check_augmentation
    from stillhouse.teachers.embedding import resolve_compute
    from stillhouse.teachers.store import open_store
    from stillhouse.teachers.weights import resolve_model

    check_augmentation(wanted)
    teacher = resolve_model(wanted.teacher)
    data, added = _augmented(wanted, workspace, _read(wanted, workspace, refresh=refresh), embedding.device)
    compute = resolve_compute(embedding.device, wanted.compute)

    def store(texts: TextTable) -> Store:
        return Store(texts=texts, teacher=teacher, max_length=wanted.max_length, compute=compute)

    sentences, dev, test = store(data.sentences), store(data.dev_sentences), store(data.test_sentences)
    pairs = _labelled_file(wanted, workspace, refresh=refresh) if wanted.labelled else data.pairs
    labelled = with_negatives(wanted, pairs, store)
    rule = labelled.origin if labelled else None
    mined_from = [rule.queries, rule.passages] if isinstance(rule, Mined) else []
    pool = dev_pool(wanted, data.dev, store)
    pooled = [pool.queries, pool.passages] if pool else []
    embed_stores([sentences, *mined_from, dev, test, *pooled], workspace, embedding)
    if labelled and mined_from:
        mine_negatives(workspace, labelled, embedding)
    told = open_store(workspace, sentences)
    task, words, final = task_and_words(wanted, workspace, data.sentences)
    whole = Setting(
        **_shared(wanted, sentences, told),
        dev=dev_suite(pooled_dev(workspace, pool) if pool else data.dev, dev, wanted),
        labelled=labelled,
        labelled_stores={name: store(table) for name, table in labelled.columns.items()} if labelled else {},
        finetune_budget=wanted.finetune_budget if labelled or task else 0,
        words=words,
        task=task,
    )
    setting = cut(whole, wanted)
    setting = replace(setting, task=with_varied_rows(setting.task, wanted, workspace))
    kept = setting.labelled
    pairs_left = len(next(iter(open_rows(workspace, kept).values()))) if kept else 0
    facts = _facts(wanted, wanted.corpus, setting, pairs_left) | ({"task": wanted.task} if task else {})
    final_suite = TestSuite(test_suite(data.test, test, wanted).evaluators + final)
    return Prepared(setting, final_suite, facts | added, pool)


def _prepare_parallel(
    wanted: Experiment, workspace: Workspace, embedding: Embedding, *, refresh: bool
) -> Prepared:
    """Sentences with their translations: the teacher embeds the sources, translation accuracy selects."""
    from stillhouse.corpora.tables import open_rows
    from stillhouse.experiments.parallel_data import parallel_suites, read_parallel_data
    from stillhouse.teachers.embedding import resolve_compute
    from stillhouse.teachers.store import open_store
    from stillhouse.teachers.weights import resolve_model

    teacher, compute = resolve_model(wanted.teacher), resolve_compute(embedding.device, wanted.compute)
    train, dev, test = read_parallel_data(
        workspace,
        wanted.parallel,
        limit=wanted.parallel_pairs,
        held_out=wanted.held_out,
        refresh=refresh,
    )
    sources = Store(train.columns["source"], teacher, max_length=wanted.max_length, compute=compute)
    embed_stores([sources], workspace, embedding)
    told = open_store(workspace, sources)
    steering, final = parallel_suites(dev, test, wanted.data_root, wanted.select)
    whole = Setting(**_shared(wanted, sources, told), dev=steering, parallel=train, parallel_store=sources)
    setting = cut(whole, wanted)
    assert setting.parallel is not None
    pairs = len(open_rows(workspace, setting.parallel)["source"])
    return Prepared(setting, final, _facts(wanted, wanted.parallel, setting, pairs))


def _shared(wanted: Experiment, sentences: Store, told: "StoreReader") -> dict[str, Any]:
    """What every setting takes from an experiment and its embedded sentences."""
    assert isinstance(sentences.teacher, Model), "an experiment's teacher is a published model"
    return {
        "teacher": sentences.teacher,
        "student": student_spec(wanted, sentences.teacher),
        "sentences": sentences,
        "sentence_rows": len(told),
        "teacher_dim": told.dim,
        "autocast": sentences.compute,
        **as_wanted(wanted),
    }


def as_wanted(wanted: Experiment) -> dict[str, Any]:
    """What a setting takes from an experiment as it stands."""
    names = ("distil_budget", "evaluations", "patience", "max_length", "seed")
    return {name: getattr(wanted, name) for name in names}


def _facts(wanted: Experiment, corpus: str, setting: Setting, pairs: int) -> dict[str, Any]:
    """What the report and the model card say of the data."""
    share = {"fraction": wanted.fraction, "fraction_of": wanted.fraction_of} if wanted.fraction < 1 else {}
    return {
        "corpus": corpus,
        "sentences": setting.sentence_rows,
        "pairs": pairs,
        **share,
        "teacher": setting.teacher.name,
        "store": setting.sentences.fingerprint,
        "compute": setting.sentences.compute,
    }


def _read(wanted: Experiment, workspace: Workspace, *, refresh: bool) -> _Data:
    if wanted.corpus == "pydocs":
        return read_pydocs(wanted, workspace, refresh=refresh)
    from stillhouse.corpora.reading.corpus import ReadOptions
    from stillhouse.corpora.reading.ingest import ingest
    from stillhouse.corpora.splits import split_table

    options = ReadOptions(
        column=wanted.column or None,
        split_sentences=wanted.split_sentences or None,
        min_words=wanted.min_words,
        max_words=wanted.max_words,
        deduplicate=wanted.deduplicate,
        encoding=wanted.encoding,
        limit=wanted.sentences or None,
    )
    table = ingest(workspace, wanted.corpus, options, refresh=refresh)
    train, dev, test = split_table(workspace, table, held_out=wanted.held_out)
    return _Data(train, dev, test, None, None, None)


def _augmented(
    wanted: Experiment, workspace: Workspace, data: _Data, device: str
) -> tuple[_Data, dict[str, int]]:
    """The data with copies of the training sentences, where they are asked for, and what became of them."""
    from stillhouse.experiments.augmented import augment_table

    searches = [search for search in (data.dev, data.test) if search]
    held_out = [data.dev_sentences, data.test_sentences]
    held_out += [table for search in searches for table in (search.queries, search.passages)]
    table, counts = augment_table(wanted, workspace, data.sentences, held_out, device)
    return replace(data, sentences=table), counts


def _labelled_file(wanted: Experiment, workspace: Workspace, *, refresh: bool) -> Examples:
    from stillhouse.corpora.reading.labelled import read_labelled

    return read_labelled(
        workspace, wanted.labelled, negatives=wanted.negatives, limit=wanted.pairs, refresh=refresh
    )


def read_pydocs(wanted: Experiment, workspace: Workspace, *, refresh: bool) -> _Data:
    """The selection from `pydocs` that an experiment asks for."""
    from stillhouse.corpora.pydocs.selection import pydocs

    docs = pydocs(
        workspace,
        sentences=wanted.sentences or None,
        pairs=wanted.pairs or None,
        dev_queries=wanted.dev_queries,
        dev_passages=wanted.dev_passages,
        test_queries=wanted.test_queries,
        test_passages=wanted.test_passages,
        held_out_sentences=wanted.held_out,
        refresh=refresh,
        progress=Progress("reading docstrings", "files"),
    )
    pairs = docs.pairs if wanted.pairs and wanted.finetune_budget else None
    return _Data(docs.sentences, docs.dev_sentences, docs.test_sentences, pairs, docs.dev, docs.test)


def embed_stores(stores: list[Store], workspace: Workspace, embedding: Embedding) -> None:
    """Run the teacher for the stores that are missing, and note that an experiment reads them all."""
    from stillhouse.teachers.embedding import build_stores

    # What an experiment reads is not for `store gc` to take.
    note = workspace.root / "experiments" / f"{fingerprint(stores)}.json"
    if not note.exists():
        write_json(note, {"stores": [canonical(part) for part in stores]})
    missing = [store for store in stores if not workspace.finished(store)]
    if not missing:
        return
    say(f"  starting the teacher for {', '.join(store.label for store in missing)}")
    build_stores(
        workspace,
        missing,
        actors=embedding.actors or (1 if embedding.local else teacher_actors(embedding.device)),
        threads=(os.cpu_count() or 1) if embedding.local else embedding.threads,
        local=embedding.local,
        device=embedding.device,
        progress=Progress("embedding", "texts"),
    )
