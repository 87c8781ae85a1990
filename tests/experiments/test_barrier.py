"""What measures does not train: every evaluator's texts against every kind of training data, by sentence."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from small_experiment import sentences

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.barrier import Barrier, is_telling
from stillhouse.corpora.reading.cleaning import dedup_key, split_sentences
from stillhouse.corpora.tables import open_rows, open_texts, write_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Preparation
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.values.data import Examples, TextTable

TEXTS = sentences(400, 3)
PIECES = [
    [f"the note {at} of number {row} says {TEXTS[(5 * row + at) % 400]}" for at in range(4)]
    for row in range(120)
]
DOCUMENTS = [" ".join(f"{piece.capitalize()}." for piece in ("see also", *pieces)) for pieces in PIECES]
Read = Callable[..., Preparation]


@pytest.fixture
def read(experiment: Experiment, workspace: Workspace) -> Read:
    """Read the data of an experiment with some changes; nothing is embedded."""

    def of(**changes: Any) -> Preparation:
        given = {name.replace("__", "."): value for name, value in changes.items()}
        return Preparation(changed(experiment, given), workspace, Embedding(local=True))

    return of


def texts_of(context: Preparation, *tables: TextTable) -> list[str]:
    return [text for table in tables for text in open_texts(context.workspace, table)]


def trained_on(context: Preparation) -> list[str]:
    """The sentences to distil on, and those that are held out of the same corpus."""
    data = context.get(Sentences)
    assert data is not None
    return texts_of(context, data.store.texts)


def row_texts(context: Preparation, examples: Examples) -> set[tuple[str, ...]]:
    rows = open_rows(context.workspace, examples)
    columns = [open_texts(context.workspace, examples.columns[name])[ids] for name, ids in rows.items()]
    return set(zip(*columns, strict=True))


def write_lines(path: Path, rows: Iterable[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture
def judged(tmp_path: Path) -> str:
    """A collection of 120 passages, of which the first 60 are judged, half of them in dev."""
    folder = tmp_path / "own"
    write_lines(folder / "corpus.jsonl", ({"_id": f"d{i}", "text": text} for i, text in enumerate(DOCUMENTS)))
    write_lines(folder / "queries.jsonl", ({"_id": f"q{i}", "text": f"what is {i}"} for i in range(60)))
    for name, rows in (("dev", range(30)), ("test", range(30, 60))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in rows)]
        write_lines(folder / "qrels" / f"{name}.tsv", lines)
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({"sentences__split": True}, 60 * 5 + 60),
        ({"sentences__longer": "pack", "sentences__max_words": 18, "max_length": 64}, 60),
        ({"sentences__longer": "cut", "sentences__max_words": 9, "max_length": 64}, 60),
    ],
)
def test_no_piece_of_a_judged_passage_is_trained_on(
    changes: dict[str, Any], left_out: int, read: Read, judged: str, tmp_path: Path
) -> None:
    corpus = write_lines(tmp_path / "texts.jsonl", ({"text": text} for text in DOCUMENTS))
    context = read(sentences__corpus=corpus, collection__path=judged, sentences__held_out=5, **changes)
    train, judged_pieces = trained_on(context), [piece for pieces in PIECES[:60] for piece in pieces]
    begun = [piece[: piece.index(" says") + 5] for piece in judged_pieces]
    assert len(train) >= 40 and not [text for text in train if any(part in text.lower() for part in begun)]
    assert context.barrier.left_out["texts"]["search"] == left_out
    again = read(sentences__corpus=corpus, collection__path=judged, sentences__held_out=5, **changes)
    assert trained_on(again) == train
    assert again.barrier.left_out == context.barrier.left_out, "from the cache too"


def write_sts(root: Path) -> dict[str, list[str]]:
    """STS-B of both splits and SICK of dev; return the sentences of each split."""
    texts = {split: TEXTS[start : start + 40] for split, start in (("dev", 100), ("test", 200))}
    for split, found in texts.items():
        pairs = zip(found[::2], found[1::2], strict=True)
        lines = (f"g\tf\t2012\t{at}\t2.5\t{a}\t{b}" for at, (a, b) in enumerate(pairs))
        write_lines(root / "STSBenchmark" / f"sts-{split}.csv", lines)
    return texts


def test_no_sentence_of_sts_is_trained_on(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = write_sts(tmp_path / "sts")
    measured = [*texts["dev"], *texts["test"]]
    told = [text for text in measured if is_telling(text)]
    inside = [f"Here is a text. {text.capitalize()}! It goes on." for text in told]
    rows = [*TEXTS[:90], *(f"  {text.upper()} ." for text in measured), *inside]
    corpus = write_lines(tmp_path / "texts.jsonl", ({"text": text} for text in rows))
    context = read(sentences__corpus=corpus, selection__data_root=str(tmp_path / "sts"))
    train, keys = trained_on(context), {dedup_key(text) for text in measured}
    parts = [part for text in train for part in (text, *split_sentences(text))]
    assert len(train) >= 50 and not [part for part in parts if dedup_key(part) in keys]
    assert context.barrier.left_out["texts"]["sts"] == len(measured) + len(told)
    assert f"texts left out, since they measure: {len(measured) + len(told)} (sts" in capsys.readouterr().err


def test_labelled_pairs_name_no_held_out_sentence(read: Read, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "texts.txt", TEXTS[:120])
    changes = {"sentences__corpus": corpus, "budget__finetune": 8, "pairs__negatives": 0}
    context = read(**changes)
    trained_on(context)
    held_out = texts_of(context, *context.barrier.tables["agreement"])
    telling = next(text for text in held_out if is_telling(text))
    pairs = [(TEXTS[300 + at], TEXTS[340 + at]) for at in range(20)]
    barred = [(held_out[0].upper(), "an answer"), ("a query", f"Indeed. {telling.title()}. So it is.")]
    rows = ({"query": query, "passage": passage} for query, passage in [*pairs, *barred])
    context = read(**changes, pairs__path=write_lines(tmp_path / "pairs.jsonl", rows))
    trained_on(context)
    kept = context.get(Pairs)
    assert kept is not None and row_texts(context, kept.examples) == {(p, q) for q, p in pairs}
    assert context.barrier.left_out["pairs"] == {"agreement": 2}


def test_a_task_is_trained_on_no_row_that_is_measured(read: Read, tmp_path: Path) -> None:
    rows = {
        "train": TEXTS[150:190],
        "dev": [TEXTS[189], *TEXTS[190:195]],
        "test": [TEXTS[150], *TEXTS[195:200]],
    }
    for split, texts in rows.items():
        write_lines(tmp_path / "sst" / f"{split}.tsv", ["sentence\tlabel", *(f"{text}\t1" for text in texts)])
    corpus = write_lines(tmp_path / "texts.txt", [*TEXTS[:90], *TEXTS[190:200]])
    context = read(
        **{"task__name": "sst2", "task__root": str(tmp_path / "sst"), "budget__finetune": 8},
        sentences__corpus=corpus,
    )
    train = trained_on(context)
    task = context.get(LabelledTask)
    assert task is not None and row_texts(context, task.examples) == {(text,) for text in TEXTS[151:189]}
    assert not set(train) & set(TEXTS[190:200])
    assert context.barrier.left_out == {"texts": Counter(sst2=10), "rows": Counter(sst2=2)}


def test_a_pair_of_a_task_is_compared_whole(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Published pairs of train and dev share questions; only the pair, in either order, is measured."""
    pairs = list(zip(TEXTS[200:210], TEXTS[210:220], strict=True))
    rows = {"train": pairs, "dev": [(pairs[0][0], TEXTS[220]), (pairs[1][1], pairs[1][0]), pairs[2]]}
    for split, found in rows.items():
        lines = ["question1\tquestion2\tis_duplicate", *(f"{first}\t{second}\t1" for first, second in found)]
        write_lines(tmp_path / "qqp" / f"{split}.tsv", lines)
    context = read(
        **{"task__name": "qqp", "task__root": str(tmp_path / "qqp"), "budget__finetune": 4},
        sentences__corpus=write_lines(tmp_path / "texts.txt", TEXTS[:90]),
    )
    task = context.get(LabelledTask)
    assert task is not None and row_texts(context, task.examples) == {
        (second, first) for first, second in (pairs[0], *pairs[3:])
    }
    assert context.barrier.left_out["rows"] == Counter(qqp=2)
    said = " ".join(capsys.readouterr().err.split())
    assert f"text <- question1 {pairs[0][0]} other <- question2 {pairs[0][1]}" in said


def test_translations_are_held_out_against_published_sets(
    experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    root, pairs = tmp_path / "data", [(text, f"das {text} und mehr") for text in TEXTS[:100]]
    for language in ("en", "de"):
        write_lines(root / "stsb_multi_mt" / f"stsb-{language}-dev.csv", ["one,two,1.5", "three,four,2.5"])
    write_lines(root / "sts2017" / "STS.input.track5.en-en.txt", [f"{pairs[3][0].title()}.\tanother"])
    write_lines(root / "sts2017" / "STS.gs.track5.en-en.txt", ["2.0"])
    for suffix, texts in (("deu", [pairs[7][1], "zwei"]), ("eng", ["one", "two"])):
        write_lines(root / "parallel" / "laser_tatoeba1000" / f"tatoeba.deu-eng.{suffix}", texts)
    file = write_lines(tmp_path / "de.tsv", (f"{source}\t{target}" for source, target in pairs))
    given = {"parallel.corpora": f"de={file}", "parallel.held_out": 5, "selection.data_root": str(root)}
    context = Preparation(changed(experiment, {**given, "sentences": None}), workspace, Embedding(local=True))
    data = context.get(Parallel)
    assert data is not None
    kept, sources = row_texts(context, data.examples), trained_on(context)
    held = {text for table in context.barrier.tables["translation"] for text in texts_of(context, table)}
    assert len(held) == 20 and kept == {pair for pair in pairs if not {*pair} & held} - {pairs[3], pairs[7]}
    assert not {*sources} & {*held, pairs[3][0]}, "nor are they sentences to distil on"
    assert (
        sum(context.barrier.left_out["pairs"].values()) == context.barrier.left_out["pairs"]["crosslingual"]
    )


@pytest.mark.parametrize(
    ("rest", "message"), [(0, "measured by search"), (30, "search 60. Give other texts")]
)
def test_nothing_left_to_train_on_is_refused_by_evaluator(
    rest: int, message: str, read: Read, judged: str, tmp_path: Path
) -> None:
    rows = ({"text": text} for text in DOCUMENTS[: 60 + rest])
    corpus = write_lines(tmp_path / "texts.jsonl", rows)
    with pytest.raises(BadInput, match=message):
        trained_on(read(sentences__corpus=corpus, collection__path=judged))


def test_a_very_short_sentence_bars_no_longer_text(workspace: Workspace) -> None:
    barrier = Barrier(workspace)
    assert barrier.bars("anything") == ""
    texts = ["See also. The old bridge crosses the river.", "今天天气很好。我们去公园散步吧！好。"]
    barrier.declare("search", [write_texts(workspace, "measured", texts)])
    barred = ["see also", "First. THE OLD BRIDGE CROSSES THE RIVER!", texts[0].upper()]
    free = ["See also. A new one.", "The old bridge crosses the river now.", "好。好。", ""]
    assert [barrier.bars(text) for text in [*barred, *free]] == ["search"] * 3 + [""] * 4


def test_texts_are_divided_by_the_rules_of_their_language(workspace: Workspace) -> None:
    """In German a number with a full stop does not end a sentence."""
    barrier = Barrier(workspace)
    barrier.declare("search", ["Der 3. Mai war ein Dienstag. Sie ging heim und sie war nicht da."])
    assert barrier.bars("Der 3. Mai war ein Dienstag.") == "search"
    assert barrier.bars("Vorbei. Der 3. Mai war ein Dienstag.", "de") == "search"
