"""What `stillhouse doctor` says of a method's search, without reading any data."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.methods import name_of
from stillhouse.preflight.finding import NOTE, WARNING, Finding
from stillhouse.search.effects import idle_in, missed_rungs, refusals
from stillhouse.search.experiment_file import load_search
from stillhouse.search.keywords import Search
from stillhouse.search.options import SweepOptions
from stillhouse.search.trial import context_of
from stillhouse.students.head import dimension_of
from stillhouse.sweeps.checks import as_long_as_stated, has_space, sweep_options
from stillhouse.sweeps.runs import Training
from stillhouse.training.where import Where


def findings_beside(
    training: Training, root: Path, file: str | None, scale: str, fixed: Mapping[str, Any], preset: str | None
) -> list[Finding]:
    """Look at the search that a sweep with a training's arguments begins; none where there is no space.

    Without an experiment file, the space is the method's own. Without a preset, it is ``paper``.
    """
    name = name_of(training.method)
    if not (load_search(file, scale=scale) if file else has_space(name)):
        return []
    given: Search = {"root": root, "device": "cpu", "space": file, "scale": scale}
    try:
        options = sweep_options(name, training.experiment, fixed=fixed, preset=preset or "paper", **given)
        return search_findings(options)
    except BadInput as refused:
        return [Finding("search", NOTE, f"a sweep with these arguments is refused: {refused}")]


def search_findings(options: SweepOptions) -> list[Finding]:
    """Look at a search: points that are refused, dimensions that do nothing, rungs without an evaluation."""
    teacher = options.teacher or options.experiment.teacher.finder.resolve()
    sketch = replace(options.experiment.of(teacher).sketch(), teacher_dim=dimension_of(teacher))
    setting = as_long_as_stated(sketch, options.experiment.budget)
    context = context_of(options, setting, Workspace(options.root), Where(device=options.device))
    found = []
    if refused := refusals(options.space, context):
        found.append(Finding("search", NOTE, f"{refused.rstrip('.')}."))
    if idle := idle_in(context, options.space):
        said = f"with these budgets and data nothing depends on {', '.join(idle)}, which a sweep leaves out."
        found.append(Finding("search", NOTE, said))
    if missed := missed_rungs(options.space, context, options.scheduler):
        found.append(Finding("search", WARNING, f"{missed}.", "Raise the budgets, or use smaller batches."))
    return found
