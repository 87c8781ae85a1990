"""Keys that were seen before, in runs of every size, agree with a plain set."""

from pathlib import Path

import numpy as np
import pytest
from rows import each_row

from stillhouse.corpora import seen_keys
from stillhouse.corpora.seen_keys import SeenKeys


@each_row("halves", [(20, 20), (3, 2**62), (2**62, 3), (2**63, 2**63)])
def test_what_is_new_agrees_with_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halves: tuple[int, int]
) -> None:
    """Keys may share their first half, the second half, or nothing; runs are files and stay apart soon."""
    monkeypatch.setattr(seen_keys, "_ON_DISK", 50)
    monkeypatch.setattr(seen_keys, "_MERGED", 400)
    draw, seen, known = np.random.default_rng(1), SeenKeys(tmp_path), set[tuple[int, ...]]()
    pool = draw.integers(0, halves, size=(3000, 2)).astype("<u8")
    for size in [0, 1, 2, *draw.integers(0, 60, 150)]:
        keys = pool[draw.integers(0, len(pool), size)]
        expected = []
        for key in map(tuple, keys.tolist()):
            expected.append(key not in known)
            known.add(key)
        assert seen.new(keys.tobytes()).tolist() == expected
    runs = [len(run) for run in seen._runs]
    assert sum(runs) == len(known) and (halves == (20, 20) or sum(size >= 400 for size in runs) > 1)
    assert list(tmp_path.iterdir()) == [], "nothing is left on the disk"


def test_of_equal_keys_the_first_is_new(tmp_path: Path) -> None:
    one, two = b"a" * 16, b"b" * 16
    seen = SeenKeys(tmp_path)
    assert seen.new(two + one + two + one).tolist() == [True, True, False, False]
    assert seen.new(one + b"c" * 16).tolist() == [False, True]
