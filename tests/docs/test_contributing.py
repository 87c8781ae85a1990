"""The example method in CONTRIBUTING can be added by writing its files and nothing else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOUNS = "cat dog sat mat house river water sun moon red green blue".split()


def files_of(page: Path) -> dict[str, str]:
    """The blocks that begin with a comment naming a file."""
    blocks = re.findall(r"^```\w+\n# (\S+/\S+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the method's files added and no existing file changed."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("platform", "search_spaces", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    added = files_of(ROOT / "CONTRIBUTING.md")
    assert set(added) == {
        "platform/stillhouse/losses/huber.py",
        "platform/stillhouse/objectives/robust.py",
        "platform/stillhouse/methods/huber.py",
        "search_spaces/huber.yaml",
    }
    for name, text in added.items():
        assert not (folder / name).exists()
        (folder / name).write_text(text)
    return folder


def run(copy: Path, *arguments: str) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "PYTHONPATH": str(copy / "platform"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_method_is_found_plans_and_trains(copy: Path, tiny_model: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "words.txt"
    pairs = [f"the {first} and the {second}" for first in NOUNS for second in NOUNS]
    corpus.write_text("\n".join(pairs))
    printed = run(
        copy,
        *(
            "-c",
            "import sys; from stillhouse.cli.main import main\n"
            "main(['presets', 'huber']); sys.exit(main(sys.argv[1:]))",
        ),
        *("train", "huber", "--local", "--root", str(tmp_path / "runs")),
        *(
            "--teacher",
            str(tiny_model),
            "--corpus",
            str(corpus),
            "--sentences",
            "0",
            "--set",
            "sentences.held_out=4",
        ),
        *("--layers", "[0,1]", "--max-length", "8", "--distil-budget", "8", "--evaluations", "1"),
        *("--compute", "float32", "--set", "batch_size=8", "--set", "delta=0.5"),
    )
    assert "delta" in printed.partition("huber: 8 examples")[0] and "huber: 8 examples" in printed
    assert len(list((tmp_path / "runs" / "stages").glob("huber-*/manifest.json"))) == 1


@pytest.mark.long
def test_the_contract_of_all_methods_holds_for_it(copy: Path) -> None:
    files = [
        f"tests/methods/test_{name}.py" for name in ("contract", "lengths", "optimizers", "search_spaces")
    ]
    run(copy, "-m", "pytest", *files, "-k", "not job", "-p", "no:xdist")
