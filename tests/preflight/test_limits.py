"""A memory bank that holds all of the text."""

import dataclasses

import pytest

from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared
from stillhouse.preflight.finding import print_concerns
from stillhouse.preflight.limits import full_bank
from stillhouse.preflight.planned import texts_of
from stillhouse.search.trial import Context
from stillhouse.training.where import Where


@pytest.mark.parametrize(
    ("method", "sizes", "reported"),
    [
        ("ckd", (0, 64), False),
        ("ckd", (64, 4096), True),
        ("crd", (100,), True),
        ("crd", (99,), False),
    ],
)
def test_a_bank_larger_than_the_text_is_reported_with_both_numbers(
    method: str,
    sizes: tuple[int, ...],
    reported: bool,
    prepared: Prepared,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentences = dataclasses.replace(prepared.setting[Sentences], rows=100)
    setting = prepared.setting.having(Sentences, sentences)
    context = Context(
        method=method, preset="paper", setting=setting, root="", where=Where(), quality=setting.dev.select
    )
    plans = (context.plan({"batch_size": 16, "bank_size": size}) for size in sizes)
    print_concerns(full_bank(plans, texts_of(setting)))
    output = capsys.readouterr().err
    assert (f"bank_size={max(sizes):,} is no smaller than the text, of 100 rows" in output) is reported
    assert reported or not output
