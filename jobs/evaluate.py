"""Measure a model on the dev suite, or once on the locked test suite.

ray job submit --working-dir . -- python jobs/evaluate.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
