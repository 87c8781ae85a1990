from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rows import each_row


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


def test_every_row_of_a_table_is_run_and_those_that_fail_are_named(tmp_path: Path) -> None:
    seen = []

    @each_row("first", ["a", "b"])
    @each_row(("second", "wrong"), [(1, False), (2, True), (3, True)])
    def test(first: str, second: int, wrong: bool, tmp_path: Path) -> None:
        seen.append((first, second, not list(tmp_path.iterdir())))
        (tmp_path / "left behind").touch()
        assert not (wrong and first == "b"), "wrong"

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows fail") as failed:
        test(tmp_path=tmp_path)
    assert seen == [(first, second, True) for first in "ab" for second in (1, 2, 3)]
    notes = [error.__notes__ for error in failed.value.exceptions]
    assert notes == [[f"row {number}: {{'second': {number + 1}, 'wrong': True}}"] for number in (1, 2)]
    assert failed.value.__notes__ == ["row 1: {'first': 'b'}"]
