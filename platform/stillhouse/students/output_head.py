"""The head of a student after its states (pooling, W_proj with or without tanh, the norm), and its checks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from stillhouse.core.errors import require
from stillhouse.students.pooling import POOLINGS

Activation = Callable[[Tensor], Tensor]


def check_states(*, pooling: str, dropout: float | None = None, poolings: tuple[str, ...] = POOLINGS) -> None:
    """Check the pooling and the dropout rate of a student.

    Raises:
        BadInput: Unknown pooling, or a dropout outside [0, 1); None keeps the rates of a base model.
    """
    require(pooling in poolings, f"pooling in {poolings}", pooling=pooling)
    require(dropout is None or 0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)


def make_projection(
    hidden_size: int, dim: int | None, activation: str, seed: int
) -> tuple[nn.Linear | None, Activation | None]:
    """Build W_proj (IBKD, eq. 11), H → D without bias; with a bias and tanh it is HPD's layer.

    It starts as the identity if H = D, so that it changes nothing at first, otherwise orthogonal. Without a D
    there is none. The global random state is left unchanged.

    Raises:
        BadInput: D below 1, unknown activation, or an activation without a projection.
    """
    require(
        activation == "" or (activation == "tanh" and dim is not None),
        "projection_activation is empty, or tanh with a projection",
        projection_activation=activation,
        projection=dim,
    )
    require(dim is None or dim >= 1, "projection >= 1", projection=dim)
    if dim is None:
        return None, None
    linear = nn.Linear(hidden_size, dim, bias=bool(activation), device="meta").to_empty(device="cpu")
    if dim == hidden_size:
        nn.init.eye_(linear.weight)
    else:
        nn.init.orthogonal_(linear.weight, generator=torch.Generator().manual_seed(seed))
    if activation:
        nn.init.zeros_(linear.bias)
    return linear, torch.tanh if activation else None


def finish(
    pooled_BH: Tensor, projection: nn.Linear | None, activation: Activation | None, *, normalize: bool
) -> Tensor:
    """Compute the embedding, (B, D), in full precision also under autocast."""
    with torch.autocast(pooled_BH.device.type, enabled=False):
        vector_BD = pooled_BH if projection is None else projection(pooled_BH)
        if activation is not None:
            vector_BD = activation(vector_BD)
        return functional.normalize(vector_BD, dim=-1) if normalize else vector_BD
