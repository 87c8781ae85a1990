"""A small experiment prepared on real files: a generated corpus, a tiny teacher, hard negatives, no Ray."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.identity import spec
from stillhouse.corpora.published.glue import resolve_task
from stillhouse.corpora.tables import write_rows, write_texts
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.evaluation.claim_ranking import ClaimRanking
from stillhouse.evaluation.classification import Classification
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.search.trial import Context
from stillhouse.students.head import require_model
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.where import Where
from stillhouse.values.data import Examples, Mined, RankingTask, Store
from stillhouse.values.mining import Mining
from stillhouse.values.setting import PairData, ParallelData, TaskData
from stillhouse.values.stage import DevSuite

NOUNS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()


def sentences(count: int, seed: int = 0) -> list[str]:
    """Generate distinct sentences of 3 to 8 words."""
    random = np.random.default_rng(seed)
    candidates = (" ".join(random.choice(NOUNS, random.integers(3, 9))) for _ in range(3 * count))
    return list(dict.fromkeys(candidates))[:count]


def quick_experiment(folder: Path, teacher: Path) -> Experiment:
    """An experiment on 120 sentences, with the teacher's first two layers and one evaluation."""
    corpus = folder / "words.txt"
    corpus.write_text("\n".join(sentences(120)))
    return Experiment(
        teacher=TeacherChoice(str(teacher)),
        student=TransformerChoice(layers=(0, 1)),
        data=(Sentences(str(corpus), count=0, held_out=20),),
        budget=Budget(distil=64, evaluations=1),
        max_length=16,
        compute="float32",
    )


@pytest.fixture(scope="session")
def experiment(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Experiment:
    """An experiment on 120 sentences from a text file."""
    corpus = tmp_path_factory.mktemp("corpus") / "words.txt"
    corpus.write_text("\n".join(sentences(120)))
    return Experiment(
        teacher=TeacherChoice(str(tiny_model)),
        student=TransformerChoice(layers="every-other"),
        data=(Sentences(corpus=str(corpus), count=0, held_out=20),),
        budget=Budget(distil=64, evaluations=2),
        max_length=16,
        compute="float32",
    )


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory, experiment: Experiment) -> tuple[Path, Prepared]:
    """A workspace with the sentences embedded, for copying."""
    root = tmp_path_factory.mktemp("embedded")
    return root, prepare(experiment, Workspace(root), Embedding(local=True))


@pytest.fixture
def prepared(embedded: tuple[Path, Prepared], workspace: Workspace) -> Prepared:
    """The setting with embedded sentences in the test's own workspace, without labels."""
    shutil.copytree(embedded[0], workspace.root)
    return embedded[1]


def labelled_task(workspace: Workspace) -> TaskData:
    """Write sentences labelled by whether they mention a cat."""
    folder = Path(workspace.root) / "glue"
    folder.mkdir(parents=True, exist_ok=True)
    texts = sentences(60, 7)
    lines = ["sentence\tlabel", *(f"{text}\t{int('cat' in text)}" for text in texts)]
    (folder / "dev.tsv").write_text("\n".join(lines) + "\n")
    rows = {"text": np.arange(60)}
    label = np.array(["cat" in text for text in texts])
    table = write_texts(workspace, "task", texts)
    examples = write_rows(workspace, {"text": table}, rows, "task", values={"label": label})
    dev = DevSuite((spec(Classification, data=resolve_task("sst2", folder, "dev")),), "sst2_accuracy")
    return TaskData(examples, classes=2, dev=dev)


def ranking_task(workspace: Workspace, claims: int = 40, candidates: int = 4) -> RankingTask:
    """Write claims of two nouns; the document with both is relevant, others have only one."""
    random, pairs = np.random.default_rng(5), list(itertools.combinations(NOUNS, 2))
    documents = [f"the {first} and a {second}" for first, second in pairs]
    chosen = random.choice(len(pairs), claims, replace=False)
    others = [[d for d, pair in enumerate(pairs) if len({*pair, *pairs[row]}) == 3] for row in chosen]
    ids = np.array([random.choice(near, candidates, replace=False) for near in others])
    ids[:, 0] = chosen
    ids = random.permuted(ids, axis=1)
    tables = {
        "claim": write_texts(workspace, "claims", [" ".join(pairs[row][::-1]) for row in chosen]),
        "documents": write_texts(workspace, "pages", documents),
    }
    rows = {"claim": np.arange(claims), "documents": ids}
    gold = (ids == chosen[:, None]).astype(np.int64)
    train = write_rows(workspace, tables, rows, "claims", values={"gold": gold})
    judged = write_rows(
        workspace, tables, rows, "dev", values={"gold": gold, "gold_count": np.ones(claims, np.int64)}
    )
    dev = DevSuite((spec(ClaimRanking, examples=judged),), "fever_dcg")
    return RankingTask(train, dev, rows=claims)


def context_in(workspace: Workspace, prepared: Prepared) -> Context:
    """The context given to trials of an IBKD sweep with both stages, where the sentences are embedded."""
    setting, tables = prepared.setting, {}
    for seed, column in enumerate(("query", "passage"), start=1):
        tables[column] = write_texts(workspace, column, sentences(40, seed))
    rows = np.arange(40)
    pairs = write_rows(workspace, tables, {"query": rows, "passage": rows}, "pairs")
    teacher = require_model(setting.teacher)
    queries, passages = (Store(table, teacher, max_length=16, compute="float32") for table in tables.values())
    mined = Mined(pairs, queries, passages, negatives=1, mining=Mining(relative_margin=0.0))
    parallel = write_rows(
        workspace,
        {"source": tables["query"], "target": tables["passage"]},
        {"source": rows, "target": rows},
        "parallel",
    )
    vectors, task = Path(workspace.root) / "vectors", labelled_task(workspace)
    write_vocabulary(NOUNS, vectors, dim=8)
    labelled = Examples({**tables, "negatives": tables["passage"]}, mined, label="mined")
    return Context(
        method="ibkd",
        preset="paper",
        setting=dataclasses.replace(setting, finetune_budget=32)
        .having(Pairs, PairData(labelled, {"query": queries, "passage": passages, "negatives": passages}))
        .having(Parallel, ParallelData(parallel, queries))
        .having(WordVectors, resolve_model(str(vectors)))
        .having(Claims, ranking_task(workspace))
        .having(LabelledTask, task),
        root=str(workspace.root),
        where=Where(device="cpu", threads=1),
        quality=setting.dev.select,
    )


@pytest.fixture
def context(prepared: Prepared, workspace: Workspace) -> Context:
    """A context of the test's own."""
    return context_in(workspace, prepared)


@pytest.fixture(scope="module")
def shared_context(embedded: tuple[Path, Prepared], tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A context of the tests of a file, for what they all read."""
    workspace = Workspace(tmp_path_factory.mktemp("shared") / "runs")
    shutil.copytree(embedded[0], workspace.root)
    return context_in(workspace, embedded[1])


def write_fever(root: Path) -> None:
    """Write claims and pages of FEVER: claim i names page i, every tenth also page i + 1."""
    (root / "fever").mkdir(parents=True)
    words = ["cat", "dog", "sat", "mat", "river", "water", "sun", "moon", "red", "green", "blue", "fast"]
    pages = [json.dumps({"id": f"Page_{word}", "text": f"the {word} house"}) for word in words]
    claims = [
        {
            "id": at,
            "claim": f"claim {at} of {words[at % 12]} {words[(at + 1) % 12] if at % 10 == 0 else ''}",
            "label": "SUPPORTS",
            "evidence_pages": [f"Page_{words[(at + more) % 12]}" for more in range(2 if at % 10 == 0 else 1)],
        }
        for at in range(60)
    ]
    (root / "fever/train.jsonl").write_text("\n".join(json.dumps(claim) for claim in claims))
    (root / "fever/wiki-pages").mkdir()
    (root / "fever/wiki-pages/wiki-001.jsonl").write_text("\n".join(pages))


@pytest.fixture(scope="session")
def trained_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, trained until its cosines follow the share of words that two texts have in common."""
    import torch
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(tiny_model), device="cpu")
    texts = sentences(32, 11)
    words = [set(text.split()) for text in texts]
    shared = [len(a & b) / len(a | b) for a, b in itertools.product(words, words)]
    target_BB = torch.tensor(shared).view(len(texts), len(texts))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.eval()
        for _ in range(60):
            vectors_BE = model(model.tokenize(texts))["sentence_embedding"]
            loss = (vectors_BE @ vectors_BE.T - target_BB).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    folder = tmp_path_factory.mktemp("trained") / "model"
    model.save(str(folder), create_model_card=False)
    return folder
