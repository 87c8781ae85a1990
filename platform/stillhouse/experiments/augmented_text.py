"""Copies of sentences, as in IBKD (section 4.3): with synonyms, and back-translated."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import read_json, sha256_of, write_json
from stillhouse.core.console import Progress, say
from stillhouse.core.devices import usable_device
from stillhouse.core.errors import require
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import clean, dedup_key
from stillhouse.corpora.tables import open_texts, write_texts
from stillhouse.corpora.text_variation import with_synonyms
from stillhouse.corpora.wordnet import read_wordnet, wordnet_files
from stillhouse.experiments.augmentation import Augmentation
from stillhouse.teachers.back_translation import Translator, check_translator
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Model, TextTable

if TYPE_CHECKING:
    from stillhouse.corpora.tables import Texts

VERSION = 2

Copies = Callable[["Texts", int], Iterator[str]]
"""From all texts and the number of a copy to one text for each."""


def check_copies(augmentation: Augmentation) -> None:
    """Refuse a WordNet or a translator that cannot be used, before any work.

    Raises:
        BadInput: The folder has no YAML files, or the models are no pair of translators.
    """
    if augmentation.wordnet:
        wordnet_files(augmentation.wordnet)
    for model in translators_of(augmentation):
        check_translator(model)


def translators_of(augmentation: Augmentation) -> list[Model]:
    """The models of ``translators``.

    Raises:
        BadInput: There are not two of them, or one does not exist.
    """
    named = [name.strip() for name in augmentation.translators.split(",") if name.strip()]
    require(
        len(named) in (0, 2) and bool(named) == bool(augmentation.translators),
        "augmentation.translators must be two models, there and back, with a comma between",
        translators=augmentation.translators,
        remedy="Such as Helsinki-NLP/opus-mt-en-de,Helsinki-NLP/opus-mt-de-en.",
    )
    return [resolve_model(name) for name in named]


def augment_table(
    augmentation: Augmentation, barrier: Barrier, sentences: TextTable, device: str
) -> tuple[TextTable, dict[str, int]]:
    """Write a table of the sentences followed by their copies, of which none repeats what is measured with.

    Without copies the sentences are returned as they are.

    Returns:
        The table, and counts by name: ``augmented_copies`` that were made, ``augmented_changed`` that differ
        from their sentence, ``augmented_added``; left out, ``augmented_duplicates``, ``augmented_held_out``
        and ``augmented_empty``.

    Raises:
        BadInput: See `check_copies`.
    """
    if not augmentation:
        return sentences, {}
    workspace = barrier.workspace
    translators = translators_of(augmentation)
    files = wordnet_files(augmentation.wordnet) if augmentation.wordnet else []
    signature = {
        "version": VERSION,
        "sentences": sentences,
        "barrier": barrier.signature,
        "wordnet": [[file.name, sha256_of(file)] for file in files],
        "probability": augmentation.probability if files else 0.0,
        "translators": translators,
        "copies": augmentation.copies,
    }
    label = f"{sentences.label}-augmented"
    note = note_path(workspace, label, signature)

    def read() -> tuple[TextTable, dict[str, int]]:
        ways: list[Copies] = [_synonyms(augmentation)] if files else []
        if translators:
            ways.append(_back_translations(translators, note.with_suffix(""), device))
        counts: Counter[str] = Counter()
        rows = _rows(barrier, open_texts(workspace, sentences), ways, augmentation.copies, counts)
        table = write_texts(workspace, label, rows, deduplicate=False, origin={"augmented": sentences.sha256})
        say(f"  {label}: " + ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in _COUNTED))
        return table, {f"augmented_{name}": counts[name] for name in _COUNTED}

    made = read_once(workspace, note, read)
    shutil.rmtree(note.with_suffix(""), ignore_errors=True)
    return made


_COUNTED = ("copies", "changed", "added", "duplicates", "held_out", "empty")


def _rows(
    barrier: Barrier, texts: "Texts", ways: Sequence[Copies], copies: int, counts: Counter[str]
) -> Iterator[str]:
    """The sentences as they are, then the new ones among the copies, way by way."""
    seen = set()
    for text in texts:
        seen.add(dedup_key(text))
        yield text
    for copy in range(copies):
        for way in ways:
            for text, varied in zip(texts, way(texts, copy), strict=True):
                found = clean(varied)
                counts["copies"] += 1
                counts["changed"] += found != text
                fate = _fate(found, seen, barrier)
                counts[fate] += 1
                if fate == "added":
                    yield found


def _fate(text: str, seen: set[bytes], barrier: Barrier) -> str:
    if not text:
        return "empty"
    if barrier.bars(text):
        return "held_out"
    key = dedup_key(text)
    if key in seen:
        return "duplicates"
    seen.add(key)
    return "added"


def _synonyms(augmentation: Augmentation) -> Copies:
    wordnet = read_wordnet(augmentation.wordnet)
    probability = augmentation.probability
    return lambda texts, copy: with_synonyms(texts, wordnet, probability=probability, seed=copy)


def _back_translations(models: Sequence[Model], folder: Path, device: str) -> Copies:
    """The first copy is decoded as the models' own settings say, the others are drawn."""
    loaded: list[Translator] = []

    def translate(texts: list[str], seed: int | None) -> list[str]:
        if not loaded:
            loaded.extend(Translator(model, usable_device(device)) for model in models)
        forth, back = loaded
        return back(forth(texts, seed), seed)

    def copies(texts: "Texts", copy: int) -> Iterator[str]:
        progress, done = Progress("back-translating", "texts"), 0
        for shard in range(len(texts.shard_starts)):
            kept, here = folder / f"{copy}-{shard:05d}.json", texts.shard(shard)
            if not kept.exists():
                # Each copy of each shard draws from a seed of its own.
                seed = copy * len(texts.shard_starts) + shard if copy else None
                write_json(kept, translate(here, seed))
            yield from read_json(kept)
            done += len(here)
            progress(done, len(texts))

    return copies
