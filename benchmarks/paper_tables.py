"""Run every variant of the papers' experiment files at one scale, and write one table of what they gave.

    python benchmarks/paper_tables.py [--only ibkd_table2,sra_table5] [--first 1] [--suites]

The variants run one after the other, each as `stillhouse train` in the head of its file and, with
``--suites``, as `stillhouse evaluate --suite` there, on the dev part of the suite; test sets stay closed. All
of them share a workspace, so that texts, stores and equal stages are made once. What each gave is kept in
``runs/papers/results``; the same command skips the variants that are finished, unless their part of the file
has changed. A variant that fails is reported, and the others go on.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import ROOT, machine

from stillhouse.cli.main import main as stillhouse
from stillhouse.core.identity import fingerprint
from stillhouse.experiments.fields import DATA_ROOT
from stillhouse.reports.layout import markdown_table
from stillhouse.search.experiment_file import Run, load_runs

PAPERS = ROOT / "search_spaces" / "papers"
SLOW_SECONDS = 300
"""Seconds above which a variant of the small scale is marked."""
INTERRUPTED = 130
_STAGE = "Stage"
_WARNING = "stillhouse: "


def main() -> int:
    """Run what is not finished; write the table of everything that is."""
    options = arguments()
    # Not by --data-root: at the small scale, it would add STS-B to dev figures that leave it out.
    os.environ.update({DATA_ROOT: options.data_root} if options.data_root else {})
    files = chosen(options.only)
    runs = [
        (file, run)
        for file in files
        for run in load_runs(file, scale=options.scale, data_root=options.data_root)[: options.first or None]
    ]
    results = options.root / "results"
    results.mkdir(parents=True, exist_ok=True)
    for place, (file, run) in enumerate(runs, start=1):
        kept = results / f"{file.stem}.{run.name or 'all'}.{options.scale or 'full'}.json"
        if kept.exists() and finished(json.loads(kept.read_text()), run):
            continue
        print(f"[{place}/{len(runs)}] {title(file.stem, run.name)} …", flush=True)
        result = measured(file, run, options)
        if result["exit_code"] == INTERRUPTED:
            print("interrupted: the same command goes on with this variant", flush=True)
            return INTERRUPTED
        kept.write_text(json.dumps(result, ensure_ascii=False, indent=1))
        print(f"[{place}/{len(runs)}] {summary(result)}", flush=True)
    found = [json.loads(kept.read_text()) for kept in sorted(results.glob("*.json"))]
    content = {"machine": machine(), "results": found}
    (options.root / "papers.json").write_text(json.dumps(content, ensure_ascii=False, indent=1))
    (options.root / "papers.md").write_text(page(found), encoding="utf-8")
    print(f"written: {options.root / 'papers.md'} and papers.json beside it")
    return 1 if any(result["exit_code"] for result in found) else 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of files, separated by commas; default: all")
    parser.add_argument("--scale", default="small", help="scale of the files; empty takes the full size")
    parser.add_argument("--root", type=Path, default=ROOT / "runs" / "papers", help="the workspace")
    parser.add_argument(
        "--data-root",
        default=os.environ.get(DATA_ROOT, ""),
        help="folder with the published data; default: $STILLHOUSE_DATA",
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first N variants of each file")
    parser.add_argument("--suites", action="store_true", help="measure with the suite of each file too")
    return parser.parse_args()


def chosen(only: str) -> list[Path]:
    """The experiment files with these names, in this order; all of them for no name."""
    names = list(filter(None, only.split(",")))
    files = {path.stem: path for path in sorted(PAPERS.glob("*.yaml"))}
    unknown = [name for name in names if name not in files]
    if unknown:
        sys.exit(f"unknown files {', '.join(unknown)}; there are {', '.join(files)}")
    return [files[name] for name in names or files]


def measured(file: Path, run: Run, options: argparse.Namespace) -> dict[str, Any]:
    """Train a variant, measure it with the suite that its file names, and return what that gave."""
    where = ["--root", str(options.root)]
    began, clock, core = time.perf_counter(), time.time(), core_seconds()
    train = ["train", "--local", "--file", str(file), *where]
    train += ["--scale", options.scale] if options.scale else []
    train += ["--variant", run.name] if run.name else []
    code, output, trained = command(train)
    result = {
        "file": file.stem,
        "variant": run.name,
        "scale": options.scale,
        "method": run.method,
        "key": key_of(run),
        "seconds": round(time.perf_counter() - began, 1),
        "core_seconds": round(core_seconds() - core, 1),
        "exit_code": code,
        "dev": trained.get("metrics", {}),
        "gradient_shares": trained.get("gradient_shares", {}),
        "stages": stages(Path(trained["folder"]), clock) if code == 0 else [],
        "suites": {},
        "output": output,
    }
    data = ["--data-root", options.data_root] if options.data_root else []
    for suite in suites_of(file) if code == 0 and options.suites else []:
        began = time.perf_counter()
        code, said, figures = command(["evaluate", trained["folder"], "--suite", *suite, *where, *data])
        result["suites"][" ".join(suite)] = {
            "seconds": round(time.perf_counter() - began, 1),
            "exit_code": code,
            "figures": figures,
            "output": said,
        }
        result["exit_code"] = max(result["exit_code"], code)
    return result


def core_seconds() -> float:
    """Seconds that this process and its ended children have computed, on all cores together."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def command(words: list[str]) -> tuple[int, list[str], dict[str, Any]]:
    """Run a command of `stillhouse`; return its exit code, its lines, and what it wrote to ``--json``."""
    with tempfile.TemporaryDirectory() as held:
        written, printed = Path(held) / "result.json", Path(held) / "output.txt"
        with output_to(printed):
            code = stillhouse([*words, "--json", str(written)])
        content = json.loads(written.read_text()) if code == 0 and written.exists() else {}
        return code, printed.read_text(encoding="utf-8").splitlines(), content


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Send this process's output and its errors to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    screens = [os.dup(descriptor) for descriptor in (1, 2)]
    with path.open("a", buffering=1, encoding="utf-8") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        try:
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                yield
        finally:
            for descriptor, screen in zip((1, 2), screens, strict=True):
                os.dup2(screen, descriptor)
                os.close(screen)


def stages(folder: Path, began: float) -> list[dict[str, Any]]:
    """What the stages of a plan took, the last one last; of one that was finished before, that it was reused.

    Args:
        folder: Folder of the last stage; its plan holds the plans of the others.
        began: When the run began, by the clock.
    """
    rows = []
    for label, name in stage_names(json.loads((folder / "plan.json").read_text())):
        manifest = folder.parent / f"{label}-{name}" / "manifest.json"
        content = json.loads(manifest.read_text())
        rows.append(
            {
                "stage": label,
                "steps": content["steps"],
                "examples": content["examples"],
                "seconds": content["seconds"],
                "reused": manifest.stat().st_mtime < began,
                "dev": content["metrics"],
            }
        )
    return rows


def stage_names(plan: Any) -> list[tuple[str, str]]:
    """Labels and fingerprints of all stages in a plan, without repetition, those that come first before."""
    found: dict[tuple[str, str], None] = {}
    if isinstance(plan, list):
        for part in plan:
            found |= dict.fromkeys(stage_names(part))
    if isinstance(plan, Mapping):
        for part in plan.values():
            found |= dict.fromkeys(stage_names(part))
        if plan.get("value") == _STAGE:
            text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
            found[plan["with"]["label"], hashlib.sha256(text.encode()).hexdigest()[:16]] = None
    return list(found)


def suites_of(file: Path) -> list[list[str]]:
    """The suites that the head of an experiment file measures its stages with, each with its own flags."""
    head = file.read_text(encoding="utf-8")
    commands = re.findall(r"^#\s+stillhouse evaluate STAGE --suite (.+?) --data-root DATA", head, re.M)
    return [flags.split() for flags in commands]


def key_of(run: Run) -> str:
    """Identify what a variant trains, so that a changed one is trained again."""
    said = (run.method, run.preset, run.values, run.experiment)
    return fingerprint(json.dumps(said, sort_keys=True, default=str))


def finished(result: Mapping[str, Any], run: Run) -> bool:
    """Whether a kept result is that of the same run, and without a failure."""
    return bool(result["key"] == key_of(run) and result["exit_code"] == 0)


def title(file: str, variant: str) -> str:
    """The name of a row."""
    return f"{file} {variant}".rstrip()


def warnings_of(result: Mapping[str, Any]) -> list[str]:
    """The lines that the commands warned with."""
    lines = [*result["output"], *(line for suite in result["suites"].values() for line in suite["output"])]
    return list(dict.fromkeys(line.removeprefix(_WARNING) for line in lines if line.startswith(_WARNING)))


def summary(result: Mapping[str, Any]) -> str:
    """One line for the screen."""
    name = title(result["file"], result["variant"])
    if result["exit_code"]:
        return f"{name}: FAILED ({result['exit_code']}) {' '.join(warnings_of(result))}"
    slow = " SLOW" if result["scale"] and result["seconds"] > SLOW_SECONDS else ""
    seconds = f"{result['seconds']:.0f} s ({result['core_seconds']:.0f} of a core)"
    return f"{name}: {seconds}{slow}; {figures_of(result['dev'])}"


def page(results: list[dict[str, Any]]) -> str:
    """The results as a page of Markdown: one table, and the warnings below it."""
    facts = ", ".join(f"{name} {version}" for name, version in machine().items())
    lines = [
        "# The papers' tables, as they ran here\n",
        f"`make papers`: {facts}. Stages are given with their steps and seconds; one in brackets was "
        "made by an earlier row. Seconds of a row include reading and embedding what no earlier row had. "
        "Core seconds are this program's own, whatever else the machine does.\n",
    ]
    header, rows = ["file", "variant", "seconds", "core seconds", "stages", "dev", "suite"], []
    for result in results:
        suites = [
            f"{name} ({suite['seconds']:.0f} s): {figures_of(suite['figures'])}"
            for name, suite in result["suites"].items()
        ]
        rows.append(
            [
                f"`{result['file']}`",
                result["variant"] or "–",
                f"{result['seconds']:.0f}" + (" **failed**" if result["exit_code"] else ""),
                f"{result['core_seconds']:.0f}",
                ", ".join(map(stage_cell, result["stages"])),
                figures_of(result["dev"]),
                "; ".join(suites),
            ]
        )
    lines.append(markdown_table(header, rows, {0, 1, 4, 5, 6}))
    warned: dict[str, list[str]] = {}
    for result in results:
        for line in warnings_of(result):
            warned.setdefault(line, []).append(title(result["file"], result["variant"]))
    lines += ["\n## Warnings\n", *(f"* {line} ({', '.join(names)})" for line, names in warned.items())]
    return "\n".join(lines) + "\n"


def stage_cell(stage: Mapping[str, Any]) -> str:
    """A stage with its steps and seconds, in brackets where it was reused."""
    text = f"{stage['stage']} {stage['steps']} / {stage['seconds']:.0f} s"
    return f"[{text}]" if stage["reused"] else text


def figures_of(figures: Any, prefix: str = "") -> str:
    """Figures by name in one line; of nested ones, the path is the name."""
    if isinstance(figures, Mapping):
        parts = (figures_of(value, f"{prefix}{name}.") for name, value in figures.items())
        return ", ".join(filter(None, parts))
    number = isinstance(figures, int | float) and not isinstance(figures, bool)
    return f"{prefix.rstrip('.')} {figures:.4g}" if number else ""


if __name__ == "__main__":
    sys.exit(main())
