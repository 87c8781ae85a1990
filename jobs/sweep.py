"""Search for the best student of any method.

ray job submit --working-dir . -- python jobs/sweep.py crosslingual --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
