"""Tokenizers, maximum lengths and dimensions of teacher and student."""

from collections.abc import Sequence
from pathlib import Path

from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.preflight.finding import NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.teachers.loading import tokenizer_of

CHECK = "lengths"
MUCH = 0.25
"""Share of the texts from which on it is a warning that they are cut."""


def cut_texts(planned: Planned) -> list[Finding]:
    """Tell which share of the texts teacher and student cut, and whether their tokenizers differ."""
    findings, tokenizers, stage = [], {}, planned.stages[0]
    store = planned.encoder_store
    for part in store.stores if store is not None else ():
        who = "teacher" if part is store else f"teacher {part.model.name}"
        tokenizers[who] = FastTokenizer(Path(part.model.path), part.max_length)
        texts = [part.prompt + text for text in planned.texts]
        findings += _cut(who, tokenizers[who], texts, part.max_length, planned)
    student = FastTokenizer(Path(tokenizer_of(stage).path), stage.max_length)
    texts = [stage.prompts.of(planned.role) + text for text in planned.texts]
    findings += _cut("student", student, texts, stage.max_length, planned)
    if not all(tokenizer.same_as(student) for tokenizer in tokenizers.values()):
        found = (
            "teacher and student have different tokenizers, so each text is tokenised twice, and the two cut "
            "long texts at different places."
        )
        findings.append(Finding(CHECK, NOTE, found))
    return findings


def _cut(
    who: str, tokenizer: FastTokenizer, texts: Sequence[str], max_length: int, planned: Planned
) -> list[Finding]:
    if not texts:
        return []
    lengths = tokenizer.whole_lengths(texts)
    share = float((lengths > max_length).mean())
    found = (
        f"the {who} reads {max_length} tokens per text and cuts {share:.1%} of {len(texts)} texts of "
        f"{planned.label}, whose longest has {int(lengths.max())}."
    )
    if share < MUCH:
        return [Finding(CHECK, NOTE, found)]
    remedy = (
        f"Raise --max-length (or {who.partition(' ')[0]}.max_length), or split the texts (--split-sentences)."
    )
    return [Finding(CHECK, WARNING, found, remedy)]
