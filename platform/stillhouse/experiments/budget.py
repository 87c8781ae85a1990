"""How long an experiment trains, and on what share of its rows."""

import dataclasses
from dataclasses import dataclass, field

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.values.stage import Loop

FRACTION_OF = ("all", "sentences", "labels")
DISTIL, FINETUNE = 8192, 768
"""Budgets of methods that state none."""


@dataclass(frozen=True)
class Refit:
    """Length of the second training of a search's best trials, on all of the rows; see `sweeps.refit`.

    Attributes:
        distil: Examples that the distillation stage sees; 0 takes as many as a trial.
        finetune: Examples that the fine-tuning stage sees; -1 takes as many as a trial.
        evaluations: Dev evaluations per stage, at equal intervals.
        top: Number of trials that are trained again, the best ones by the dev figure; 0 trains none.
    """

    distil: int = 0
    finetune: int = -1
    evaluations: int = 4
    top: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "budget.refit")
        require(self.distil >= 0, "budget.refit.distil >= 0", distil=self.distil)
        require(self.finetune >= -1, "budget.refit.finetune >= -1", finetune=self.finetune)
        require(self.evaluations > 0, "budget.refit.evaluations > 0", evaluations=self.evaluations)
        require(self.top >= 0, "budget.refit.top >= 0", top=self.top)

    @property
    def asked_for(self) -> bool:
        """True if any trial is trained again."""
        return self.top > 0 and (self.distil > 0 or self.finetune > 0)


@dataclass(frozen=True)
class Budget(Loop):
    """How long the stages of every trial are.

    Attributes:
        distil: Examples that the distillation stage sees; 0 takes the method's own number.
        finetune: Examples that the fine-tuning stage sees; 0 leaves the stage out, -1 takes the method's own
            number.
        epochs: Passes of the distillation stage over the rows that it reads, instead of ``distil``. Every
            stage counts its own rows: what a share, copies and missing data leave.
        finetune_epochs: The same for the fine-tuning stage and ``finetune``, where 0 still leaves it out.
        evaluations: Dev evaluations per stage, at equal intervals.
        every: Optimiser steps between two dev evaluations of a stage, whatever its length, instead of
            ``evaluations``; 0 takes those.
        patience: Evaluations without a better dev figure before a stage ends; 0 never ends it early.
        finetune_patience: The same for the fine-tuning stage; -1 takes ``patience``.
        fraction: Share of the training rows. A smaller share is part of a larger one; examples stay, epochs
            are passes over the share.
        fraction_of: Rows that ``fraction`` applies to: ``sentences`` (or translations, or claims), ``labels``
            (pairs, or a task's rows), or ``all``.
        refit: How long the best trials of a search are trained again.
    """

    distil: int = 0
    finetune: int = -1
    epochs: float | None = None
    finetune_epochs: float | None = None
    evaluations: int = 2
    every: int = 0
    patience: int = 0
    finetune_patience: int = -1
    fraction: float = 1.0
    fraction_of: str = "all"
    refit: Refit = field(default_factory=Refit)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "budget")
        require(self.distil >= 0, "budget.distil >= 0", distil=self.distil)
        require(self.finetune >= -1, "budget.finetune >= -1", finetune=self.finetune)
        self._check_epochs()
        require(self.evaluations > 0, "budget.evaluations > 0", evaluations=self.evaluations)
        require(self.every >= 0, "budget.every >= 0", every=self.every)
        require(self.patience >= 0, "budget.patience >= 0", patience=self.patience)
        require(
            self.finetune_patience >= -1,
            "budget.finetune_patience >= -1",
            finetune_patience=self.finetune_patience,
        )
        self.check_loop("budget.")
        require(
            self.soup <= self.evaluations or self.every > 0,
            "budget.soup <= budget.evaluations",
            soup=self.soup,
            evaluations=self.evaluations,
            remedy="Raise --evaluations: only weights that are evaluated can be averaged.",
        )
        require(0 < self.fraction <= 1, "0 < fraction <= 1", fraction=self.fraction)
        require(
            self.fraction_of in FRACTION_OF, f"fraction_of in {FRACTION_OF}", fraction_of=self.fraction_of
        )
        require(
            self.shard_window == 0 or self.share_of("sentences") == 1,
            "budget.shard_window must be of all rows of the sentences",
            shard_window=self.shard_window,
            fraction=self.fraction,
            remedy="Leave one of the two out: a share of the rows is chosen among those of all shards.",
        )

    def _check_epochs(self) -> None:
        for name, examples, refit in (
            ("epochs", self.distil, self.refit.distil),
            ("finetune_epochs", self.finetune, self.refit.finetune),
        ):
            epochs = getattr(self, name)
            require(epochs is None or epochs > 0, f"budget.{name} > 0", **{name: epochs})
            require(
                epochs is None or (examples <= 0 and refit <= 0),
                f"a stage and its refit must have budget.{name} or examples",
                **{name: epochs, "examples": examples, "refit": refit},
                remedy="Leave one of the two out, or set the epochs to null.",
            )

    def settled(self, distil: int = DISTIL, finetune: int = FINETUNE) -> "Budget":
        """The same budget with these numbers of examples where it states neither examples nor epochs."""
        return dataclasses.replace(
            self,
            distil=self.distil or (distil if self.epochs is None else 0),
            finetune=finetune if self.finetune < 0 and self.finetune_epochs is None else self.finetune,
        )

    def of_refit(self) -> "Budget":
        """The budget of a refit: its own lengths, and all of the rows.

        Raises:
            BadInput: A stage of the refit is shorter than that of a trial.
        """
        distil, finetune = self.refit.distil, self.refit.finetune
        settled = self.settled()
        for stage, own, trial in (
            ("distil", distil or settled.distil, settled.distil),
            ("finetune", settled.finetune if finetune < 0 else finetune, settled.finetune),
        ):
            require(
                own >= trial,
                f"budget.refit.{stage} >= budget.{stage}",
                refit=own,
                trial=trial,
                remedy=f"Raise budget.refit.{stage}, or give --refit-top 0 for no refit.",
            )
        return dataclasses.replace(
            self,
            distil=distil or settled.distil,
            finetune=settled.finetune if finetune < 0 else finetune,
            evaluations=self.refit.evaluations,
            fraction=1.0,
            refit=Refit(),
        )

    def share_of(self, rows: str) -> float:
        """The share of the ``sentences`` or of the ``labels`` that is trained on."""
        return self.fraction if self.fraction_of in (rows, "all") else 1.0
