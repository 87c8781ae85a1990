"""Published forms as they were understood: collections, tasks and claims."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from stillhouse.corpora.published.glue import TASKS, task_name
from stillhouse.corpora.reading.languages import recognised
from stillhouse.corpora.reading.understood import Understood
from stillhouse.corpora.tables import open_rows, open_texts, open_values, sample_of

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.corpora.search_task import SearchTask
    from stillhouse.values.data import Examples, TextTable

_LOOKED_AT = 100


def collection_read(workspace: "Workspace", source: str, task: "SearchTask") -> Understood:
    """Describe a collection as it was understood."""
    tables = {"query": task.dev.queries, "passage": task.dev.passages}
    return _understood(workspace, source, "collection", tables, note=task.summary)


def task_read(workspace: "Workspace", name: str, root: str, examples: "Examples") -> Understood:
    """Describe the training rows of a task as they were understood."""
    task, label_N = TASKS[task_name(name)], open_values(workspace, examples)["label"].tolist()
    labels = {task.labels[label]: count for label, count in sorted(Counter(label_N).items())}
    roles = {"text": task.first, **({"other": task.second} if task.second else {}), "label": task.label}
    rows: dict[str, Any] = {"read": len(label_N), "kept": len(label_N), "labels": labels, "roles": roles}
    rows["examples"] = {
        role: open_texts(workspace, examples.columns[role])[ids_N[:1]][0]
        for role, ids_N in open_rows(workspace, examples).items()
    }
    return _understood(workspace, root, f"GLUE's {name}", dict(examples.columns), **rows)


def claims_read(workspace: "Workspace", source: str, examples: "Examples", note: str) -> Understood:
    """Describe the claims and pages of FEVER as they were understood."""
    return _understood(workspace, source, "FEVER's claims and pages", dict(examples.columns), note=note)


def _understood(
    workspace: "Workspace", source: str, form: str, tables: dict[str, "TextTable"], **known: Any
) -> Understood:
    """A report with a text of each table, and their language."""
    texts = {role: sample_of(workspace, table, _LOOKED_AT)[1] for role, table in tables.items()}
    examples = known.pop("examples", {role: found[0] for role, found in texts.items() if found})
    language = recognised(text for found in texts.values() for text in found[:_LOOKED_AT])
    roles = known.pop("roles", dict(zip(tables, tables, strict=True)))
    return Understood(source, form, language=language, roles=roles, examples=examples, **known)
