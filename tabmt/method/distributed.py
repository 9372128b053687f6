"""Several processes that train one network, each on its share of every batch.

Started by torchrun or Slurm; a process by itself is a group of one. Every process draws the same
batches and masks from the seed and has the same weights; gradients are summed.
"""

import atexit
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn

from tabmt.errors import UserError

log = logging.getLogger(__name__)

# The first process may take hours to encode a large table while the others wait. This group has a
# long timeout; a process that has died meanwhile is noticed at once.
LONG_TIMEOUT = timedelta(days=1)
_waiting_group: distributed.ProcessGroup | None = None


@dataclass(frozen=True)
class Group:
    rank: int
    size: int

    @classmethod
    def current(cls) -> "Group":
        """The group that this process has joined, or this process alone."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls(0, 1)

    @property
    def share(self) -> slice:
        """The rows of a batch that belong to this process."""
        return slice(self.rank, None, self.size)

    def sum(self, value: float, device: torch.device) -> float:
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.all_reduce(total)
        return float(total)

    def broadcast(self, value: float, device: torch.device) -> float:
        """The value of the first process, so that processes with different clocks agree."""
        if self.size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.broadcast(shared, 0)
        return float(shared)

    def broadcast_text(self, text: str) -> str:
        """The text of the first process, for which the others may wait long."""
        if self.size == 1:
            return text
        shared = [text]
        try:
            distributed.broadcast_object_list(shared, 0, group=_waiting_group)
        except RuntimeError as error:
            raise UserError(
                "Another training process stopped with an error; see its output."
            ) from error
        return shared[0]

    def average_gradients(self, net: nn.Module, count: int) -> None:
        """Give every process the mean gradient over the `count` cells of the whole batch."""
        if self.size == 1:
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter.grad /= count
            return
        # A column that no row of this process predicts has no gradient here, but may elsewhere.
        gradients: list[Tensor] = []
        for parameter in net.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= count
        pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))


SLURM = {  # set by srun, but not in the shell of a job
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_STEP_NUM_TASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
}


def join() -> Group:
    """Join the group for which torchrun, or srun with MASTER_ADDR and MASTER_PORT set, has started
    this process, if any."""
    if os.environ.keys() >= {"MASTER_ADDR", "MASTER_PORT", *SLURM.values()}:
        for name, of_slurm in SLURM.items():
            os.environ.setdefault(name, os.environ[of_slurm])
    known = os.environ.keys() >= {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}
    if "RANK" in os.environ and not known:
        log.warning(
            "RANK is set, but other variables of torchrun are not; training in one process."
        )
    if known and not distributed.is_initialized():
        global _waiting_group
        if torch.cuda.is_available():
            local = int(os.environ.get("LOCAL_RANK", "0"))
            torch.cuda.set_device(local % torch.cuda.device_count())  # each may see only its own
        gpu = torch.cuda.is_available()
        try:
            distributed.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
            _waiting_group = distributed.new_group(backend="gloo", timeout=LONG_TIMEOUT)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"The processes cannot connect to each other: {reason}") from error
        atexit.register(distributed.destroy_process_group)
    return Group.current()
