"""Cost that a term adds to a step: IBKD's HSIC, and a memory bank of 65 536 teacher vectors, at batch 256.

A step with the term and a step without it take turns on the same batch.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from harness import Row, arguments, at_most, finish, spread
from stages import make_stage, milliseconds, module_of, opened, overhead, stepping
from torch.nn import functional

from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch
from stillhouse.losses.hsic import HSIC
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.objectives.information_bottleneck import InformationBottleneck
from stillhouse.students import pooling
from stillhouse.teachers.embedding import resolve_compute
from stillhouse.training.module import StudentAndObjective
from stillhouse.training.prefetch import batches
from stillhouse.training.table import TrainingTable

SKIP = 1
Check = Callable[[StudentAndObjective, StudentAndObjective, Batch], None]


def compared(
    objectives: tuple[Spec[Any], Spec[Any]], check: Check, *, quick: bool, batch: int, steps: int
) -> tuple[list[float], list[float]]:
    """Seconds of the steps without the term and with it."""
    stages = [make_stage(objective, quick=quick, batch=batch, steps=steps) for objective in objectives]
    training: TrainingTable = opened(stages[0])
    given = list(batches(stages[0], training, "cpu", 0))
    without, with_term = (module_of(stage, training) for stage in stages)
    check(without, with_term, given[0])
    turns = zip(stepping(stages[0], without, given), stepping(stages[1], with_term, given), strict=True)
    pairs = list(turns)[SKIP:]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def check_hsic(without: StudentAndObjective, with_term: StudentAndObjective, batch: Batch) -> None:
    """The same first term; the second is HSIC of the embedding layer's mean and the vectors."""
    with torch.no_grad():
        plain, terms = without(batch), with_term(batch)
        encoding = with_term.student(batch.tokens["text"])
        inputs_BH = pooling.mean(encoding.hidden[0], batch.tokens["text"].attention_mask_BT)
        value = HSIC()(inputs_BH, encoding.embedding_BD)
    assert set(plain) == {"nce"} and torch.equal(plain["nce"], terms["nce"])
    torch.testing.assert_close(terms["hsic"], value, rtol=2e-2, atol=1e-6)


def filled(module: StudentAndObjective, size: int) -> None:
    """Give the bank vectors of texts that are in no batch."""
    bank, generator = module.objective.bank, torch.Generator().manual_seed(0)
    bank.vectors_ME.copy_(
        functional.normalize(torch.randn(size, bank.vectors_ME.shape[1], generator=generator))
    )
    bank.rows_M.copy_(torch.arange(size) + 10_000_000)


def check_bank(without: StudentAndObjective, with_term: StudentAndObjective, batch: Batch) -> None:
    """Empty, a bank changes nothing; full, the loss is the cross-entropy over batch and bank."""
    with torch.no_grad():
        with_term.eval()
        torch.testing.assert_close(without(batch)["nce"], with_term(batch)["nce"], rtol=1e-5, atol=1e-6)
        filled(with_term, with_term.objective.bank.size)
        said_BD, teacher_BE = (
            functional.normalize(vectors.float())
            for vectors in (
                with_term.student(batch.tokens["text"]).embedding_BD,
                batch.teacher["text"].embedding_BD,
            )
        )
        logits = said_BD @ torch.cat([teacher_BE, with_term.objective.bank.vectors_ME]).T / 0.05
        direct = functional.cross_entropy(logits, torch.arange(len(logits)))
        torch.testing.assert_close(with_term(batch)["nce"], direct, rtol=2e-2, atol=0)
        with_term.train()


def main() -> int:
    """HSIC, then the bank."""
    options = arguments(__doc__).parse_args()
    batch, steps, size = (32, 4, 2048) if options.quick else (256, 9, 65_536)
    sizes = {"quick": options.quick, "batch": batch, "steps": steps}
    bank = spec(MemoryBank, size=size, precision=resolve_compute("cpu", "auto"))
    terms: dict[str, tuple[tuple[Spec[Any], Spec[Any]], Check, float]] = {
        "IBKD's HSIC term": (
            (spec(InformationBottleneck, beta=0.0), spec(InformationBottleneck, beta=1.0)),
            check_hsic,
            5,
        ),
        f"a memory bank of {size:,} × 384 in CKD": (
            (
                spec(ContrastiveDistillation),
                spec(ContrastiveDistillation, bank=bank),
            ),
            check_bank,
            10,
        ),
    }
    rows = []
    for what, (objectives, check, target) in terms.items():
        without: list[float] = []
        with_term: list[float] = []
        for _ in range(1 if options.quick else min(2, options.repeats)):
            pairs = compared(objectives, check, **sizes)
            without += pairs[0]
            with_term += pairs[1]
        rows.append(
            Row(
                f"{what}, batch {batch}: what it adds to a step",
                "the step without it",
                **at_most(overhead(without, with_term), target, "%"),
                ours=spread(milliseconds(with_term), "ms"),
                peer=spread(milliseconds(without), "ms"),
                note=f"{len(without)} steps of each in turn; the values checked against the formula",
            )
        )
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
