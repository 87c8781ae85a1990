"""Write a trained student as a folder that sentence-transformers loads.

ray job submit --working-dir . -- python jobs/export.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
