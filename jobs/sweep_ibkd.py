"""Search for the best IBKD student; the main job.

ray job submit --working-dir . -- python jobs/sweep_ibkd.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sweep", "ibkd", *sys.argv[1:]]))
