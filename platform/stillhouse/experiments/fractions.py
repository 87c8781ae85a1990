"""A share of the training rows: what `--fraction` leaves of a setting. The teacher's vectors stay whole."""

import dataclasses

from stillhouse.core.errors import require
from stillhouse.experiments.experiment import Experiment
from stillhouse.methods import Method
from stillhouse.plan.data import AllRows, Examples, RankingTask, Sampled
from stillhouse.plan.setting import Setting


def cut(setting: Setting, wanted: Experiment) -> Setting:
    """The setting with the share of its rows that an experiment asks for.

    ``sentences`` are the unlabelled sentences, pairs of translations, and claims; ``labels`` the labelled
    pairs, and the task's rows in the proportions of their labels. A smaller share is part of a larger one.
    Stores, mined negatives, recorded scores, word vectors, dev and test stay as they are, and so do the
    budgets: a small share is seen more often.
    """
    texts, labels = wanted.share_of("sentences"), wanted.share_of("labels")
    if texts < 1:
        sentences = setting.texts or Examples({"text": setting.sentences.texts}, AllRows(), label="sentences")
        setting = dataclasses.replace(
            setting,
            texts=_share(sentences, texts),
            parallel=_share(setting.parallel, texts) if setting.parallel else None,
            sentence_rows=max(1, round(texts * setting.sentence_rows)),
            ranking=_ranking_share(setting.ranking, texts) if setting.ranking else None,
        )
    if labels < 1:
        task = setting.task
        setting = dataclasses.replace(
            setting,
            labelled=_share(setting.labelled, labels) if setting.labelled else None,
            task=dataclasses.replace(task, examples=_share(task.examples, labels)) if task else None,
        )
    return setting


def check_fraction(method: Method, hp: object, setting: Setting, wanted: Experiment) -> None:
    """Refuse a share of rows that a method does not train on.

    Args:
        method: What plans.
        hp: Its hyper-parameters.
        setting: With the kinds of data that there are; placeholders will do.
        wanted: Its fraction and what it is of.

    Raises:
        BadInput: The plan is the same at every share.
    """
    changes = method.plan(hp, cut(setting, wanted)).fingerprint != method.plan(hp, setting).fingerprint
    require(
        wanted.fraction == 1 or changes,
        f"--fraction-of names rows that {method.__name__.rpartition('.')[2]} trains on here",
        fraction_of=wanted.fraction_of,
        remedy="Take --fraction-of all, or give the rows (--labelled, --task).",
    )


def _ranking_share(task: RankingTask, fraction: float) -> RankingTask:
    """A student reads a share of the claims; a teacher that is trained, and asked, has them all."""
    return dataclasses.replace(task, fraction=fraction, rows=max(1, round(fraction * task.rows)))


def _share(examples: Examples, fraction: float) -> Examples:
    return Examples(
        examples.columns, Sampled(examples, fraction), label=examples.label, values=examples.values
    )
