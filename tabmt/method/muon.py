"""Muon: momentum whose update of a matrix is made orthogonal, for the matrices of the blocks.

After Jordan et al., *Muon: An optimizer for hidden layers in neural networks* (2024). All singular
values of an update become about 1, so that rare directions are learned as fast as frequent ones.
The same formulas as `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`. That one computes one
matrix at a time, in bfloat16, which is very slow on CPUs without instructions for it; here matrices
of one shape are computed together, in float32.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
ITERATIONS = 5
MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """Steps of the length of AdamW's, so that both can share a learning rate and its schedule.

    A parameter in `stacked` is several square matrices, one below the other, as queries, keys and
    values: each is made orthogonal by itself.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        stacked: Sequence[nn.Parameter] = (),
    ) -> None:
        super().__init__(list(matrices), {"lr": lr, "weight_decay": weight_decay})
        self._stacked = {id(parameter) for parameter in stacked}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            updates = [self._momentum(parameter) for parameter in parameters]
            pieces = [
                piece
                for parameter, update in zip(parameters, updates, strict=True)
                for piece in self._split(parameter, update)
            ]
            targets = [piece for p in parameters for piece in self._split(p, p.data)]
            torch._foreach_mul_(targets, 1 - group["lr"] * group["weight_decay"])
            for target, update in zip(targets, orthogonalise(pieces), strict=True):
                target.add_(update, alpha=-0.2 * max(target.shape) ** 0.5 * group["lr"])

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        """The update before it is made orthogonal: Nesterov's momentum."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        return parameter.grad.lerp(momentum, MOMENTUM)

    def _split(self, parameter: nn.Parameter, matrix: Tensor) -> tuple[Tensor, ...]:
        if id(parameter) not in self._stacked:
            return (matrix,)
        return torch.split(matrix, matrix.shape[1])


def orthogonalise(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Each matrix U S V^T as about U V^T, by five steps of Newton-Schulz."""
    wide = [m.T if m.shape[0] > m.shape[1] else m for m in matrices]
    shapes = sorted({tuple(m.shape) for m in wide})
    result: dict[int, Tensor] = {}
    a, b, c = COEFFICIENTS
    for shape in shapes:
        indices = [index for index, m in enumerate(wide) if tuple(m.shape) == shape]
        x = torch.stack([wide[index] for index in indices])  # (n, rows, columns)
        x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
        for _ in range(ITERATIONS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        for index, piece in zip(indices, x, strict=True):
            result[index] = (
                piece.T if matrices[index].shape[0] > matrices[index].shape[1] else piece
            )
    return [result[index] for index in range(len(matrices))]
