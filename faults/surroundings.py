"""Where the suite finds the package and the stand-ins of the tests; imported before everything else."""

import os
import sys
from pathlib import Path

import tqdm

REPOSITORY = Path(__file__).resolve().parent.parent
for _name in ("tests", "platform"):
    sys.path.insert(0, str(REPOSITORY / _name))
os.environ.update(
    HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1", STILLHOUSE_REMOTE_WAIT="10"
)
tqdm.tqdm.monitor_interval = 0  # The thread that watches progress bars would not survive a fork.
