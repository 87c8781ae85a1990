"""What is said of an experiment that can run, but may not be what was meant."""

import dataclasses

import pytest

from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared, warn_of_full_bank
from stillhouse.search.trial import Context
from stillhouse.training.walk import Where


@pytest.mark.parametrize(
    ("method", "sizes", "report"),
    [
        ("ckd", (0, 64), False),
        ("ckd", (64, 4096), True),
        ("crd", (100,), True),
        ("crd", (99,), False),
    ],
)
def test_a_bank_that_holds_all_of_the_text_is_told_with_both_numbers(
    method: str,
    sizes: tuple[int, ...],
    report: bool,
    prepared: Prepared,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentences = dataclasses.replace(prepared.setting[Sentences], rows=100)
    setting = prepared.setting.having(Sentences, sentences)
    context = Context(
        method=method, preset="paper", setting=setting, root="", where=Where(), quality=setting.dev.select
    )
    warn_of_full_bank((context.plan({"batch_size": 16, "bank_size": size}) for size in sizes), setting)
    said = capsys.readouterr().err
    assert (f"bank_size={max(sizes):,} is no smaller than the text, of 100 rows" in said) is report
    assert report or not said
