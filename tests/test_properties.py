"""Properties that hold for any input: nothing is lost or doubled, what is written is read back, and the like.

The inputs are the same in every run. `make fuzz` gives damaged files to every reader for longer.
"""

import csv
import dataclasses
import gzip
import io
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from stillhouse.core.artifacts import Workspace, read_manifest, write_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.core.notes import read_note, write_note
from stillhouse.corpora.reading.cleaning import clean, dedup_key
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.tables import open_rows, open_texts, write_rows, write_texts
from stillhouse.evaluation.metrics import average_precision, judge, ndcg, recall, reciprocal_rank, spearman
from stillhouse.evaluation.search.exact import search
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_mapping, changed, experiment_of, flattened
from stillhouse.training.metrics_log import MetricsLog, read_lines
from stillhouse.training.sampler import Order
from stillhouse.values.stage import Optimizer

common = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
quick = settings(common, max_examples=150)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
words = st.text("abAB .é", max_size=8)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder for one input; a fixture would serve all of them."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def as_csv(rows: Sequence[str], delimiter: str) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter).writerows([("id", "text"), *enumerate(rows)])
    return stream.getvalue().encode()


def as_tsv(rows: Sequence[str]) -> bytes:
    """Write cells as they are: a quotation mark is text, and no cell has a tab or a line of its own."""
    cells = (" ".join(row.replace("\t", " ").splitlines()).replace("\r", " ") for row in rows)
    return "".join(f"{at}\t{text}\n" for at, text in [("id", "text"), *enumerate(cells)]).encode()


def as_json(rows: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"id": at, "text": row}).encode() + b"\n" for at, row in enumerate(rows))


def as_parquet(rows: Sequence[str]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(rows, pa.string())}), stream)
    return stream.getvalue()


def as_lines(rows: Sequence[str]) -> bytes:
    return "\n".join(" ".join(row.splitlines()).replace("\r", " ") for row in rows).encode()


FORMS: dict[str, Callable[[Sequence[str]], bytes]] = {
    "a.csv": lambda rows: as_csv(rows, ","),
    "a.tsv": as_tsv,
    "a.jsonl": as_json,
    "a.parquet": as_parquet,
    "a.txt": as_lines,
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMS)
@common
@given(rows=st.lists(texts, min_size=1, max_size=6))
def test_a_reader_neither_loses_nor_doubles_a_row(name: str, packed: bool, rows: list[str]) -> None:
    """Every row comes out once and in order: cleaned, or set aside because nothing is left of it."""
    rows = ["the first row", *rows, "the last row"]
    content = FORMS[name](rows)
    with folder() as place:
        path = place / (f"{name}.gz" if packed and name != "a.parquet" else name)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        read = list(read_texts(str(path), ReadOptions()))
    got = ["" if isinstance(text, Rejected) else text for text in read]
    joined = name in ("a.txt", "a.tsv")
    assert got == [clean(" ".join(row.splitlines()) if joined else row) for row in rows]


@common
@given(before=st.lists(words, max_size=4), after=st.lists(words, min_size=1, max_size=4))
def test_a_quotation_mark_that_is_never_closed_is_refused(before: list[str], after: list[str]) -> None:
    """It would swallow all rows after it."""
    content = as_csv(before, ",") + b'7,"open\r\n' + as_csv(after, ",").partition(b"\n")[2]
    with folder() as place:
        (place / "a.csv").write_bytes(content)
        with pytest.raises(BadInput, match=f"begins on line {len(before) + 2} does not"):
            list(read_texts(str(place / "a.csv"), ReadOptions()))


@common
@given(
    rows=st.lists(words | st.builds(Rejected, words, st.sampled_from(["a", "b"])), max_size=12),
    per_shard=st.integers(1, 5),
)
def test_a_table_holds_what_was_written_and_counts_the_rest(
    rows: list[str | Rejected], per_shard: int
) -> None:
    first = [row for row in rows if isinstance(row, str) and row.strip()]
    kept = list({dedup_key(row): row for row in reversed(first)}.values())[::-1]
    kept.sort(key=first.index)
    with folder() as place:
        workspace = Workspace(place)
        if not kept:
            with pytest.raises(BadInput, match="at least one usable text"):
                write_texts(workspace, "t", rows, rows_per_shard=per_shard)
            assert not workspace.listed("corpora")
            return
        table = write_texts(workspace, "t", rows, rows_per_shard=per_shard)
        assert list(open_texts(workspace, table)[np.arange(len(kept))]) == kept
        manifest = read_manifest(workspace.path(table))
        set_aside = [row for row in rows if isinstance(row, Rejected) or not row.strip()]
        counts = (len(rows), len(kept), len(set_aside), len(first) - len(kept))
        names = ("input_rows", "rows", "quarantined", "duplicates")
        assert tuple(manifest[name] for name in names) == counts


@common
@given(st.data())
def test_rows_are_read_back_and_are_found_by_their_content(data: st.DataObject) -> None:
    count, negatives = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    ids = st.integers(0, 3)
    columns = [data.draw(st.lists(ids, min_size=count, max_size=count)) for _ in range(1 + negatives)]
    with folder() as place:
        workspace = Workspace(place)
        table = write_texts(workspace, "t", ["a", "b", "c", "d"])
        rows = {"query": np.array(columns[0]), "negatives": np.array(columns[1:]).T}
        examples = write_rows(workspace, dict.fromkeys(rows, table), rows, "e")
        assert all(np.array_equal(open_rows(workspace, examples)[name], rows[name]) for name in rows)
        other = {**rows, "query": (rows["query"] + 1) % 4}
        changed_ = write_rows(workspace, dict.fromkeys(rows, table), other, "e")
        assert changed_.fingerprint != examples.fingerprint


@quick
@given(content=st.dictionaries(st.text("abcdef_", min_size=1, max_size=6), values, max_size=4))
def test_notes_and_manifests_are_read_back(content: dict[str, Any]) -> None:
    with folder() as place:
        write_note(place / "note.json", content)
        assert read_note(place / "note.json", "") == content
        write_manifest(place, content)
        assert read_manifest(place) == content


@common
@given(steps=st.lists(st.integers(1, 5), max_size=8), after=st.integers(0, 30))
def test_a_metrics_log_continues_after_the_checkpoint(steps: list[int], after: int) -> None:
    """Lines after it are written again: no step is lost or there twice."""
    every = list(itertools.accumulate(steps))
    with folder() as place:
        for first in (0, after):
            log = MetricsLog(place / "m.jsonl", after=first)
            for step in (step for step in every if step > first):
                log.append(step, step, {"loss": 1.0})
            log.close()
        assert [line["step"] for line in read_lines(place / "m.jsonl")] == every


@quick
@given(text=texts)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    once = clean(text)
    assert clean(once) == once and len(once.splitlines()) <= 1


@quick
@given(st.data())
def test_an_epoch_is_a_permutation_whatever_is_taken_at_once(data: st.DataObject) -> None:
    rows, seed = data.draw(st.integers(1, 90)), data.draw(st.integers(0, 5))
    sizes = {"plain": data.draw(st.integers(0, 40)), "block": data.draw(st.integers(1, 7))}
    order = Order(rows, seed, **sizes, window=data.draw(st.integers(1, 4)))
    whole = order.take(0, 3 * rows)
    for epoch in range(3):
        assert sorted(whole[epoch * rows : (epoch + 1) * rows]) == list(range(rows))
    at, parts = 0, []
    for count in data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6)):
        parts.append(order.take(at, count))
        at += count
    assert np.array_equal(np.concatenate(parts)[: 3 * rows], whole[:at])


def listed(value: Any) -> Any:
    """A value with the types of numbers told apart, and lists for tuples."""
    if isinstance(value, list | tuple):
        return [listed(item) for item in value]
    if isinstance(value, dict):
        return {key: listed(item) for key, item in value.items()}
    return (type(value).__name__, repr(value))


@quick
@given(one=values, other=values)
def test_fingerprints_are_equal_only_for_equal_values(one: Any, other: Any) -> None:
    same = listed(one) == listed(other)
    assert (fingerprint(one) == fingerprint(other)) == same
    assert fingerprint(json.loads(json.dumps(one))) == fingerprint(one)
    assert fingerprint([one, other]) != fingerprint([[one, other]])


def test_a_mapping_whose_names_are_equal_as_text_has_no_fingerprint() -> None:
    with pytest.raises(BadInput, match="a mapping that names an artifact must"):
        canonical({1: "a", "1": "b"})


@quick
@given(values)
def test_a_value_and_its_json_have_the_same_fingerprint(value: Any) -> None:
    assert canonical(canonical(value)) == canonical(value)
    assert fingerprint(canonical(value)) == fingerprint(value)


@quick
@given(st.data())
def test_a_field_that_changes_changes_the_fingerprint(data: st.DataObject) -> None:
    drawn: dict[str, Any] = {
        "learning_rate": data.draw(st.floats(1e-6, 1)),
        "weight_decay": data.draw(st.floats(0, 1)),
        "warmup": data.draw(st.floats(0, 0.9)),
        "decay": data.draw(st.sampled_from(["linear", "cosine", "constant"])),
    }
    one = Optimizer(**drawn)
    assert fingerprint(one) == fingerprint(dataclasses.replace(one))
    for name, value in drawn.items():
        new: Any = ("cosine" if value == "linear" else "linear") if name == "decay" else value / 2 + 0.01
        if new != value:
            assert fingerprint(dataclasses.replace(one, **{name: new})) != fingerprint(one), name


@common
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(0, 10**6),
    share=st.floats(0.01, 1),
    length=st.integers(8, 512),
    name=st.text("abc/-.", min_size=1, max_size=8),
)
def test_an_experiment_as_names_and_values_is_the_same_experiment(
    seed: int, count: int, share: float, length: int, name: str
) -> None:
    paths = {
        "seed": seed,
        "sentences.count": count,
        "budget.fraction": share,
        "max_length": length,
        "teacher.name": name,
    }
    experiment = changed(Experiment(), paths)
    assert experiment_of(as_mapping(experiment)) == experiment
    assert flattened(as_mapping(experiment)).items() >= paths.items()


@quick
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30))
def test_spearman_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    one, other = zip(*pairs, strict=True)
    ours = spearman(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert math.isnan(ours)
    else:
        assert ours == pytest.approx(float(spearmanr(one, other).statistic), abs=1e-9)


@quick
@given(st.data())
def test_ranking_metrics_agree_with_their_definitions(data: st.DataObject) -> None:
    passages, k = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 12))
    gains = data.draw(st.lists(st.integers(0, 3), min_size=passages, max_size=passages).filter(any))
    ranking = data.draw(st.permutations(range(passages)))
    qrels = np.array([(7, passage, gain) for passage, gain in enumerate(gains)])
    judged = judge(np.array([ranking]), np.array([7]), qrels)
    found = [gains[passage] for passage in ranking][:k]
    ranks = [rank for rank, gain in enumerate(found, start=1) if gain > 0]
    relevant = sum(gain > 0 for gain in gains)

    def discounted(values: Sequence[int]) -> float:
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(values, start=1))

    assert reciprocal_rank(judged, k)[0] == pytest.approx(1 / ranks[0] if ranks else 0.0)
    assert recall(judged, k)[0] == pytest.approx(len(ranks) / relevant)
    ideal = discounted(sorted(gains, reverse=True)[:k])
    assert ndcg(judged, k)[0] == pytest.approx(discounted(found) / ideal)
    precisions = [number / rank for number, rank in enumerate(ranks, start=1)]
    assert average_precision(judged, k)[0] == pytest.approx(sum(precisions) / min(k, relevant))


@common
@given(st.data())
def test_exact_search_finds_the_best_and_breaks_ties_by_id(data: st.DataObject) -> None:
    """Small whole numbers, so that products are exact and ties are many."""
    size, dim, k = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    passages = random.integers(-2, 3, (size, dim)).astype(np.float32)
    queries = random.integers(-2, 3, (3, dim)).astype(np.float32)
    ids = search(queries, passages, k)[1]
    scores = queries @ passages.T
    expected = [sorted(range(size), key=lambda p: (-row[p], p))[:k] for row in scores]
    assert ids.tolist() == expected
