"""The table of a method's presets with the source of each value, and the page of all methods."""

from stillhouse.methods import Method, known_methods, load_method, name_of, preset_rows
from stillhouse.reports.layout import markdown_table

HEAD = """# Presets and their sources

Every value of every preset, and where it stands. `paper` follows the text; further presets are other
settings that the text prints, such as those of another size of student; `repo`, where code is known and
does something else, is what the authors' code does. "Ours" is a choice that neither states. `stillhouse
presets METHOD` prints one of these tables; this page is the output of `stillhouse presets --markdown`.

The dropout of a transformer student is a field, `student.dropout`, and 0 in all presets, which is ours: the
published checkpoints train with 0.1, which the files of the papers' tables take (`-1`).
"""


def presets_table(method: Method) -> str:
    """A method's presets with their sources, as a Markdown table."""
    header, rows = preset_rows(method)
    cells = [[f"`{name}`", *others] for name, *others in rows]
    return markdown_table(header, cells, set(range(len(header))))


def presets_page() -> str:
    """The page of all methods."""
    parts = [HEAD]
    for name in known_methods():
        method = load_method(name)
        parts.append(f"## `{name_of(method)}`\n\n{method.PAPER}.\n\n{presets_table(method)}\n")
    return "\n".join(parts)
