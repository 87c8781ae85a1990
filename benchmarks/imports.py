"""How long `import stillhouse` and `stillhouse --help` take, and that neither loads torch or Ray."""

import subprocess
import sys

from harness import ROOT, Row, arguments, at_most, finish, in_turn, median, spread

ENVIRONMENT = {"PYTHONPATH": str(ROOT / "platform"), "PATH": ""}
HEAVY = ("torch", "ray", "transformers", "mlflow", "optuna")


def python(code: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return done.stdout


def main() -> int:
    """Measure a bare interpreter, the import, and the help."""
    options = arguments(__doc__).parse_args()
    helps = "import sys; sys.argv = ['stillhouse', '--help']; from stillhouse.cli.main import main; main()"
    seconds = in_turn(
        {
            "bare": lambda: python("pass"),
            "import": lambda: python("import stillhouse"),
            "help": lambda: python(f"try:\n    exec({helps!r})\nexcept SystemExit: pass"),
        },
        options.repeats,
    )
    loaded = python(f"import sys, stillhouse; print([n for n in {HEAVY!r} if n in sys.modules])").strip()
    note = f"a bare interpreter {spread(seconds['bare'])}; of {', '.join(HEAVY)} loaded: {loaded}"
    rows = [
        Row(
            "`import stillhouse`",
            "–",
            **at_most(median(seconds["import"]), 0.3, "s"),
            ours=spread(seconds["import"]),
            note=note,
        ),
        Row(
            "`stillhouse --help`",
            "–",
            **at_most(median(seconds["help"]), 0.5, "s"),
            ours=spread(seconds["help"]),
        ),
    ]
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
