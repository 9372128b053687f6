"""Every setting with its default and its help text, once.

The classes stand here, not beside the code they configure, because the command line is generated
from them and must answer `--help` without importing torch.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tabmt.errors import UserError

Gaps = Literal["learned", "masked"]
Quantizer = Literal["kmeans", "quantile", "uniform", "none"]
Decode = Literal["inside", "centre"]
Imputation = Literal["draw", "mode", "mean"]
NetworkName = Literal["any-order", "masked"]
Device = Literal["auto", "cpu", "cuda"]
Engine = Literal["local", "ray"]
SamplerName = Literal["nsga2", "tpe", "gp", "guided", "random"]
Privacy = Literal["dcr", "closer", "attack"]
Quality = Literal["mle", "detector"]
SpaceName = Literal["cpu", "paper"]
Objective = Literal["mle", "likelihood"]


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A dataclass field whose help text also feeds the command line.

    `auto=True` marks what is chosen (`automatic`) unless the user gives it.
    """
    return field(default=default, metadata={"help": help, **metadata})


@dataclass(frozen=True, kw_only=True)
class CodecConfig:
    """How columns become codes."""

    gaps: Gaps = option(
        "learned",
        "gaps are learned and generated, or masked in training and never generated (the paper)",
        choices=get_args(Gaps),
    )
    quantizer: Quantizer = option(
        "kmeans",
        "how numbers are cut into bins; none gives every distinct value its own code",
        choices=get_args(Quantizer),
    )
    max_bins: int | None = option(
        None,
        "most codes of a number column; without it up to 100, fewer for small tables",
        minimum=2,
        type=int,
    )


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Size and regularisation of the network."""

    network: NetworkName = option(
        "any-order",
        "any-order: causal over random orders, fast; masked: the paper's bidirectional encoder",
        choices=get_args(NetworkName),
    )
    width: int = option(64, "width of the embeddings", minimum=1)
    depth: int = option(4, "number of transformer blocks", minimum=1, auto=True)
    heads: int = option(4, "attention heads per block; must divide the width", minimum=1)
    dropout: float = option(0.0, "dropout rate", minimum=0.0, below=1.0, auto=True)
    smoothing: float = option(
        2.0,
        "how far, in codes, numbers share what is learned of their neighbours; 0 as in the paper",
        minimum=0.0,
    )
    drop_path: float = option(0.0, "rate of whole blocks skipped, per row", minimum=0.0, below=1.0)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the network is trained."""

    steps: int = option(5000, "most optimizer steps", minimum=0)
    minutes: float | None = option(
        None, "train for this long instead of a number of steps", minimum=0.0, type=float
    )
    batch_size: int = option(512, "rows per step", minimum=1, auto=True)
    learning_rate: float = option(2e-3, "peak learning rate", minimum=0.0, auto=True)
    weight_decay: float = option(1e-2, "decoupled weight decay of the matrices", minimum=0.0)
    warmup: int = option(
        100, "steps of linear warm-up before the cosine annealing", minimum=0, auto=True
    )
    clip: float = option(1.0, "largest norm of the gradient", minimum=0.0)
    valid_share: float = option(
        0.1, "share of the rows held out for early stopping", minimum=0.0, below=1.0, auto=True
    )
    eval_every: int = option(
        200, "most steps between looks at the held-out rows; fewer for small tables", minimum=1
    )
    patience: int = option(3, "worse looks in a row before training stops", minimum=1)
    finish: float = option(
        0.5,
        "after an early stop, steps with all rows, as a share of the steps of the kept weights",
        minimum=0.0,
        below=100.0,
    )
    sampled_codes: int = option(
        0,
        "for columns of very many values: compare the right one with so many others in each step "
        "(half are the most frequent, half drawn anew); 0 compares it with all, exactly",
        minimum=0,
    )
    target: str | None = option(
        None, "a column to be predicted: drawn last, given all others", type=str
    )
    checkpoint_every: float = option(60.0, "seconds between checkpoints", minimum=0.0)
    device: Device = option("auto", "where to compute", choices=get_args(Device))
    threads: int | None = option(
        None,
        "CPU threads; without it as many as pay at the moment, so give it to repeat a fit exactly",
        minimum=1,
        type=int,
    )


PAPERS_SCHEDULE = {
    "network": "masked",
    "learning_rate": 2e-3,
    "weight_decay": 1e-2,
    "batch_size": 2048,
    "warmup": 10_000,
    "steps": 350_000,
}
PRESETS: dict[str, dict[str, Any]] = {  # paper, "Model topologies used in scaling experiments"
    "S": {"width": 64, "depth": 12, "heads": 4, **PAPERS_SCHEDULE},
    "M": {"width": 384, "depth": 12, "heads": 8, **PAPERS_SCHEDULE},
    "L": {"width": 576, "depth": 24, "heads": 12, **PAPERS_SCHEDULE},
}

CELLS_PER_STEP = 4096  # wide tables learn as much of fewer rows, and take more steps a minute


def automatic(network: NetworkName, rows: int, columns: int) -> dict[str, Any]:
    """Settings that suit a network and a table; docs/log.md has what they were chosen by."""
    wide = 2 ** round(math.log2(CELLS_PER_STEP / max(1, columns)))
    batch = max(32, wide) if wide < 256 else 256 if rows < 100_000 else 512
    rate = 5e-4 if rows < 1000 else 1e-3 if rows < 3000 else 2e-3
    if network == "any-order" and rows < 3000:  # more steps of fewer rows learn them sooner
        batch, rate = min(batch, 64), 5e-4 if rows < 1000 else 2e-3
    return {
        "depth": 2 if network == "any-order" else 4,
        "learning_rate": rate,
        "warmup": 20 if rows < 3000 else 100,
        "batch_size": batch,
        "dropout": 0.2 if rows < 1000 else 0.1 if rows < 5000 else 0.0,
        # Enough rows to tell when to stop; beyond that, every row is worth more in training.
        "valid_share": min(0.1, max(0.05, 500 / max(rows, 1))),
    }


def check(config: Any) -> None:
    """Refuse values outside what each field's metadata allows, naming the field and the value."""
    for item in dataclasses.fields(config):
        value, rule = getattr(config, item.name), item.metadata
        if value is None and item.default is None:
            continue
        name = item.name
        if "choices" in rule:
            if value not in rule["choices"]:
                allowed = ", ".join(rule["choices"])
                raise UserError(f"{name} is {value!r}, but must be one of: {allowed}.")
            continue
        wanted = rule.get("type", type(item.default))
        if wanted is str:
            if not isinstance(value, str):
                raise UserError(f"{name} is {value!r}, but must be text.")
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or (wanted is int and not isinstance(value, int)):
            kind = "a whole number" if wanted is int else "a number"
            raise UserError(f"{name} is {value!r}, but must be {kind}.")
        if not value >= rule["minimum"]:
            raise UserError(f"{name} is {value!r}, but must be at least {rule['minimum']}.")
        if "below" in rule and not value < rule["below"]:
            raise UserError(f"{name} is {value!r}, but must be below {rule['below']}.")
    if isinstance(config, TrainConfig) and config.sampled_codes == 1:
        raise UserError("sampled_codes is 1, but must be 0 or at least 2: half of them are drawn.")
    if isinstance(config, NetworkConfig) and config.width % config.heads:
        raise UserError(
            f"heads is {config.heads}, but must divide the width of {config.width} evenly."
        )
