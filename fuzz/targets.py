"""What is fuzzed: every reader of the package, with valid files that the inputs are made from."""

import contextlib
import functools
import gzip
import io
import itertools
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import torch

from stillhouse.cli.main import parser
from stillhouse.cli.parsed_values import experiment_from
from stillhouse.core.artifacts import (
    Workspace,
    mapped_array,
    read_json,
    read_manifest,
    sha256_of,
    whole_array,
    write_manifest,
)
from stillhouse.core.databases import damage_of_database
from stillhouse.core.errors import BadInput
from stillhouse.core.integrity import damage_of, intact, is_whole
from stillhouse.core.notes import read_note, write_note
from stillhouse.core.tensors import read_tensors
from stillhouse.corpora.published.fever import fever_files, read_fever
from stillhouse.corpora.published.glue import read_task, resolve_task
from stillhouse.corpora.published.judged import find_collections
from stillhouse.corpora.published.msmarco import marco_pairs
from stillhouse.corpora.published.sentence_tasks import read_tasks, task_files
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts
from stillhouse.corpora.reading.labelled import read_labelled, read_scored
from stillhouse.corpora.reading.parallel import ParallelCorpus, read_parallel
from stillhouse.corpora.reading.row_limit import Taking
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.word_vector_files import write_vectors
from stillhouse.corpora.wordnet import read_wordnet
from stillhouse.evaluation.trec_runs import read_run
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.search.experiment_file import load_runs, load_summary
from stillhouse.search.space import load_space
from stillhouse.teachers.untrusted import check_weights
from stillhouse.teachers.vector_files import find_vectors
from stillhouse.tracking.journal import Journal
from stillhouse.training import checkpoint
from stillhouse.training.metrics_log import MetricsLog, read_lines

REPOSITORY = Path(__file__).resolve().parent.parent
TEXTS = ("The cat sat on the mat.", "Größe, Preis: 3 €", 'She said "no".', "猫が座った", "a\tb", "x")


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Attributes:
        name: Its name.
        seeds: Valid sets of files, each from names to contents; one file of a set is changed per input.
        read: Reads the folder of a set.
        command_line: Whether the files' contents are words of a command line, one per line.
    """

    name: str
    seeds: tuple[Mapping[str, bytes], ...]
    read: Callable[[Path], object]
    command_line: bool = False


@functools.cache
def targets() -> tuple[Target, ...]:
    """All targets; the valid files are made once."""
    return (*_corpora(), *_collections(), *_experiments(), *_workspace(), *_weights(), _commands())


def _corpora() -> Iterable[Target]:
    plain = "\n".join(TEXTS).encode()
    objects = b"".join(json.dumps({"id": i, "text": t}).encode() + b"\n" for i, t in enumerate(TEXTS))
    table = pa.table({"id": list(range(len(TEXTS))), "text": list(TEXTS)})
    wiki = f'<doc id="1" url="u" title="Cat">\nCat\n\n{TEXTS[0]} {TEXTS[2]}\n</doc>\n'.encode()
    files: list[Mapping[str, bytes]] = [
        {"a.txt": plain},
        {"a.txt.gz": gzip.compress(plain, mtime=0)},
        {"a.jsonl": objects},
        {"a.csv": b'id,text\n1,"a, b"\n2,"two\nlines"\n3,plain\n'},
        {"a.tsv": b"id\ttext\n1\ta b\n2\tc\n"},
        {"a.parquet": _parquet(table)},
        {"wiki_00": wiki},
        {"collection.tsv": b"0\tfirst passage\n1\tsecond passage\n"},
    ]
    yield Target("corpus", tuple(files), lambda folder: _all(read_texts(str(folder), ReadOptions())))
    encodings = ("utf-16", "utf-16-le", "utf-32", "latin-1", "gb18030")
    others = ({f"a.{name}": plain.decode().encode(name, "replace")} for name in encodings)
    yield Target("corpus in another encoding", tuple(others), _read_encoded)
    pairs: list[Mapping[str, Any]] = [
        {"query": "q", "passage": "p", "negatives": ["n", "m"]},
        {"query": "r", "passage": "s"},
    ]
    labelled = (
        {"a.jsonl": _json_lines(pairs)},
        {"a.csv": b"sentence1,sentence2,label\na,b,entailment\na,c,contradiction\n"},
        {"a.tsv": b"anchor\tpositive\nx\ty\n"},
        {"a.parquet": _parquet(pa.table({"query": ["a"], "passage": ["b"]}))},
    )
    yield Target("labelled text", labelled, lambda folder: read_labelled(_beside(folder), str(folder)))
    marco = {
        "collection.tsv": b"0\tone\n1\ttwo\n",
        "queries.train.tsv": b"7\twhat\n8\twho\n",
        "qrels.train.tsv": b"7\t0\t0\t1\n8\t0\t1\t1\n",
    }
    yield Target("MS MARCO", (marco,), _read_marco)
    aligned = {"a.en": b"one\ntwo\n", "a.de": b"eins\nzwei\n"}
    yield Target(
        "aligned files",
        (aligned,),
        lambda folder: _all(read_parallel(ParallelCorpus(str(folder / "a.en"), str(folder / "a.de")))),
    )
    yield Target(
        "translations in columns",
        ({"a.tsv": b"en\tde\none\teins\ntwo\tzwei\n"},),
        lambda folder: _all(
            read_parallel(
                ParallelCorpus(
                    str(folder / "a.tsv"), schema=Schema(columns="source: en, target: de", owner="parallel")
                )
            )
        ),
    )
    scored = (
        {"a.jsonl": _json_lines([{"query": "q", "positive": "p", "negative": "n", "score": [3.0, 1.5]}])},
        {"a.jsonl": _json_lines([{"query": "q", "positive": "p", "negative": "n", "label": 1.5}])},
        {
            "a.jsonl": _json_lines(
                [{"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [1], "neg_scores": [0.5]}]
            )
        },
        {
            "a.jsonl": _json_lines(
                [
                    {
                        "query": "q",
                        "positive_passages": [{"title": "t", "text": "p", "score": 2}],
                        "negative_passages": [{"text": "n", "score": 1}],
                    }
                ]
            )
        },
    )
    yield Target("scored text", scored, lambda folder: read_scored(_beside(folder), str(folder / "a.jsonl")))
    words = b"3 2\ncat 0.5 1\ndog -1 2e-3\n[x] 0 1\n"
    yield Target(
        "word vectors",
        ({"v.txt": words}, {"v.txt": words.partition(b"\n")[2]}, {"v.txt.gz": gzip.compress(words, mtime=0)}),
        lambda folder: write_vectors(next(folder.iterdir()), folder / "out"),
    )
    synsets = (
        b"02124272-n:\n  members:\n  - cat\n  - true cat\n  partOfSpeech: n\n  definition:\n  - feline\n"
    )
    yield Target("WordNet", ({"noun.act.yaml": synsets},), lambda folder: read_wordnet(folder))


def _collections() -> Iterable[Target]:
    beir = {
        "corpus.jsonl": _json_lines([{"_id": "d1", "title": "T", "text": "x"}, {"_id": "d2", "text": "y"}]),
        "queries.jsonl": _json_lines([{"_id": "q1", "text": "what"}]),
        "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    }
    trec = {
        "doc-text.trec": b"<DOC>\n<DOCNO>1</DOCNO>\none\n</DOC>\n<DOC>\n<DOCNO>2</DOCNO>\ntwo\n</DOC>\n",
        "query-text.trec": b"<top>\n<num>1</num><title>\nwhat\n</title>\n</top>\n",
        "qrels": b"1 0 1 1\n",
    }
    cacm = {
        "cacm.all": b".I 1\n.T\nA title\n.W\nAn abstract\n.I 2\n.T\nOther\n",
        "query.text": b".I 1\n.W\nwhat is this\n",
        "qrels.text": b"01 1 0 0\n",
    }
    marco = {
        "collection.tsv": b"0\tone\n1\ttwo\n",
        "queries.dev.small.tsv": b"7\twhat\n",
        "qrels.dev.small.tsv": b"7\t0\t0\t1\n",
    }
    csvs = {
        "corpus_train.csv": b"doc_id,title,abstract,structured\n1,T,\"['One.', 'Two.']\",False\n",
        "claims_train.csv": b"id,claim\n5,Something is so.\n",
        "qrels/train.tsv": b"query-id\tcorpus-id\tscore\n5\t1\t1\n",
    }
    folders = tuple(
        {f"retrieval/c/{name}": content for name, content in each.items()}
        for each in (beir, trec, cacm, marco, csvs)
    )
    yield Target("test collections", folders, _read_collections)
    run = b"q1 Q0 d1 1 2.5 x\nq1 Q0 d2 2 1.5 x\nq2 Q0 d2 1 0.5 x\n"
    yield Target("runs", ({"a.trec": run},), lambda folder: read_run(folder / "a.trec"))
    claims = [{"id": 1, "claim": "A is b.", "label": "SUPPORTS", "evidence": [[[0, 0, "A_page", 0]]]}]
    pages = [{"id": "A_page", "text": "A is b indeed.", "lines": "0\tA is b indeed."}]
    fever = {"train.jsonl": _json_lines(claims), "wiki-pages/wiki-001.jsonl": _json_lines(pages)}
    yield Target("FEVER", (fever,), lambda folder: read_fever(*fever_files(str(folder))))
    glue = (
        {"train.tsv": b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n"},
        {"train.json": b'[{"sentence": "first: a\\nsecond: b", "label": "entailment"}]'},
    )
    yield Target("GLUE", glue, lambda folder: read_task(resolve_task("rte", folder, "train")))
    polar = {"CR/custrev.pos": b"good one\nfine\n", "CR/custrev.neg": b"bad one\nworse\n"}
    yield Target("sentence tasks", (polar,), _read_sentence_tasks)


def _extended(path: Path) -> dict[str, bytes]:
    """Return the files that an experiment file takes fields from, by name."""
    found = re.search(rb"^extends: (\S+)", path.read_bytes(), re.MULTILINE)
    if found is None:
        return {}
    base = path.with_name(found[1].decode())
    return {base.name: base.read_bytes(), **_extended(base)}


def _experiments() -> Iterable[Target]:
    paths = sorted((REPOSITORY / "search_spaces").rglob("*.yaml"))
    seeds = tuple({"a.yaml": path.read_bytes(), **_extended(path)} for path in paths)
    yield Target(
        "experiment files", seeds, lambda folder: load_runs(folder / "a.yaml", data_root=str(folder))
    )
    own = tuple(files for files in seeds if b"\nsearch:" in files["a.yaml"])
    yield Target("search spaces", own, lambda folder: load_space(folder / "a.yaml", data_root=str(folder)))
    yield Target("summaries", seeds, lambda folder: load_summary(folder / "a.yaml"))
    fields = {
        "set.json": json.dumps(
            {
                "teacher.name": "x",
                "sentences.count": 100,
                "pairs.mining.range_max": 50,
                "budget.refit.top": 2,
                "student.layers": "0,2",
                "seed": 3,
                "max_length": 64,
                "sentences.sources": [{"corpus": "a", "share": 0.5}],
            }
        ).encode()
    }
    yield Target("fields", (fields,), _read_fields)


def _workspace() -> Iterable[Target]:
    manifest = _written(_write_manifest)
    yield Target("manifests", (manifest,), _read_manifests)
    note = _written(lambda folder: write_note(folder / "n.json", {"a": [1, {"b": None}], "c": "d"}))
    yield Target("notes", (note,), _read_notes)
    yield Target("journals", (_written(_write_journal),), _read_journal)
    yield Target("metrics logs", (_written(_write_metrics),), _read_metrics)
    yield Target("databases", (_written(_write_database),), lambda f: damage_of_database(f / "study.db"))
    arrays = _written(_write_arrays)
    yield Target("arrays", (arrays,), _read_arrays)


def _weights() -> Iterable[Target]:
    stored = _written(lambda folder: checkpoint.save_weights(folder / "w.safetensors", _tensors()))
    yield Target("weights", (stored,), _read_weights)
    saved = _written(_write_checkpoints)
    yield Target("checkpoints", (saved,), _read_checkpoints)
    table = pa.table({"text": ["a", "b"], "embedding": [[1.0, 0.0], [0.6, 0.8]]})
    stream = io.BytesIO()
    with ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    vectors = ({"v.parquet": _parquet(table)}, {"v.arrow": stream.getvalue()})
    yield Target("vectors from elsewhere", vectors, lambda folder: find_vectors(str(folder)))


def _commands() -> Target:
    lines = (
        "train ibkd --local --set distil_learning_rate=3e-4 --workers 2 --preset repo --fractions 1,0.3",
        "sweep ibkd --trials 30 --corpus a.txt --objectives quality,size --concurrency 2 --section space",
        "sweep mse --sampler random --scheduler none --cpus-per-worker 2 --gpus-per-worker 0.5 --refit 100",
        "embed --corpus a.jsonl --column body --teacher x --max-length 64 --set seed=3",
        "evaluate model --suite sts,retrieval --data d --final --against other --json out.json",
        "mine --labelled pairs.jsonl --negatives 4 --output mined.jsonl",
        "export stage out --format onnx",
        "doctor ckd --teacher e5 --set temperature=0.01 --root r",
        "verify --json v.json",
        "store gc --root r",
        "fields pairs.mining",
    )
    seeds = tuple({"words": "\n".join(line.split()).encode()} for line in lines)
    return Target("command lines", seeds, _read_command, command_line=True)


def _read_command(folder: Path) -> None:
    words = (folder / "words").read_bytes().decode("utf-8", "surrogateescape").split("\n")
    try:
        options = _parser().parse_args(words)
    except SystemExit as ended:
        assert ended.code in (0, 2), f"the parser ended with {ended.code}"
        return
    if hasattr(options, "set"):
        experiment_from(options)


@functools.cache
def _parser() -> Any:
    return parser()


def _read_encoded(folder: Path) -> None:
    (path,) = folder.iterdir()
    _all(read_texts(str(path), ReadOptions(encoding=path.suffix[1:], longer="pack")))


def _read_marco(folder: Path) -> None:
    found = marco_pairs(str(folder))
    if found is not None:
        _all(found.rows(Taking(None)))


def _read_collections(folder: Path) -> None:
    for final in (False, True):
        with contextlib.suppress(BadInput):  # A collection may lack the split.
            for collection in find_collections(str(folder), final=final)[0]:
                _all(collection.stream())


def _read_sentence_tasks(folder: Path) -> None:
    files = task_files(str(folder), "CR", final=True)
    if files is not None:
        read_tasks("CR", files)


def _read_fields(folder: Path) -> None:
    try:
        changes = json.loads((folder / "set.json").read_bytes())
    except (ValueError, RecursionError):
        return  # what is no JSON comes from no command line
    if isinstance(changes, dict):
        changed(Experiment(), changes)


def _write_manifest(folder: Path) -> None:
    part = folder / "part-00000.arrow"
    for path in (part, folder / "a.npy"):
        path.write_bytes(b"some data")
    shards = [{"name": part.name, "rows": 2, "bytes": 9, "sha256": sha256_of(part)}]
    write_manifest(folder, {"rows": 2, "shards": shards, "metrics": {"m": 0.5}})


def _read_manifests(folder: Path) -> None:
    is_whole(folder, contents=True)
    damage_of(folder)
    with contextlib.suppress(FileNotFoundError):
        intact(folder / "a.npy")
    read_manifest(folder)


def _read_notes(folder: Path) -> None:
    read_note(folder / "n.json", "It is made again.")
    read_json(folder / "n.json")


def _write_journal(folder: Path) -> None:
    journal = Journal(folder)
    journal.append(do="run", key=["s", "trial-0001"], name="t", parameters={"a": 1}, tags={}, documents={})
    journal.append(do="metrics", key=["s", "trial-0001"], rows=[[1, 5, {"m": 0.5}]])
    journal.append(do="state", key=["s", "trial-0001"], state="finished")
    journal.confirm("sqlite:///x", 40)
    journal.keep_version("n", "w", "3")
    journal.close()


def _read_journal(folder: Path) -> None:
    journal = Journal(folder)
    try:
        journal.read(0)
        journal.confirmed("sqlite:///x")
        journal.versions()
        journal.append(do="state", key=["s", "trial-0001"], state="running")
    finally:
        journal.close()


def _write_metrics(folder: Path) -> None:
    log = MetricsLog(folder / "metrics.jsonl")
    for step in range(1, 4):
        log.append(step, 8 * step, {"loss": 1.0 / step})
    log.close()


def _read_metrics(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    _all(read_lines(path))
    MetricsLog(path, after=2).close()
    steps = [line["step"] for line in read_lines(path)]
    assert all(step <= 2 for step in steps), f"lines after the checkpoint are kept: {steps}"


def _write_database(folder: Path) -> None:
    with sqlite3.connect(folder / "study.db") as database:
        database.execute("CREATE TABLE trials (number INTEGER PRIMARY KEY, state TEXT)")
        database.executemany("INSERT INTO trials VALUES (?, ?)", [(n, "COMPLETE") for n in range(200)])
    database.close()


def _write_arrays(folder: Path) -> None:
    np.save(folder / "a.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    np.save(folder / "s.npy", np.arange(5))


def _read_arrays(folder: Path) -> None:
    whole_array(folder / "s.npy")
    mapped_array(folder / "a.npy")


def _read_weights(folder: Path) -> None:
    check_weights(folder / "w.safetensors")
    read_tensors(folder / "w.safetensors")


def _tensors() -> dict[str, torch.Tensor]:
    return {"a.weight": torch.ones(3, 2), "b": torch.zeros(4, dtype=torch.bfloat16)}


def _write_checkpoints(folder: Path) -> None:
    for step in (3, 5):
        checkpoint.save(folder, step, {"progress": {"step": step}, "student": _tensors(), "rng": [None]})


def _read_checkpoints(folder: Path) -> None:
    for step in checkpoint.steps(folder):
        checkpoint.damage_of_checkpoint(checkpoint.path_of(folder, step))
    checkpoint.heal(folder)
    for step in checkpoint.steps(folder):
        checkpoint.load(folder, step)


def _written(write: Callable[[Path], object]) -> Mapping[str, bytes]:
    """The files that some code writes into an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _beside(folder: Path) -> Workspace:
    """A workspace outside of what is read."""
    return Workspace(folder.parent / f"{folder.name}-{os.getpid()}")


def _all(items: Iterable[object]) -> int:
    """Read everything that there is, up to a number that no small file reaches."""
    return sum(1 for _ in itertools.islice(items, 100_000))
