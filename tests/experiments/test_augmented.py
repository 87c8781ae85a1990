"""Augmented sentences: which copies are added or left out, caching, and use in an experiment's store."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.tables import open_texts, write_texts
from stillhouse.experiments import augmented_text
from stillhouse.experiments.augmentation import Augmentation
from stillhouse.experiments.augmented_text import augment_table
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of, merged
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.teachers.store import open_store
from stillhouse.values.data import Model, TextTable

SENTENCES = ["the cat sat", "a dog", "an apple", "The feline sat!"]


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    folder = tmp_path / "wordnet"
    folder.mkdir()
    synsets = {"1-n": ["cat", "feline"], "2-n": ["dog", "hound"], "3-n": ["river", "stream"]}
    lines = [
        line
        for name, members in synsets.items()
        for line in (f"{name}:", "  members:", *(f"  - {word}" for word in members), "  partOfSpeech: n")
    ]
    (folder / "noun.test.yaml").write_text("\n".join(lines) + "\n")
    return folder


def texts_of(workspace: Workspace, table: TextTable) -> list[str]:
    return list(open_texts(workspace, table))


def test_copies_follow_the_sentences_without_duplicates(workspace: Workspace, wordnet: Path) -> None:
    table = write_texts(workspace, "sentences", SENTENCES)
    free, barrier = Barrier(workspace), Barrier(workspace)
    barrier.declare("agreement", [write_texts(workspace, "dev", ["A hound."])])
    experiment = Augmentation(wordnet=str(wordnet), probability=1.0)
    augmented, counts = augment_table(experiment, barrier, table, "cpu")
    # "the feline sat" exists already, "a hound" is held out, "an apple" has no synonym.
    assert texts_of(workspace, augmented) == [*SENTENCES, "The cat sat!"][:4]
    assert counts == {
        **{"augmented_copies": 4, "augmented_changed": 3, "augmented_added": 0},
        **{"augmented_duplicates": 3, "augmented_held_out": 1, "augmented_empty": 0},
    }
    augmented, counts = augment_table(experiment, free, table, "cpu")
    assert texts_of(workspace, augmented) == [*SENTENCES, "a hound"] and counts["augmented_added"] == 1
    assert augment_table(Augmentation(), free, table, "cpu") == (table, {})


def test_it_is_built_once_and_rebuilt_when_an_input_changes(
    workspace: Workspace, wordnet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_texts(workspace, "sentences", SENTENCES)
    experiment = Augmentation(wordnet=str(wordnet), probability=0.5, copies=3)
    first = augment_table(experiment, Barrier(workspace), table, "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(augmented_text, "write_texts", None)
        assert augment_table(experiment, Barrier(workspace), table, "cpu") == first
    with (wordnet / "noun.test.yaml").open("a") as file:
        file.write("4-n:\n  members:\n  - apple\n  - pome\n  partOfSpeech: n\n")
    again = [
        augment_table(experiment, Barrier(workspace), table, "cpu"),
        augment_table(dataclasses.replace(experiment, copies=4), Barrier(workspace), table, "cpu"),
    ]
    assert all(counts["augmented_copies"] in (12, 16) for _, counts in again)
    assert all(a[0] != b[0] or a[1] != b[1] for a, b in itertools.pairwise([first, *again]))


def test_back_translation_resumes_where_it_was_stopped(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_texts(workspace, "sentences", SENTENCES, rows_per_shard=1)
    translated: list[str] = []

    class Echo:
        def __init__(self, model: Model, device: str) -> None:
            self.name = model.name

        def __call__(self, texts: list[str], seed: int | None) -> list[str]:
            if len(translated) == 5:
                translated.append("stop")
                raise KeyboardInterrupt
            translated.append(texts[0])
            return [f"{text} {self.name}" for text in texts]

    monkeypatch.setattr(augmented_text, "Translator", Echo)
    models = [Model("a", "von"), Model("b", "from")]
    monkeypatch.setattr(augmented_text, "translators_of", lambda _: models)
    experiment = Augmentation(translators="a,b")
    with pytest.raises(KeyboardInterrupt):
        augment_table(experiment, Barrier(workspace), table, "cpu")
    augmented, counts = augment_table(experiment, Barrier(workspace), table, "cpu")
    assert texts_of(workspace, augmented)[4:] == [f"{text} von from" for text in SENTENCES]
    assert counts["augmented_added"] == 4 and translated.count("the cat sat") == 1
    assert not [path for path in (workspace.root / "sources").iterdir() if path.is_dir()]


def test_an_experiment_embeds_and_trains_on_the_copies(
    experiment: Experiment, workspace: Workspace, wordnet: Path
) -> None:
    more = changed(
        experiment,
        {"sentences.augmentation.wordnet": str(wordnet), "sentences.augmentation.probability": 1.0},
    )
    prepared = prepare(more, workspace, Embedding(local=True))
    facts, rows = prepared.facts, len(open_store(workspace, prepared.setting[Sentences].only_store))
    assert facts["sentences"] == prepared.setting[Sentences].rows == rows
    assert 0 < facts["augmented_added"] == rows - facts["augmented_copies"]


@each_row(
    ("values", "message"),
    [
        ({"copies": 0}, "copies >= 1"),
        ({"probability": 1.5}, "probability <= 1"),
        ({"wordnet": "nowhere"}, "must have its YAML files"),
        ({"translators": "one"}, "two models, there and back"),
        ({"translators": "./a,./b"}, "model's folder must exist"),
    ],
)
def test_invalid_values_are_refused_before_any_work(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        paths = {f"sentences.augmentation.{name}": value for name, value in values.items()}
        experiment_of(merged({}, paths)).check()


def test_parallel_text_is_not_augmented() -> None:
    with pytest.raises(BadInput, match="one source of text"):
        experiment_of({"parallel": {"corpora": "de=x"}, "sentences": {"augmentation": {"wordnet": "w"}}})
