"""The prompts of a published teacher: its own, or those that the user names or writes."""

from collections.abc import Mapping
from pathlib import Path

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.model_folder import read_folder
from stillhouse.core.roles import DOCUMENT_NAMES, SETTINGS, Prompts
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.students.head import require_model
from stillhouse.values.data import Model, Teacher

NAMED = "@"
"""What a prompt begins with that is one of the model's own prompts, by name."""
_SHOWN = 60


def prompts_of(model: Teacher) -> Prompts:
    """Return a model's prompts by role: those that it was given, or else its folder's own."""
    if model.prompts is not None:
        return model.prompts
    return read_folder(Path(require_model(model).path)).prompts


def chosen_prompts(model: Model, given: Mapping[str, str | None]) -> Prompts:
    """Return a model's prompts by role, with some of them replaced.

    Args:
        model: The model.
        given: By field of `Prompts`: the text of a prompt, ``@NAME`` for one of the model's own, or None for
            the one that the model has for that role.

    Raises:
        BadInput: The model has no prompt of that name.
    """
    folder = read_folder(Path(model.path))
    own, named = folder.prompts, folder.named_prompts
    found = {}
    for role, prompt in given.items():
        if prompt is None:
            found[role] = getattr(own, role)
        elif not prompt.startswith(NAMED):
            found[role] = prompt
        elif (name := prompt.removeprefix(NAMED)) in named:
            found[role] = named[name]
        else:
            known = nearest(name, list(named)) if named else f"{SETTINGS} of its folder names none."
            raise BadInput(
                f"`teacher.prompts.{role}` must be a prompt of {model.name or model.path} after {NAMED}, but "
                f"got {name!r}. {known}"
            )
    return Prompts(**found)


def check_prompts(prompts: Prompts, tokenizer: Model, max_length: int, whose: str) -> None:
    """Refuse prompts of a ``teacher`` or ``student`` that leave no room for a text in ``max_length`` tokens.

    Raises:
        BadInput: A prompt and the special tokens are as long as the longest text, or longer.
    """
    if not prompts:
        return
    reads = FastTokenizer(Path(tokenizer.path), max_length)
    for role, prompt in vars(prompts).items():
        # Texts are cut at the maximum length: a prompt that is as long leaves nothing of any text.
        tokens = len(reads([prompt])[0]) if prompt else 0
        require(
            tokens < max_length,
            f"{whose}.prompts.{role} must be shorter than the longest text that the {whose} reads",
            prompt=prompt if len(prompt) < _SHOWN else f"{prompt[:_SHOWN]}…",
            tokens=f"{max_length} or more",
            max_length=max_length,
            remedy=f"Raise {whose}.max_length, or shorten the prompt.",
        )


def prompts_remark(model: Model) -> str:
    """Say in one line with which prompts a model reads; empty where it has none."""
    folder = read_folder(Path(model.path))
    prompts, own = prompts_of(model), folder.prompts
    name = model.title
    if prompts != own:
        return f"note: {name} reads with the prompts given: {prompts}; its own are: {own}."
    if not prompts:
        return ""
    named = folder.named_prompts
    kept = next((each for each in DOCUMENT_NAMES if each in named), DOCUMENT_NAMES[0])
    differs = kept != DOCUMENT_NAMES[0] and named[kept]
    stock = f" (stock encode_document does not find its prompt {kept!r})" if differs else ""
    return f"{name} reads with its own prompts: {prompts}{stock}"
