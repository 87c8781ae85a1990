"""Mining compared with a literal version of the rule, and with sentence-transformers at the same settings."""

import dataclasses
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from torch.nn import functional

from stillhouse.cluster.ray_data import ModelPool, Part
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.types import ValueArray
from stillhouse.corpora.tables import open_rows, open_texts, open_values, write_rows, write_texts
from stillhouse.experiments.fields import fields
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.labelled_pairs import with_negatives
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import hard_negatives
from stillhouse.training.hard_negatives import build_mined, first_of_equal
from stillhouse.training.negative_selection import known_positives, nearest
from stillhouse.values.data import Examples, Given, Mined, Model, Store, TextTable
from stillhouse.values.mining import Mining

TEXTS = TextTable(sha256="0" * 64)
WORDS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()
FREE = {"relative_margin": -1.0}


def rule(negatives: int = 8, **values: Any) -> Mined:
    store = Store(TEXTS, Model("1" * 64))
    pairs = Examples({"query": TEXTS, "passage": TEXTS}, Given("2" * 64))
    return Mined(pairs, store, store, negatives, Mining(**values))


def allowed(cosines: list[float], positive: float, known: set[int], how: Mining) -> list[int]:
    """List the allowed negatives, nearest first, by a literal reading of the rule."""
    ranked = sorted(set(range(len(cosines))) - known, key=lambda passage: -cosines[passage])
    kept = []
    for passage in ranked[: how.range_max or None]:
        cosine = cosines[passage]
        near = how.relative_margin >= 0 and cosine >= positive - how.relative_margin * abs(positive)
        near |= how.absolute_margin >= 0 and cosine >= positive - how.absolute_margin
        if not near and how.min_score <= cosine <= how.max_score:
            kept.append(passage)
    return kept[how.range_min :]


def made() -> tuple[torch.Tensor, torch.Tensor, np.ndarray, np.ndarray]:
    """Return query vectors of 30 pairs, 40 passages, and the query and passage id of each pair."""
    random = np.random.default_rng(0)
    passages = functional.normalize(torch.from_numpy(random.normal(size=(40, 5))), dim=-1)
    query, own = random.integers(0, 12, 30), random.integers(0, 40, 30)
    shift = functional.normalize(torch.from_numpy(random.normal(size=(12, 5))), dim=-1)
    return functional.normalize(shift[query] + passages[own], dim=-1), passages, query, own


def mined(how: Mined, tile: int = 7) -> tuple[list[list[int]], list[list[int]]]:
    """Return what `nearest` finds over tiles of passages and what the rule allows, for 30 pairs."""
    queries, passages, query, own = made()
    tiles = ((start, passages[start : start + tile]) for start in range(0, 40, tile))
    positive = (queries * passages[own]).sum(dim=1)
    draws = torch.Generator().manual_seed(how.mining.seed)
    order = np.argsort(query, kind="stable")
    positives = known_positives(query, query[order], own[order])
    found = nearest(queries, tiles, positive, positives, how, draws).tolist()
    cosines = (queries @ passages.T).tolist()
    known = [set(own[query == q].tolist()) for q in query]
    cases = zip(cosines, positive.tolist(), known, strict=True)
    return found, [allowed(row, own_cosine, answers, how.mining) for row, own_cosine, answers in cases]


RULES: list[dict[str, Any]] = [
    {"negatives": 3, "relative_margin": 0.0},
    {"negatives": 4, "range_min": 2, "relative_margin": 0.1},
    {"negatives": 2, "range_min": 3, "range_max": 9, **FREE},
    {"negatives": 2, "range_max": 30, "relative_margin": 0.3},
    {"negatives": 3, "absolute_margin": 0.4, **FREE},
    {"negatives": 3, "max_score": 0.3, "min_score": 0.1, **FREE},
    {"negatives": 5, "range_max": 40, "absolute_margin": 0.1, "max_score": 0.6, "min_score": -0.2},
]


@each_row("values", RULES)
def test_the_nearest_equal_the_rule(values: dict[str, Any]) -> None:
    how = rule(**values)
    found, expected = mined(how)
    for got, right in zip(found, expected, strict=True):
        assert [p for p in got if p >= 0] == right[: how.negatives]
        assert len(got) == how.negatives


@each_row("values", RULES)
def test_random_negatives_satisfy_the_rule(values: dict[str, Any]) -> None:
    how = rule(sampling="random", **values)
    found, expected = mined(how)
    for got, right in zip(found, expected, strict=True):
        chosen = [p for p in got if p >= 0]
        assert set(chosen) <= set(right)
        assert len(set(chosen)) == len(chosen) == min(how.negatives, len(right))
    assert mined(how)[0] == found
    assert mined(rule(sampling="random", seed=1, **values))[0] != found


@pytest.mark.parametrize("range_max", [0, 10])
def test_random_negatives_are_uniform(range_max: int) -> None:
    queries = functional.normalize(torch.ones(4000, 2), dim=-1)
    angles = torch.linspace(0.1, 1.0, 12)
    passages = torch.stack([angles.cos(), angles.sin()], dim=1)
    nobody = (np.empty(0, np.int64), np.empty(0, np.int64))
    how = rule(negatives=2, range_min=2, range_max=range_max, sampling="random", **FREE)
    tiles = ((start, passages[start : start + 5]) for start in range(0, 12, 5))
    draws = torch.Generator().manual_seed(0)
    found = nearest(queries, tiles, torch.ones(4000), nobody, how, draws)
    counts = torch.bincount(found.reshape(-1), minlength=12).double()
    options = (range_max or 12) - 2
    assert (counts > 0).sum() == options
    assert (counts[counts > 0] - 8000 / options).abs().max() < 5 * (8000 / options) ** 0.5


def test_every_positive_of_a_query_is_known() -> None:
    query, passage = np.array([2, 2, 5, 5, 5, 9]), np.array([1, 4, 0, 2, 5, 3])
    where, which = known_positives(np.array([9, 5, 5]), query, passage)
    assert sorted(zip(where.tolist(), which.tolist(), strict=True)) == [
        (0, 3), (1, 0), (1, 2), (1, 5), (2, 0), (2, 2), (2, 5)
    ]  # fmt: skip


def test_equal_texts_map_to_their_first_row(workspace: Workspace) -> None:
    table = write_texts(workspace, "t", ["a", "b", "a", "A.", "ab"], rows_per_shard=2, deduplicate=False)
    assert first_of_equal(open_texts(workspace, table)).tolist() == [0, 1, 0, 0, 4]


@each_row(
    ("values", "message"),
    [
        ({"negatives": 0}, "negatives >= 1"),
        ({"range_min": 5, "range_max": 5, "negatives": 1}, "range_min < range_max"),
        ({"range_min": 5, "range_max": 7, "negatives": 3}, "negatives <= range_max - range_min"),
        ({"range_min": -1}, "range_min >= 0"),
        ({"min_score": 0.5, "max_score": 0.5}, "min_score < max_score"),
        ({"relative_margin": 1.0}, "relative_margin < 1"),
        ({"absolute_margin": 2.5}, "absolute_margin < 2"),
        ({"sampling": "best"}, "sampling in"),
        ({"seed": -1}, "0 <= seed"),
    ],
)
def test_an_impossible_rule_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        rule(**values)
    assert message in str(refused.value)


def test_the_rule_is_one_value_from_the_experiment_to_what_is_mined() -> None:
    """Every one of its fields is part of what names the rows, so none of them is forgotten on the way."""
    changes: dict[str, Any] = {"sampling": "random", "index": "flat", "max_score": 0.5, "range_max": 9}
    named = {rule().pairs.fingerprint}
    for field in dataclasses.fields(Mining):
        base = {"range_max": 5} if field.name in ("range_min", "index") else {}
        value = changes.get(field.name, 0.125 if field.type is float else 1)
        pairs = Pairs(mining=Mining(**{**base, field.name: value}))
        origin = with_negatives(
            rule().pairs, pairs.mining, 1, lambda texts, _: Store(texts, Model("1" * 64))
        ).origin
        assert isinstance(origin, Mined) and origin.mining is pairs.mining and origin.negatives == 1
        named.add(Examples({}, origin).fingerprint)
    assert len(named) == 10 == len(fields_of("pairs.mining.")) + 1


def fields_of(path: str) -> list[str]:
    return [name for name in fields() if name.startswith(path)]


def sentences(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(count)]


@pytest.fixture
def planned(workspace: Workspace, tiny_model: Path) -> Callable[..., Examples]:
    """Return a function that embeds pairs of texts, one row per occurrence, and plans their mining."""
    teacher = resolve_model(str(tiny_model))

    def plan(pairs: list[tuple[str, str]], *, negatives: int, **values: Any) -> Examples:
        tables = {
            name: write_texts(workspace, name, texts, deduplicate=False)
            for name, texts in zip(("query", "passage"), zip(*pairs, strict=True), strict=True)
        }
        rows = np.arange(len(pairs))
        both = {"query": rows, "passage": rows}
        given = write_rows(workspace, tables, both, "pairs", values={"label": rows})
        by_query, by_passage = (Store(table, teacher, dtype="float32") for table in tables.values())
        build_stores(workspace, [by_query, by_passage], local=True)
        origin = Mined(given, by_query, by_passage, negatives, Mining(**values))
        return Examples({**tables, "negatives": tables["passage"]}, origin, "mined", ("label",))

    return plan


def by_texts(workspace: Workspace, examples: Examples) -> dict[tuple[str, str], set[str]]:
    """Return a mapping from query and passage texts to the negatives' texts."""
    build_mined(workspace, examples)
    rows = open_rows(workspace, examples)
    assert rows["query"].tolist() == open_values(workspace, examples)["label"].tolist(), (
        "rows keep what is theirs"
    )
    queries, passages = (open_texts(workspace, examples.columns[name]) for name in ("query", "passage"))
    pairs = zip(queries[rows["query"]], passages[rows["passage"]], strict=True)
    return {pair: set(passages[row]) for pair, row in zip(pairs, rows["negatives"], strict=True)}


def test_mining_resumes_and_parts_may_be_mined_elsewhere(
    workspace: Workspace, planned: Callable[..., Examples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of parts is free, since each part has its own random state."""
    monkeypatch.setattr(hard_negatives, "QUERY_TILE", 8)
    answers = sentences(36, 6)
    pairs = [(f"{text} query", text) for text in answers]
    made: list[int] = []

    class Backwards(ModelPool):
        def parts(self, opened: Callable[[str], Part], starts: list[int]) -> Iterator[tuple[int, ValueArray]]:
            for start in reversed(starts):
                if len(made) == self.actors:
                    raise KeyboardInterrupt
                made.append(start)
                yield start, pickle.loads(pickle.dumps(opened))(self.device)(start)

    examples = planned(pairs, negatives=2, sampling="random", **FREE)
    with pytest.raises(KeyboardInterrupt):
        build_mined(workspace, examples, pool=Backwards(2, "cpu", 1))
    assert made == [32, 24] and not workspace.finished(examples)
    reported: list[tuple[int, int]] = []
    build_mined(
        workspace,
        examples,
        pool=Backwards(9, "cpu", 1),
        progress=lambda done, all: reported.append((done, all)),
    )
    assert made == [32, 24, 16, 8, 0] and reported == [(20, 36), (28, 36), (36, 36)]
    folder = workspace.path(examples)
    assert not (folder / "parts").exists()
    found = open_rows(workspace, examples)["negatives"].tolist()
    shutil.rmtree(folder)
    build_mined(workspace, examples)
    assert open_rows(workspace, examples)["negatives"].tolist() == found


def test_queries_that_differ_in_case_have_each_others_positives(
    workspace: Workspace, planned: Callable[..., Examples]
) -> None:
    answers = sentences(24, 6)
    pairs = [(f"{text} query", text) for text in answers[:22]]
    pairs += [(f"{answers[0].upper()} Query.", answers[22]), (pairs[1][0], f"{answers[0].title()}.")]
    found = by_texts(workspace, planned(pairs, negatives=20, **FREE))
    own = {answers[0], answers[22], pairs[-1][1]}
    assert not own & (found[pairs[0]] | found[pairs[22]])
    assert not own & found[pairs[1]] - {answers[22]} and found[pairs[1]] == found[pairs[-1]]
    assert all(len({text.lower().rstrip(".") for text in negatives}) == 20 for negatives in found.values())


def test_random_negatives_depend_on_the_seed_alone(
    workspace: Workspace, planned: Callable[..., Examples]
) -> None:
    pairs = [(f"{text} query", text) for text in sentences(36, 6)]
    first, again, other = (
        by_texts(workspace, planned(pairs, negatives=2, sampling="random", seed=seed, **FREE))
        for seed in (4, 4, 5)
    )
    assert first == again and sum(first[pair] != other[pair] for pair in pairs) > 18


def by_their_miner(pairs: list[tuple[str, str]], model: Path, **values: Any) -> dict[Any, set[str]]:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    table = Dataset.from_dict({"query": [q for q, _ in pairs], "passage": [p for _, p in pairs]})
    values = {"range_max": len(pairs) + values.get("range_min", 0), "use_faiss": False, **values}
    found = mine_hard_negatives(
        table, SentenceTransformer(str(model), device="cpu"), output_format="n-tuple", verbose=False, **values
    )
    return {
        (row["query"], row["passage"]): {row[name] for name in row if name.startswith("negative")}
        for row in found
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"relative_margin": 0.05}),
        ({"range_min": 4}, {"relative_margin": 0.05, "range_min": 4}),
        ({"relative_margin": 0.02, "max_score": 0.9}, {"relative_margin": 0.02, "max_score": 0.9}),
        ({**FREE, "absolute_margin": 0.03}, {"absolute_margin": 0.03}),
        ({**FREE, "max_score": 0.9, "min_score": 0.85}, {"max_score": 0.9, "min_score": 0.85}),
        ({**FREE, "range_min": 3, "range_max": 12}, {"range_min": 3, "range_max": 12}),
        ({**FREE, "range_min": 3, "range_max": 6, "sampling": "random"}, {"range_min": 3, "range_max": 6}),
    ],
)
def test_equals_mine_hard_negatives_of_sentence_transformers(
    ours: dict[str, Any],
    theirs: dict[str, Any],
    workspace: Workspace,
    planned: Callable[..., Examples],
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hard_negatives, "PASSAGE_TILE", 16)
    monkeypatch.setattr(hard_negatives, "QUERY_TILE", 8)
    answers = sentences(60, 1)
    pairs = [(f"{a.split()[0]} {q}", a) for q, a in zip(sentences(60, 2), answers, strict=True)]
    expected = by_their_miner(pairs, tiny_model, num_negatives=3, **theirs)
    examples = planned(pairs, negatives=3, **ours)
    assert by_texts(workspace, examples) == expected and 5 < len(expected)
    dropped = read_manifest(workspace.path(examples))["dropped"]
    assert dropped == {"without_vector": 0, "too_few_negatives": 60 - len(expected)}


def test_positives_and_their_duplicates_are_never_negatives(
    workspace: Workspace, planned: Callable[..., Examples], tiny_model: Path
) -> None:
    """Queries and passages are stored twice as separate rows; every query has two positives."""
    once = sentences(20, 3)
    pairs = [(f"{text} query", text) for text in once] + [
        (f"{once[i]} query", once[i - 1]) for i in range(20)
    ]
    found = by_texts(workspace, planned(pairs, negatives=16, **FREE))
    answers = {query: {passage for other, passage in pairs if other == query} for query, _ in pairs}
    assert len(found) == 40
    for (query, _), wrong in found.items():
        assert len(wrong) == 16 and not wrong & answers[query]
    assert found == by_their_miner(pairs, tiny_model, num_negatives=16)


def test_negatives_are_rows_of_the_table_whatever_is_left_out_of_it(
    workspace: Workspace, planned: Callable[..., Examples], tiny_model: Path
) -> None:
    """Every passage is stored twice in a row, so candidates are not numbered as the table is."""
    pairs = [(f"{text} {word}", text) for text in sentences(20, 3) for word in ("query", "question")]
    found = by_texts(workspace, planned(pairs, negatives=5))
    assert len(found) > 10 and found == by_their_miner(
        pairs, tiny_model, num_negatives=5, relative_margin=0.05
    )


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ({"range_max": 20, "index": "flat", "max_score": 0.98, **FREE}, True),
        ({"range_max": 12, "range_min": 2, "index": "flat", **FREE}, True),
        ({"range_max": 9, "index": "flat", "sampling": "random", **FREE}, True),
        ({"range_max": 20, **FREE, "index": "hnsw:m=4,ef_construction=8,ef_search=4"}, False),
    ],
)
def test_an_index_retrieves_and_the_rule_uses_exact_cosines(
    values: dict[str, Any], whole: bool, workspace: Workspace, planned: Callable[..., Examples]
) -> None:
    """With two positives per query the index must return more than are kept; `flat` misses none."""
    once = sentences(300, 5)
    pairs = [(f"{text} query", text) for text in once] + [
        (f"{once[i]} query", once[i - 1]) for i in range(300)
    ]
    exact, found = (
        by_texts(workspace, planned(pairs, negatives=2, **given))
        for given in ({**values, "index": "exact"}, values)
    )
    shared = [pair for pair in exact if exact[pair] == found.get(pair)]
    assert len(exact) > 40 and (len(shared) == len(exact) == len(found) if whole else shared)
    answers: dict[str, set[str]] = {}
    for query, passage in pairs:
        answers.setdefault(query, set()).add(passage)
    assert all(not wrong & answers[query] for (query, _), wrong in found.items())
