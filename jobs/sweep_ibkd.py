"""Search for the best IBKD student: the main job, whose experiment is the file beside this one.

The flags of `stillhouse sweep` change what the file says.

ray job submit --working-dir . -- python jobs/sweep_ibkd.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

FILE = Path(__file__).resolve().with_suffix(".yaml")
SHORT = [] if any(each.startswith("--scale") for each in sys.argv) else ["--baseline-trials", "2"]
"""At full scale the baseline has as many trials as the method."""

if __name__ == "__main__":
    sys.exit(main(["sweep", "--space", str(FILE), "--full", "3", *SHORT, *sys.argv[1:]]))
