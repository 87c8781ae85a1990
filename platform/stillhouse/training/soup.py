"""The soup of a stage: the mean of its best evaluated weights, kept if it measures better than each of them.

Wortsman et al., Model soups, ICML 2022, arXiv:2203.05482, average models that were fine-tuned apart; here
they are the checkpoints of one run, as is common.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Soup:
    """The result of a stage's soup.

    Attributes:
        steps: The steps whose weights it is the mean of, best first.
        metrics: Its dev metrics; empty if it collapsed.
        kept: Whether it is the stage's result.
    """

    steps: tuple[int, ...]
    metrics: dict[str, float]
    kept: bool


def mean_of(states: Sequence[Mapping[str, Tensor]], module: nn.Module) -> dict[str, Tensor]:
    """Average the states of a module.

    Args:
        states: The states; at least one, all with the same names.
        module: Its parameters are averaged; everything else, such as a memory bank, is that of the first.

    Returns:
        New tensors; the mean is computed in float64 and has the type of the weight.
    """
    trained = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    return {
        name: (
            torch.stack([state[name].double() for state in states]).mean(dim=0).to(value.dtype)
            if name in trained
            else value.clone()
        )
        for name, value in states[0].items()
    }
