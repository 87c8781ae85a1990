"""A tiny teacher that has really been trained, and an experiment with it that nothing is wrong with."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from small_experiment import sentences  # type: ignore[import-not-found]

from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.teacher import TeacherChoice


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


@pytest.fixture(scope="session")
def healthy(experiment: Experiment, trained_model: Path) -> Experiment:
    """An experiment with a trained teacher, from which the student takes its layers."""
    return dataclasses.replace(experiment, teacher=TeacherChoice(str(trained_model)))
