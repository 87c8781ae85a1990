"""`benchmarks/gpu.py` and the local paths import with little more than torch and transformers installed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABSENT = (
    "ray",
    "mlflow",
    "optuna",
    "faiss",
    "datasets",
    "nupunkt",
    "sentencex",
    "plotly",
    "matplotlib",
    "docstring_parser",
)
CODE = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
sys.path[:0] = [{str(ROOT / "platform")!r}, {str(ROOT / "benchmarks")!r}]
import gpu
import stillhouse.cli.main, stillhouse.api, stillhouse.training.walk, stillhouse.methods.ibkd
stillhouse.cli.main.parser().parse_args(["train", "ibkd", "--local"])
"""


def test_the_gpu_script_and_the_local_paths_need_no_ray() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)
