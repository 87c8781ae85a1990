"""The second term of IBKD: the student's vectors should keep little of what enters the student.

B  batch (here: the local part)    X  what enters the student, S  what leaves it
"""

from torch import Tensor, nn

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.types import Encoding, Terms
from stillhouse.losses.hsic import HSIC
from stillhouse.students import pooling

INPUT_LAYERS = {"embedding": 0, "penultimate": -2}
"""X by name: the index into the hidden states whose mean over the tokens is taken."""


class Bottleneck(nn.Module):
    """The term β · HSIC(X, S) of IBKD (arXiv:2311.05472) eq. 8 and 9, over the gathered batch.

    Args:
        beta: β.
        input_layer: X: ``embedding``, the mean of the embedding layer's output over the tokens, or
            ``penultimate``, that of the last layer but one.
        gamma: γ of eq. 7.
        kernel: ``rbf``, ``imq`` or ``linear``.
        bandwidth: ``fixed`` or ``median``.
        estimator: ``biased_l2`` or ``biased``.
        normalize: L2-normalise X and S before the kernels.
        detach_inputs: No gradient into X.

    Raises:
        BadInput: β negative, an unknown layer, or what `HSIC` refuses.
    """

    def __init__(
        self,
        *,
        beta: float,
        input_layer: str,
        gamma: float,
        kernel: str,
        bandwidth: str,
        estimator: str,
        normalize: bool,
        detach_inputs: bool,
    ) -> None:
        super().__init__()
        require(beta >= 0, "beta >= 0", beta=beta)
        require(input_layer in INPUT_LAYERS, f"input_layer in {list(INPUT_LAYERS)}", input_layer=input_layer)
        self.beta, self.layer = beta, INPUT_LAYERS[input_layer]
        self.hsic = HSIC(
            kernel=kernel,
            gamma=gamma,
            bandwidth=bandwidth,
            normalize=normalize,
            detach_inputs=detach_inputs,
            estimator=estimator,
        )

    def forward(self, encoding: Encoding, gathered_BD: Tensor) -> Terms:
        """``{"hsic": β · HSIC}``; nothing when β is 0.

        Args:
            encoding: The local texts, for X.
            gathered_BD: Their vectors S, gathered.
        """
        if self.beta == 0:
            return {}
        return {"hsic": self.beta * self.hsic(gather(self._inputs(encoding)), gathered_BD)}

    def kernel_means(self, encoding: Encoding) -> dict[str, float]:
        """The kernels' means off the diagonal over the local texts, to be logged; no rank waits."""
        if self.beta == 0:
            return {}
        inputs, student = self.hsic.kernel_means(self._inputs(encoding), encoding.embedding_BD)
        return {"kernel_mean_inputs": inputs.item(), "kernel_mean_student": student.item()}

    def _inputs(self, encoding: Encoding) -> Tensor:
        assert len(encoding.hidden) >= 2, "a student gives its hidden states"
        return pooling.mean_of(encoding, self.layer)
