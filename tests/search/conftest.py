"""A fixture: studies without backups."""

import pytest


@pytest.fixture
def no_backups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back no study up, which takes longer than a trial of a test."""
    monkeypatch.setattr("stillhouse.search.searcher.back_up_study", lambda path: None)
