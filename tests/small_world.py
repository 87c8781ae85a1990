"""A small world for methods: encoders, texts, pairs with hard negatives, translations, labels, claims."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_experiment import NOUNS, ranking_task, sentences

from stillhouse.core.artifacts import Workspace
from stillhouse.core.identity import Spec, spec
from stillhouse.corpora.tables import open_texts, write_rows, write_texts
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Examples, Model, RankingTask, Store, TextTable
from stillhouse.values.setting import PairData, ParallelData, SentenceData, Setting, TaskData

MAX_LENGTH = 9
"""Tokens per text, less than the longest texts have."""
PAIRS = {
    "query": [0, 1, 2, 3, 4, 5, 0, 6, 7, 8, 9, 10],
    "passage": [0, 1, 2, 3, 4, 5, 6, 0, 1, 7, 8, 9],
    "negatives": [
        [6, 3],
        [4, 0],
        [1, 9],
        [2, 8],
        [5, 11],
        [3, 0],
        [0, 7],
        [6, 2],
        [1, 5],
        [10, 8],
        [3, 9],
        [4, 2],
    ],
}
"""Two queries have two passages each, passages occur twice, and some negatives are passages of other queries
or another passage of the same one."""


@dataclass(frozen=True)
class World:
    """What the methods are trained on.

    Attributes:
        workspace: Holds everything.
        base: The encoder that students start from: 6 layers, 16 dimensions.
        teacher: Another one of the same shape; its vectors are not normalised.
        wide_teacher: One of 24 dimensions.
        words: Word vectors of 8 dimensions.
        claims: Claims with four candidates each.
        data: The tables, by name.
        pairs: Rows of queries, passages and hard negatives.
        parallel: Rows of translations.
        task: Pairs of texts with labels.
    """

    workspace: Workspace
    base: Model
    teacher: Model
    wide_teacher: Model
    words: Model
    claims: RankingTask
    data: dict[str, TextTable]
    pairs: Examples
    parallel: Examples
    task: Examples

    def student(self, **changes: Any) -> Spec[Any]:
        """A student without dropout whose vectors are not normalised."""
        given = {"layers": (0, 3), "pooling": "mean", "normalize": False, "dropout": 0.0}
        return spec(TransformerStudent, base=self.base, **{**given, **changes})

    def setting(
        self, teacher: Model, student: Spec[Any] | None = None, *, fine_tuned: bool = True
    ) -> Setting:
        """All of the data with the vectors of a teacher."""
        stores = {name: Store(table, teacher, max_length=MAX_LENGTH) for name, table in self.data.items()}
        columns = {"query": "queries", "passage": "passages", "negatives": "passages"}
        return Setting(
            teacher=teacher,
            student=student or self.student(),
            dev=None,  # type: ignore[arg-type]
            data={
                Sentences.key: SentenceData(stores["sentences"], rows=20),
                Pairs.key: PairData(self.pairs, {name: stores[table] for name, table in columns.items()}),
                Parallel.key: ParallelData(self.parallel, stores["queries"]),
                WordVectors.key: self.words,
                LabelledTask.key: TaskData(self.task, classes=2, dev=None),  # type: ignore[arg-type]
                Claims.key: self.claims,
            },
            distil_budget=24,
            finetune_budget=12 if fine_tuned else 0,
            teacher_dim=24 if teacher == self.wide_teacher else 16,
            evaluations=1,
            max_length=MAX_LENGTH,
            seed=3,
        )

    def texts(self, table: str, rows: Any) -> list[str]:
        """Texts of a table by their rows."""
        return list(open_texts(self.workspace, self.data[table])[np.asarray(rows, np.int64)])


def write_encoder(folder: Path, tokenizer: Path, hidden: int, layers: int, seed: int) -> Model:
    """Write a random BERT with mean pooling as a sentence-transformers folder; vectors are not normalised."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    words: Any = AutoTokenizer.from_pretrained(tokenizer)
    shape: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": 2 * hidden,
    }
    config = BertConfig(
        vocab_size=len(words),
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.4,
        **shape,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder / "bert")
    words.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=32), Pooling(hidden, pooling_mode="mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return resolve_model(str(folder / "model"))


@pytest.fixture(scope="session")
def built_world(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> World:
    """The world of `world`, in a workspace that tests copy or only read."""
    root = tmp_path_factory.mktemp("world")
    workspace = Workspace(root / "runs")
    data = {
        name: write_texts(workspace, name, sentences(count, seed))
        for name, count, seed in (("sentences", 20, 1), ("queries", 11, 2), ("passages", 12, 3))
    }
    pairs = write_rows(
        workspace,
        {"query": data["queries"], "passage": data["passages"], "negatives": data["passages"]},
        {name: np.array(rows) for name, rows in PAIRS.items()},
        "pairs",
    )
    rows = np.arange(8)
    sides = {"source": rows, "target": rows + 2}
    parallel = write_rows(
        workspace, {"source": data["queries"], "target": data["passages"]}, sides, "parallel"
    )
    task = write_rows(
        workspace,
        {"text": data["queries"], "other": data["passages"]},
        {"text": rows, "other": rows[::-1].copy()},
        "task",
        values={"label": np.array([0, 1, 1, 0, 1, 0, 0, 0])},
    )
    write_vocabulary(["the", "and", "a", *NOUNS[:-2]], root / "words", dim=8, seed=4)
    claims = replace(ranking_task(workspace, claims=16), dev=None)  # type: ignore[arg-type]
    shapes = {"base": (16, 6, 5), "teacher": (16, 6, 6), "wide_teacher": (24, 3, 7)}
    encoders = {name: write_encoder(root / name, tiny_model, *shape) for name, shape in shapes.items()}
    words = resolve_model(str(root / "words"))
    return World(
        workspace,
        **encoders,
        words=words,
        claims=claims,
        data=data,
        pairs=pairs,
        parallel=parallel,
        task=task,
    )


@pytest.fixture
def world(built_world: World, tmp_path: Path) -> World:
    """A world whose workspace is the test's own."""
    shutil.copytree(built_world.workspace.root, tmp_path / "runs")
    return replace(built_world, workspace=Workspace(tmp_path / "runs"))
