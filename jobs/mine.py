"""Mine hard negatives with the teacher, and write them as a file.

ray job submit --working-dir . -- python jobs/mine.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["mine", *sys.argv[1:]]))
