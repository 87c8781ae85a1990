"""Facts of a stage for its model card that its plan does not state: names, and the items of its figures."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import Hindered
from stillhouse.core.notes import has_note, sound_note, write_note
from stillhouse.corpora.tables import count_rows
from stillhouse.evaluation.retrieval import Search
from stillhouse.evaluation.suites import figure_facts
from stillhouse.training.rebuild import to_plain
from stillhouse.values.stage import Stage

FACTS = "facts.json"
DEV, COMPARED = "dev", "compared"
"""Keys of the dev suite, and of the texts that an export is compared on; see `training.rebuild.to_plain`."""


def write_facts(stage: Stage, workspace: Workspace, search: Search | None = None) -> None:
    """Write the facts into the stage's folder, unless they are there undamaged; its inputs must be built."""
    path = workspace.path(stage) / FACTS
    if has_note(path):
        return
    stages = list(stage.chain())
    known = [each for part in stages for each in part.teachers()]
    teachers = [member for each in known for member in each.members]
    several = next((each for each in reversed(known) if each.weights), None)
    shared = () if several is None else zip(several.members, several.weights, strict=True)
    weights = [(member.name, weight) for member, weight in shared]
    tables = [table for part in stages for table in part.examples.columns.values()]
    held_out = stage.dev.held_out if stage.dev else None
    facts = {
        DEV: to_plain(stage.dev),
        COMPARED: to_plain(held_out.texts if held_out else tables[-1]),
        "teachers": list(dict.fromkeys(each.name for each in teachers if each.name)),
        **({"teacher_weights": weights} if weights else {}),
        "teacher_models": {model.sha256: asdict(model) for each in known for model in each.models},
        "texts": {
            table.label: read_manifest(workspace.path(table))["rows"]
            for table in tables
            if workspace.finished(table)
        },
        "examples": count_rows(workspace, stage.examples),
        "figures": figure_facts(stage.dev, workspace, search) if stage.dev else {},
    }
    write_note(path, facts)


def read_facts(folder: Path) -> dict[str, Any]:
    """Read the facts of a finished stage; empty for one that was trained before they were written.

    Raises:
        Hindered: They are damaged.
    """
    path = folder / FACTS
    if not path.is_file():
        return {}
    facts = sound_note(path)
    if facts is None:
        raise Hindered(
            f"{path} must be as it was written, but it is damaged. Run the command that trained this stage "
            "again: it writes the file again, and trains nothing."
        )
    return facts
