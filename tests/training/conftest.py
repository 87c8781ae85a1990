"""A fixture: the student itself as the encoder, so that no tokenizer is needed."""

import pytest
from torch import nn


@pytest.fixture
def bare_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(student: nn.Module, max_length: int, autocast: str, device: str, *more: object) -> nn.Module:
        return student

    monkeypatch.setattr("stillhouse.training.watch.encoder_of", as_it_is)
