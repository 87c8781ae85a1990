"""Prompts that a teacher was trained with, and that the experiment does not give it."""

import re
from dataclasses import dataclass
from pathlib import Path

from stillhouse.core.model_folder import read_folder
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY, Prompts
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.preflight.finding import NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.prompts import prompts_of
from stillhouse.values.data import Teacher

CHECK = "prompts"
_TITLES = {QUERY: "queries", DOCUMENT: "documents", PLAIN: "texts without a role"}
_FIELDS = {QUERY: "query", DOCUMENT: "document", PLAIN: "plain"}
_BGE = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@dataclass(frozen=True)
class Custom:
    """The prompts of a family of models, by patterns of their names and cards, empty where no card tells."""

    name: str
    card: str
    prompts: Prompts


CUSTOMS = (
    Custom(r"e5-mistral|e5-.*instruct|gte-qwen|qwen3-embedding", r"Instruct: \{", Prompts(query=_INSTRUCT)),
    Custom(r"(^|\W|_)e5-(small|base|large)", r"[\"'`]passage: ", Prompts("query: ", "passage: ", "query: ")),
    Custom(
        r"nomic-embed-text|modernbert-embed",
        r"search_document: ?",
        Prompts("search_query: ", "search_document: ", "search_document: "),
    ),
    Custom(r"bge-(small|base|large)-en|mxbai-embed|arctic-embed-(xs|s|m|l)$", re.escape(_BGE), Prompts(_BGE)),
)
"""Families whose folders often name no prompts, although their cards ask for them; the first that fits."""


def missing_prompts(planned: Planned) -> list[Finding]:
    """Compare the prompts that every teacher reads with to those that its folder, card or name asks for."""
    members, choices = planned.teacher.members, planned.experiment.teacher.each
    return [
        finding
        for teacher, choice in zip(members, choices, strict=True)
        for finding in _missing(planned, teacher, choice, several=len(members) > 1)
    ]


def _missing(planned: Planned, teacher: Teacher, choice: TeacherChoice, *, several: bool) -> list[Finding]:
    if teacher.imported:
        return []
    given, model = prompts_of(teacher), teacher.checkpoint
    wanted, source = wanted_prompts(teacher)
    own = read_folder(Path(model.path)).named_prompts if model else {}
    named = {key: prompt for key, prompt in own.items() if prompt}
    name = teacher.title
    bare = [role for role in _roles(planned) if not given.of(role) and not _decided(choice, role)]
    missing = [role for role in bare if wanted.of(role)]
    if missing:
        found = (
            f"{name} was trained with prompts, {wanted} ({source}), but reads {_listed(missing)} without any."
        )
        settings = [f"{_setting(role, wanted.of(role), several=several)}." for role in missing]
        return [Finding(CHECK, WARNING, found, " ".join([*settings, "Another prompt is another store."]))]
    if bare and named and not given:
        first = _setting(bare[0], f"@{sorted(named)[0]}", several=several)
        found = (
            f"the folder of {name} names prompts, {', '.join(map(repr, sorted(named)))}, and none as its "
            f"default, so that it reads {_listed(bare)} without any."
        )
        remedy = f"Choose one by its name, such as {first}, or give an empty one to say that none is meant."
        return [Finding(CHECK, WARNING, found, remedy)]
    if PLAIN in bare and given.query and given.document:
        found = (
            f"{name} has a prompt for queries and one for documents, but reads texts without a role, "
            f"those to distil on among them, without any: its folder names no default."
        )
        plain = "prompts.plain in its entry of `teacher`" if several else "teacher.prompts.plain"
        remedy = f"Say what the texts are (--set sentences.role=document), or set {plain}."
        return [Finding(CHECK, WARNING, found, remedy)]
    return [Finding(CHECK, NOTE, f"{name} reads with prompts: {given}.")] if given else []


def wanted_prompts(teacher: Teacher) -> tuple[Prompts, str]:
    """The prompts that a model's card or name asks for, and which of the two; none where neither does."""
    model = teacher.checkpoint
    if model is None:
        return _of_family(teacher.identity.get("model", teacher.name).lower(), "")
    folder = Path(model.path)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    # The name under which it was published, where its configuration says so.
    published = read_folder(folder).config.get("_name_or_path", "")
    return _of_family(f"{model.name} {published}".lower(), text)


def _of_family(names: str, text: str) -> tuple[Prompts, str]:
    """The prompts of the family that a model's names or its card belong to, and which of the two says so."""
    for custom in CUSTOMS:
        by_name = re.search(custom.name, names, re.MULTILINE)
        if by_name or (custom.card and re.search(custom.card, text)):
            return custom.prompts, "by its name" if by_name else "by its card"
    return Prompts(), ""


def _roles(planned: Planned) -> list[str]:
    """The roles of the texts that the teacher embeds."""
    kinds = {kind.key for kind in planned.experiment.kinds if kind.present(planned.experiment)}
    both = [QUERY, DOCUMENT] if Pairs.key in kinds else []
    return list(dict.fromkeys([*planned.roles, *both]))


def _decided(choice: TeacherChoice, role: str) -> bool:
    """Whether the user has set the prompt of a role, be it to an empty one, or what its requests have."""
    field = _FIELDS[role]
    return getattr(choice.prompts, field) is not None or bool(getattr(choice.body, field))


def _listed(roles: list[str]) -> str:
    return " and ".join(_TITLES[role] for role in roles)


def _setting(role: str, prompt: str, *, several: bool) -> str:
    shown = prompt.replace("\n", "\\n")
    if several:
        return f'`prompts: {{{_FIELDS[role]}: "{shown}"}}` in its entry of `teacher`'
    return f"--set 'teacher.prompts.{_FIELDS[role]}=\"{shown}\"'"
