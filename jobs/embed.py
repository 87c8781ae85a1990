"""Read a corpus and run the teacher over it once.

ray job submit --working-dir . -- python jobs/embed.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["embed", *sys.argv[1:]]))
