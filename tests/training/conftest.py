"""Fixtures: one thread, and the student itself as the encoder, so that no tokenizer is needed."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bare_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(student: nn.Module, max_length: int, autocast: str, device: str, *more: object) -> nn.Module:
        return student

    monkeypatch.setattr("stillhouse.training.watch.encoder_of", as_it_is)
