"""A process that keeps large freed blocks reuses their memory."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys, time
from stillhouse.core.allocation import keep_large_blocks
if sys.argv[1] == "keep":
    keep_large_blocks()
import numpy as np
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    np.ones(12_000_000, np.float32)
before = faults()
for _ in range(5):
    np.ones(12_000_000, np.float32)
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_the_pages_of_a_large_block_are_fetched_once() -> None:
    def pages(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True)
        return int(done.stdout)

    given_back, kept = pages("default"), pages("keep")
    assert kept < given_back / 10
