"""Search for the best BiLSTM_KD student.

ray job submit --working-dir . -- python jobs/sweep_bilstm_kd.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sweep", "bilstm_kd", *sys.argv[1:]]))
