"""Search for the best IBKD student: the main job, and an example of an experiment in Python.

The flags of `stillhouse sweep` change the values below.

ray job submit --working-dir . -- python jobs/sweep_ibkd.py --help
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))

from stillhouse import Budget, Experiment, Mining, Pairs, Refit, Sentences, TeacherChoice
from stillhouse.cli.main import main

EXPERIMENT = Experiment(
    teacher=TeacherChoice("all-MiniLM-L6-v2"),
    data=(
        Sentences(corpus="pydocs", count=20480),
        # The paper's eight negatives per pair need 8 GB per trial at a batch of 256; one fits a laptop.
        Pairs(count=2048, negatives=1, mining=Mining(relative_margin=0.05)),
    ),
    # Short trials find the hyper-parameters; the two best are then trained in earnest, one per core.
    budget=Budget(
        distil=6144,
        finetune=768,
        evaluations=2,
        refit=Refit(distil=40960, finetune=4096, top=2),
    ),
    max_length=64,
)

if __name__ == "__main__":
    sys.exit(main(["sweep", "ibkd", *sys.argv[1:]], experiment=EXPERIMENT))
