"""Several processes that train one network, each on its share of every batch.

For `train`. Started by torchrun or Slurm; a process by itself is a group of one. Every process
draws the same batches and plans from the seed and keeps the same weights; gradients are summed.
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

# It may take the first process hours to code a large table, for which the others wait. The group is
# made while all of them live: one that has died since then is noticed at once.
PATIENCE = timedelta(days=1)
_patient: distributed.ProcessGroup | None = None


@dataclass(frozen=True)
class Group:
    rank: int
    size: int

    @classmethod
    def here(cls) -> "Group":
        """The group that this process has joined, or itself alone."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls(0, 1)

    @property
    def share(self) -> slice:
        """The rows of a batch that are this process's."""
        return slice(self.rank, None, self.size)

    def sum(self, value: float, device: torch.device) -> float:
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.all_reduce(total)
        return float(total)

    def agree(self, value: float, device: torch.device) -> float:
        """What the first process says: clocks differ."""
        if self.size == 1:
            return value
        told = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.broadcast(told, 0)
        return float(told)

    def tell(self, text: str) -> str:
        """What the first process says, once it has come to it."""
        if self.size == 1:
            return text
        told = [text]
        try:
            distributed.broadcast_object_list(told, 0, group=_patient)
        except RuntimeError as error:
            raise UserError("Another of the processes has ended; its output says why.") from error
        return told[0]

    def mean_gradients(self, net: nn.Module, count: int) -> None:
        """Every process then has the mean gradient of the `count` cells of the whole batch."""
        if self.size == 1:
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter.grad /= count
            return
        # A field that no row of ours had to predict has none, but others may have one.
        gradients: list[Tensor] = []
        for parameter in net.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= count
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


SLURM = {  # what srun sets, but not the shell of a job
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_STEP_NUM_TASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
}


def join() -> Group:
    """Join the group that torchrun, or srun with MASTER_ADDR and MASTER_PORT set, has started this
    process for, if any."""
    if os.environ.keys() >= {"MASTER_ADDR", "MASTER_PORT", *SLURM.values()}:
        for name, of_slurm in SLURM.items():
            os.environ.setdefault(name, os.environ[of_slurm])
    known = os.environ.keys() >= {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}
    if "RANK" in os.environ and not known:
        log.warning("RANK is set, but not all that torchrun sets: this process trains alone")
    if known and not distributed.is_initialized():
        global _patient
        if torch.cuda.is_available():
            local = int(os.environ.get("LOCAL_RANK", "0"))
            torch.cuda.set_device(local % torch.cuda.device_count())  # each may see but its own
        gpu = torch.cuda.is_available()
        try:
            distributed.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
            _patient = distributed.new_group(backend="gloo", timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"The processes do not find each other: {reason}") from error
        atexit.register(distributed.destroy_process_group)
    return Group.here()
