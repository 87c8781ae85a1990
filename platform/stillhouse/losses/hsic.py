"""HSIC: how strongly two representations of the same texts depend on each other.

IBKD, arXiv:2311.05472, eq. 6 and 7; Gretton et al., 2005.

B  batch    H  dimension of the inputs X    D  dimension of the student's vectors S
"""

import torch
from torch import Tensor, nn

from stillhouse.core.errors import nearest, require
from stillhouse.losses.numerics import full_precision, require_batch, require_pairs, unit, widen

KERNELS = ("rbf", "imq", "linear")
ESTIMATORS = ("biased_l2", "biased")
BANDWIDTHS = ("fixed", "median")
FORMS = ("usual", "code")


class HSIC(nn.Module):
    """The Hilbert-Schmidt independence criterion of X and S, an estimate of 0 if they are independent.

    ``HSIC(X, S) = 1/l² tr(K_X H K_S H)``, H = I − 1/l 11ᵀ (eq. 6), over the l texts given.

    It depends on l: two identity kernels (γ so large that no two texts are similar) give (l−1)/l². Without
    ``normalize``, γ has no scale. X and S share one kernel and one γ; ``median`` fits a γ to each.

    Args:
        kernel: ``rbf``: exp(−γ‖x−y‖²) (eq. 7, which is printed without the minus sign and the square);
            ``imq``: (1 + γ‖x−y‖²)^(−½); ``linear``: xᵀy.
        forms: ``usual``: the kernels as above; the paper names ``imq`` and ``linear`` without printing
            them. ``code``: as the authors' code has them: ``imq`` is (γ + ‖x−y‖²)^(−½), so that a larger γ
            makes the kernel wider, and ``linear`` L2-normalises X and S whatever ``normalize`` is; ``rbf``
            is the same.
        gamma: γ.
        bandwidth: ``fixed``: γ as configured. ``median``: γ = 1 / median ‖x_i−x_j‖² over the pairs i < j of
            the batch, without gradient, at most 10⁶; for ``imq`` of the form ``code`` the median itself.
        normalize: L2-normalise X and S first.
        detach_inputs: Stop the gradient into X.
        estimator: ``biased_l2``: 1/l² (eq. 6). ``biased``: 1/(l−1)² (Gretton et al., and the authors' code).

    Raises:
        BadInput: γ is not positive, or a name is unknown.
    """

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        forms: str = "usual",
        gamma: float = 0.5,
        bandwidth: str = "fixed",
        normalize: bool = True,
        detach_inputs: bool = False,
        estimator: str = "biased_l2",
    ) -> None:
        super().__init__()
        require(
            kernel in KERNELS, f"kernel in {KERNELS}", kernel=kernel, remedy=nearest(kernel, list(KERNELS))
        )
        require(forms in FORMS, f"forms in {FORMS}", forms=forms)
        require(bandwidth in BANDWIDTHS, f"bandwidth in {BANDWIDTHS}", bandwidth=bandwidth)
        require(estimator in ESTIMATORS, f"estimator in {ESTIMATORS}", estimator=estimator)
        require(gamma > 0, "gamma > 0", gamma=gamma)
        self.kernel, self.forms, self.gamma, self.bandwidth = kernel, forms, gamma, bandwidth
        self.normalize, self.detach_inputs, self.estimator = normalize, detach_inputs, estimator

    def forward(self, inputs_BH: Tensor, student_BD: Tensor) -> Tensor:
        """Compute the HSIC of the batch, a scalar that is not negative (up to rounding).

        Raises:
            BadInput: There are fewer than two texts, or the number of inputs differs from that of vectors.
        """
        with full_precision(student_BD):
            inputs_BB, student_BB = self._kernels(inputs_BH, student_BD)
            # tr(K H L H) = Σ K ∘ (H L H), so centring one kernel is enough and H is never formed.
            trace = (inputs_BB * _centered(student_BB)).sum()
            rows = len(inputs_BB)
            return trace / (rows**2 if self.estimator == "biased_l2" else (rows - 1) ** 2)

    @torch.no_grad()
    def kernel_means(self, inputs_BH: Tensor, student_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the off-diagonal means of both kernels; a kernel near 0 or 1 is saturated."""
        with full_precision(student_BD):
            inputs_BB, student_BB = self._kernels(inputs_BH, student_BD)
            return _off_diagonal_mean(inputs_BB), _off_diagonal_mean(student_BB)

    def _kernels(self, inputs_BH: Tensor, student_BD: Tensor) -> tuple[Tensor, Tensor]:
        require_pairs(inputs_BH, student_BD)
        require_batch(len(inputs_BH))
        inputs_BH = inputs_BH.detach() if self.detach_inputs else inputs_BH
        return self._gram(inputs_BH), self._gram(student_BD)

    def _gram(self, points_BD: Tensor) -> Tensor:
        normalize = self.normalize or (self.kernel == "linear" and self.forms == "code")
        points_BD = unit(widen(points_BD)) if normalize else widen(points_BD)
        if self.kernel == "linear":
            return points_BD @ points_BD.T
        squared_BB = _squared_distances(points_BD)
        median = self.bandwidth == "median"
        gamma = _median_gamma(squared_BB) if median else self.gamma
        if self.kernel == "rbf":
            return torch.exp(-gamma * squared_BB)
        if self.forms == "code":
            return ((1 / gamma if median else gamma) + squared_BB).rsqrt()
        return (1 + gamma * squared_BB).rsqrt()


def _squared_distances(points_BD: Tensor) -> Tensor:
    # Centring keeps the distances, and loses less precision in the float32 difference below.
    points_BD = points_BD - points_BD.mean(dim=0)
    norms_B = points_BD.square().sum(dim=1)
    return (norms_B[:, None] + norms_B[None, :] - 2 * points_BD @ points_BD.T).clamp_min(0)


def _median_gamma(squared_BB: Tensor) -> Tensor:
    rows = len(squared_BB)
    above = torch.triu_indices(rows, rows, offset=1, device=squared_BB.device)
    return 1 / squared_BB.detach()[above[0], above[1]].median().clamp_min(1e-6)


def _centered(kernel_BB: Tensor) -> Tensor:
    return kernel_BB - kernel_BB.mean(dim=0) - kernel_BB.mean(dim=1, keepdim=True) + kernel_BB.mean()


def _off_diagonal_mean(kernel_BB: Tensor) -> Tensor:
    rows = len(kernel_BB)
    return (kernel_BB.sum() - kernel_BB.diagonal().sum()) / (rows * (rows - 1))
