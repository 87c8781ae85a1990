"""Shares of rows: nested, seeded, with every group in proportion."""

from itertools import pairwise

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.row_shares import sample_rows
from stillhouse.corpora.tables import open_rows, open_values, write_rows, write_texts
from stillhouse.values.data import AllRows, Examples, Sampled

LABEL = np.array([0] * 80 + [1] * 20)


def test_a_smaller_share_is_a_subset_of_a_larger_one() -> None:
    shares = [set(sample_rows(LABEL, fraction, seed=3).tolist()) for fraction in (0.01, 0.1, 0.3, 0.35, 1.0)]
    assert all(small < large for small, large in pairwise(shares))
    assert [len(share) for share in shares] == [2, 10, 30, 35, 100]
    tenth = sample_rows(LABEL, 0.1, seed=3)
    assert np.bincount(LABEL[tenth]).tolist() == [8, 2] and (np.diff(tenth) > 0).all()
    assert np.array_equal(tenth, sample_rows(LABEL, 0.1, seed=3))
    assert not np.array_equal(tenth, sample_rows(LABEL, 0.1, seed=4))


def test_a_share_of_no_rows_is_empty() -> None:
    for fraction in (0.0, 1.1, -0.5):
        with pytest.raises(BadInput, match="0 < fraction <= 1"):
            sample_rows(LABEL, fraction)
    with pytest.raises(BadInput, match="rows to choose from"):
        sample_rows(LABEL[:0], 0.5)


def test_sampled_examples_need_no_folder(workspace: Workspace) -> None:
    table = write_texts(workspace, "texts", [f"text {row}" for row in range(50)])
    ids = np.arange(50)[::-1].copy()
    labels = write_rows(
        workspace, {"text": table}, {"text": ids}, "rows", values={"label": (ids < 10).astype(int)}
    )
    for whole in (labels, Examples({"text": table}, AllRows())):
        part = Examples(whole.columns, Sampled(whole, 0.2), values=whole.values)
        rows, values = open_rows(workspace, part)["text"], open_values(workspace, part)
        assert len(rows) == 10 and set(rows) <= set(open_rows(workspace, whole)["text"])
        assert part.fingerprint != whole.fingerprint and not workspace.path(part).exists()
        if whole is labels:
            assert np.array_equal(values["label"], rows < 10) and values["label"].sum() == 2
