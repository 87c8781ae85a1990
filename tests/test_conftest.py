from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


def test_the_tiny_model_loads_and_knows_words_and_letters(tiny_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny_model), device="cpu")
    texts = ["The cat sat on the mat.", "An unusual word: zygote-7!", "Returns the mean of an array."]
    vectors = model.encode(texts)
    ids = model.tokenizer(texts)["input_ids"]
    assert vectors.shape == (3, 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.max(vectors @ vectors.T - np.eye(3)) < 0.999
    assert all(model.tokenizer.unk_token_id not in row for row in ids)


def test_what_was_skipped_is_said_by_reason(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))
    assert conftest is not None
    said: list[str] = []
    skips = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: no {what}")) for what in ("disk", "net", "net")]
    conftest.pytest_terminal_summary(SimpleNamespace(stats={"skipped": skips}, write_line=said.append))
    assert said == ["skipped 2: no net", "skipped 1: no disk"]
