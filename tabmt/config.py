"""Every setting with its default and its help text, in one place.

The classes are here, and not with the code that they configure, because the command line is
generated from them and has to answer `--help` without importing torch.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tabmt.errors import UserError

Missing = Literal["learned", "masked"]
Quantizer = Literal["kmeans", "plain-kmeans", "quantile", "uniform", "none"]
SharedValues = Literal["auto", "codes", "bins"]
Decode = Literal["inside", "centre"]
Imputation = Literal["draw", "mode", "mean"]
NetworkName = Literal["any-order", "masked"]
InitialBias = Literal["frequencies", "zero"]
Decayed = Literal["matrices", "all"]
Optimizer = Literal["muon", "adamw"]
Precision = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
PrivateMethod = Literal["marginals", "dp-sgd"]
Engine = Literal["local", "ray"]
SamplerName = Literal["nsga2", "tpe", "gp", "guided", "random"]
Privacy = Literal["dcr", "closer", "attack"]
Quality = Literal["mle", "detector"]
Scale = Literal["log", "linear"]
SpaceName = Literal["small", "paper"]
Objective = Literal["mle", "likelihood"]


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A dataclass field whose help text also feeds the command line.

    `auto=True` marks a setting that is chosen for the table (`automatic`) unless the user sets it;
    `group` is the heading under which the command line lists it; `off` is what a flag means if it
    is False; `typed` is how a value is typed on the command line.
    """
    return field(default=default, metadata={"help": help, **metadata})


def help_in_python(item: dataclasses.Field[Any]) -> str:
    """The help text of an option, for people who write Python."""
    about = item.metadata
    return f"{about['help']}; False: {about['off']}" if "off" in about else str(about["help"])


@dataclass(frozen=True, kw_only=True)
class CodecConfig:
    """How columns become codes."""

    missing: Missing = option(
        "learned",
        'learned: treat "missing" as a value of its own and generate it; masked: mask missing '
        "values in training and never generate them (as in the paper)",
        choices=get_args(Missing),
        group="Data",
    )
    quantizer: Quantizer = option(
        "kmeans",
        "how numbers are divided into bins; kmeans: clusters; quantile: bins of about equally many "
        "rows; uniform: bins of equal width (these three with a separate bin for each frequent "
        "value); plain-kmeans: clusters only (as in the paper); none: a separate bin for each "
        "distinct value",
        choices=get_args(Quantizer),
        group="Data",
    )
    max_bins: int | None = option(
        None,
        "maximum number of bins of a numeric column  [default: up to 100, fewer for small tables]",
        minimum=2,
        type=int,
        group="Data",
    )
    shared_values: SharedValues = option(
        "auto",
        "numbers in many more rows than the numbers around them, but in too few for a separate bin "
        "as frequent values, such as 1.99 among prices; codes: each gets a bin of its own, in "
        "addition to the maximum number of bins; bins: they are binned like other numbers; auto: "
        "codes in columns where a classifier can tell real values from binned ones, and in all "
        "columns if that is not enough; otherwise, and in tables larger than memory, bins",
        choices=get_args(SharedValues),
        group="Data",
    )
    few_values: int = option(
        10,
        "a column of whole numbers with at most this many distinct values is treated as "
        "categorical; 0: never (as in the paper)",
        minimum=0,
        group="Data",
    )
    find_ids: bool = option(
        True,
        "generate new values for columns of unique keys",
        off="learn them like any other column (as in the paper)",
        flag="--find-ids/--no-find-ids",
        group="Data",
    )
    find_rules: bool = option(
        True,
        "find rules that the table satisfies (sums, columns determined by another column, flags of "
        "which exactly one is set, values that always occur together) and satisfy them in every "
        "generated row",
        off="leave them to the network (as in the paper)",
        flag="--find-rules/--no-find-rules",
        group="Data",
    )
    protect: int = option(
        5,
        "privacy threshold: categories and individual numbers are stored in the model only if they "
        "occur in at least this many rows; rarer categories are not generated, other numbers are "
        "stored only as averages, and extreme ones are clipped; 0: store everything (as in the "
        "paper)",
        minimum=0,
        group="Data",
    )
    rare_text: str | None = option(
        None,
        "text that generated rows show instead of a rare category  [default: none; a frequent "
        "category is generated instead]",
        type=str,
        group="Data",
    )


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Size and regularisation of the network."""

    network: NetworkName = option(
        "any-order",
        "any-order: fast causal transformer over random column orders; "
        "masked: the paper's bidirectional encoder",
        choices=get_args(NetworkName),
        group="Network",
    )
    width: int = option(64, "embedding width", minimum=1, group="Network")
    depth: int = option(4, "number of transformer blocks", minimum=1, auto=True, group="Network")
    heads: int = option(
        4, "attention heads per block; must divide the width", minimum=1, group="Network"
    )
    dropout: float = option(0.0, "dropout rate", minimum=0.0, below=1.0, auto=True, group="Network")
    smoothing: float = option(
        2.0,
        "standard deviation, in bins, of the Gaussian that smooths the embeddings of neighbouring "
        "bins; 0: off (as in the paper)",
        minimum=0.0,
        group="Network",
    )
    drop_path: float = option(
        0.0, "probability of skipping a block for a row", minimum=0.0, below=1.0, group="Network"
    )
    initial_bias: InitialBias = option(
        "frequencies",
        "output biases before training: the logarithms of the values' frequencies, or zero (as in "
        "the paper)",
        choices=get_args(InitialBias),
        group="Network",
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the network is trained."""

    steps: int = option(5000, "maximum number of training steps", minimum=0, group="Training")
    minutes: float | None = option(
        None,
        "maximum training time in minutes; the number of steps is then ignored",
        minimum=0.0,
        type=float,
        group="Training",
    )
    batch_size: int = option(512, "rows per step", minimum=1, auto=True, group="Training")
    learning_rate: float = option(
        2e-3, "peak learning rate", minimum=0.0, auto=True, group="Training"
    )
    optimizer: Optimizer = option(
        "muon",
        "muon: Muon for the matrices of the blocks, AdamW for everything else; adamw: AdamW for "
        "all parameters (as in the paper)",
        choices=get_args(Optimizer),
        group="Training",
    )
    weight_decay: float = option(1e-2, "decoupled weight decay", minimum=0.0, group="Training")
    weight_decay_on: Decayed = option(
        "matrices",
        "what weight decay applies to: the matrices of linear layers, or all parameters (as in the "
        "paper)",
        choices=get_args(Decayed),
        group="Training",
    )
    warmup: int = option(
        100,
        "steps of linear warm-up before the cosine decay",
        minimum=0,
        auto=True,
        group="Training",
    )
    clip: float = option(
        1.0,
        "maximum norm of the gradient; 0 for no clipping (as in the paper)",
        minimum=0.0,
        group="Training",
    )
    average_steps: int = option(
        300,
        "keep a running average of the weights over about this many steps; 0: no averaging (as in "
        "the paper)",
        minimum=0,
        group="Training",
    )
    valid_share: float = option(
        0.1,
        "share of the rows used for validation; 0 for no early stopping (as in the paper)",
        minimum=0.0,
        below=1.0,
        auto=True,
        group="Training",
    )
    eval_every: int = option(
        200,
        "number of steps between validation checks (fewer for small tables)",
        minimum=1,
        group="Training",
    )
    patience: int = option(
        3,
        "stop after this many validation checks in a row that are clearly worse than the best one; "
        "if they are not clearly worse, only when half as many steps as the best one took have "
        "passed without improvement",
        minimum=1,
        group="Training",
    )
    finish: float = option(
        0.5,
        "after early stopping, train the best weights further on all rows, validation rows "
        "included, for this fraction of the steps that led to them; 0 for none (as in the paper)",
        minimum=0.0,
        below=100.0,
        group="Training",
    )
    sampled_codes: int = option(
        0,
        "for columns with very many distinct values, estimate the loss from this many of them per "
        "step (half the most frequent, half random); 0 computes it exactly",
        minimum=0,
        group="Training",
    )
    target: str | None = option(
        None,
        "column that you will later predict from the others; it is generated last",
        type=str,
        group="Data",
    )
    checkpoint_every: float = option(
        60.0, "seconds between checkpoints", minimum=0.0, group="Output"
    )
    device: Device = option(
        "auto", "device to compute on", choices=get_args(Device), group="Hardware"
    )
    precision: Precision = option(
        "auto",
        "number format of the matrix products in training; auto: bfloat16 if the CPU has faster "
        "instructions for it, else float32 (as in the paper)",
        choices=get_args(Precision),
        group="Hardware",
    )
    threads: int | None = option(
        None,
        "number of CPU threads; set it for reproducible fits  [default: one or all, whichever is "
        "faster when the fit starts]",
        minimum=1,
        type=int,
        group="Hardware",
    )


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How the fitted model generates rows. Part of the model, like the weights."""

    decode: Decode = option(
        "inside",
        "inside: return a random number from the bin; centre: always return the centre of the bin "
        "(as in the paper)",
        choices=get_args(Decode),
        group="Generation",
    )
    rows_per_order: int | None = option(
        None,
        "number of rows that share one random order of the columns, a power of two up to 16384 "
        "(512 in the paper)  [default: 1/64 of the rows to generate, at least 64 and at most 4096]",
        minimum=1,
        type=int,
        group="Generation",
    )
    target_last: bool = option(
        True,
        "generate the target last, given all other columns",
        off="at a random position like the others (as in the paper)",
        flag="--target-last/--no-target-last",
        group="Generation",
    )
    large_columns_first: bool = option(
        True,
        "generate columns with more than 1,000 categories or bins first",
        off="at a random position like the others (as in the paper)",
        flag="--large-columns-first/--no-large-columns-first",
        group="Generation",
    )
    calibrate_missing: bool = option(
        True,
        "after training, correct the rates at which missing values are generated",
        off="leave them as they are (the paper generates none)",
        flag="--calibrate-missing/--no-calibrate-missing",
        group="Generation",
    )


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """Differential privacy of the whole model."""

    epsilon: float | None = option(
        None,
        "differential privacy: how much the model may depend on any one row; everything in the "
        "model file is covered, and smaller is safer; see docs/privacy.md  [default: no "
        "differential privacy]",
        minimum=0.0,
        type=float,
        group="Data",
    )
    delta: float = option(
        1e-6,
        "with --epsilon, the probability that the promise does not hold; it should be far below 1 "
        "/ rows",
        minimum=0.0,
        group="Data",
    )
    private_method: PrivateMethod = option(
        "marginals",
        "with --epsilon, what is learned with noise; marginals: counts of pairs and triples of "
        "columns, from which the network learns; dp-sgd: the gradients of the network",
        choices=get_args(PrivateMethod),
        group="Data",
    )


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """How values are generated, in new rows and in completed ones."""

    seed: int | None = option(
        None, "random seed; the same seed gives the same rows  [default: random]", type=int
    )
    temperature: float | Mapping[str, float] | None = option(
        None,
        "sampling temperature: above 1 gives more unusual values, below 1 more typical ones  "
        "[default: 1, or what `tabmt pareto apply` has set]",
        typed="T sets all columns, COLUMN=T one column; later options override earlier ones",
        metavar="T | COLUMN=T",
        multiple=True,
    )
    allow_missing: bool = option(
        True,
        "generate missing values as often as in the training table (a model fitted with masked "
        "missing values never generates any)",
        off="generate none",
        flag="--allow-missing/--no-missing",
    )
    decode: Decode | None = option(
        None,
        "inside: return a random number from the bin; centre: always return the centre of the bin "
        " [default: as the model was fitted]",
        choices=get_args(Decode),
    )


@dataclass(frozen=True, kw_only=True)
class SampleOptions(DrawOptions):
    """How new rows are generated. Python, the command line, streams and folders take the same."""

    where: Mapping[str, Any] | Sequence[str] | str | None = option(
        None,
        'condition that every row must satisfy: "age in 30..40", "age >= 18", "sex = Female", '
        '"city in {Oslo, Bergen}", "x is missing", "x is not missing"; put names with spaces or '
        "other special characters in quotes",
        metavar="CONDITION",
        multiple=True,
    )
    balance: str | Mapping[str, Mapping[Any, float]] | None = option(
        None,
        "column whose values are generated equally often, or in these shares",
        type=str,
        metavar="COLUMN[:VALUE=SHARE,...]",
    )


# The method of the paper, without any departure of ours (docs/method.md lists them).
PAPER_METHOD: dict[str, Any] = {
    "network": "masked",
    "missing": "masked",
    "quantizer": "plain-kmeans",
    "shared_values": "bins",
    "few_values": 0,
    "find_ids": False,
    "find_rules": False,
    "protect": 0,
    "smoothing": 0.0,
    "initial_bias": "zero",
    "optimizer": "adamw",
    "precision": "float32",
    "weight_decay_on": "all",
    "clip": 0.0,
    "average_steps": 0,
    "warmup": 0,
    "valid_share": 0.0,
    "finish": 0.0,
    "decode": "centre",
    "rows_per_order": 512,
    "target_last": False,
    "large_columns_first": False,
    "calibrate_missing": False,
}
# Sizes from the paper's search space, which gives no defaults: its smaller networks, as they train
# on a CPU. `tune --config paper --space paper` searches them, as the paper does for every table.
PAPER: dict[str, Any] = {
    **PAPER_METHOD,
    "max_bins": 100,
    "width": 64,
    "depth": 4,
    "heads": 4,
    "dropout": 0.1,
    "drop_path": 0.0,
    "learning_rate": 1e-3,
    "weight_decay": 1e-2,
    "batch_size": 256,
    "steps": 10_000,
}
LARGE_SCHEDULE: dict[str, Any] = {  # paper, section "Scaling"
    "dropout": 0.0,
    "learning_rate": 2e-3,
    "weight_decay": 1e-2,
    "batch_size": 2048,
    "warmup": 10_000,
    "steps": 350_000,
}
PRESETS: dict[str, dict[str, Any]] = {  # S, M, L: paper, "Model topologies"
    "paper": PAPER,
    "S": {**PAPER, **LARGE_SCHEDULE, "width": 64, "depth": 12, "heads": 4},
    "M": {**PAPER, **LARGE_SCHEDULE, "width": 384, "depth": 12, "heads": 8},
    "L": {**PAPER, **LARGE_SCHEDULE, "width": 576, "depth": 24, "heads": 12},
}
# How the paper searches settings and temperatures, for `tune` and `pareto`.
PAPER_TUNE: dict[str, Any] = {
    "space": "paper",
    "prune": False,
    "compare_defaults": False,
    "multiplier": 8,
}
PAPER_PARETO: dict[str, Any] = {
    "sampler": "nsga2",
    "scale": "linear",
    "uniform_first": False,
    "population": 50,  # Optuna's default
    "multiplier": 8,
    "quick": False,
}

MOST_ROWS_PER_ORDER = 2**14
MOST_EPSILON, MOST_DELTA = 100, 1e-3
LEAST_BINS, MOST_BINS = 10, 100
ROWS_PER_BIN = 50
CELLS_PER_STEP = 4096  # wide tables learn as much from fewer rows, and take more steps a minute


def automatic(
    network: NetworkName, rows: int, columns: int, steps: int, optimizer: Optimizer
) -> dict[str, Any]:
    """Settings that suit a network, a table, a number of steps and an optimizer; docs/log.md says
    how they were chosen.

    PAPER-DIFF batch_size, learning_rate, dropout, depth, warmup: the paper searches them for every
    table (`tune --space paper`), which takes days.
    """
    wide = 2 ** round(math.log2(CELLS_PER_STEP / max(1, columns)))
    batch = max(32, wide) if wide < 256 else 256 if rows < 100_000 else 512
    rate = 5e-4 if rows < 1000 else 1e-3 if rows < 3000 else 2e-3
    if network == "any-order" and rows < 3000:  # more steps of fewer rows learn them sooner
        batch, rate = min(batch, 64), 5e-4 if rows < 1000 else 2e-3
    if optimizer == "muon":
        rate *= 4  # what AdamW does not bear
    return {
        "depth": 2 if network == "any-order" else 4,
        "learning_rate": rate,
        "warmup": min(20 if rows < 3000 else 100, steps),
        "batch_size": batch,
        "dropout": 0.2 if rows < 1000 else 0.1 if rows < 5000 else 0.0,
        # Enough rows to decide when to stop; beyond that, every row is worth more in training.
        "valid_share": min(0.1, max(0.05, 500 / max(rows, 1))),
    }


def most_bins(max_bins: int | None, rows: int) -> int:
    """The number of bins of a numeric column with so many known values."""
    if max_bins is not None:
        return max_bins
    return min(MOST_BINS, max(LEAST_BINS, rows // ROWS_PER_BIN))


def setting_names() -> set[str]:
    """The names of all settings of a fit, and of the seed."""
    classes = (CodecConfig, NetworkConfig, TrainConfig, GenerationConfig, PrivacyConfig)
    return {"seed", *(item.name for one in classes for item in dataclasses.fields(one))}


def check(config: Any) -> None:
    """Refuse values outside what each field allows, naming the field and the value."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if value is not None or item.default is not None:
            _check_field(item, value)
    if isinstance(config, TrainConfig):
        _check_training(config)
    if isinstance(config, PrivacyConfig):
        _check_privacy(config)
    if isinstance(config, CodecConfig) and config.protect == 1:
        raise UserError("protect is 1, but must be 0 (off) or at least 2.")
    if isinstance(config, GenerationConfig):
        rows = config.rows_per_order
        if rows is not None and MOST_ROWS_PER_ORDER % rows:
            raise UserError(
                f"rows_per_order is {rows}, but must be a power of two up to {MOST_ROWS_PER_ORDER}."
            )
    if isinstance(config, NetworkConfig) and config.width % config.heads:
        raise UserError(
            f"heads is {config.heads}, but must divide the width of {config.width} evenly."
        )


def _check_field(item: dataclasses.Field[Any], value: Any) -> None:
    name, rule = item.name, item.metadata
    if "choices" in rule:
        if value not in rule["choices"]:
            allowed = ", ".join(rule["choices"])
            raise UserError(f"{name} is {value!r}, but must be one of: {allowed}.")
        return
    wanted = rule.get("type", type(item.default))
    if wanted is bool:
        if not isinstance(value, bool):
            raise UserError(f"{name} is {value!r}, but must be True or False.")
        return
    if wanted is str:
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r}, but must be text.")
        return
    if not is_number(value) or (wanted is int and not isinstance(value, int)):
        kind = "a whole number" if wanted is int else "a number"
        raise UserError(f"{name} is {value!r}, but must be {kind}.")
    if not value >= rule["minimum"]:
        raise UserError(f"{name} is {value!r}, but must be at least {rule['minimum']}.")
    if "below" in rule and not value < rule["below"]:
        raise UserError(f"{name} is {value!r}, but must be below {rule['below']}.")


def _check_training(config: TrainConfig) -> None:
    if config.minutes is None and 0 < config.steps < config.warmup:
        raise UserError(
            f"warmup is {config.warmup}, but training has only {config.steps} steps; set warmup to "
            f"at most {config.steps}."
        )
    if config.sampled_codes == 1:
        raise UserError("sampled_codes is 1, but must be 0 or at least 2.")


def _check_privacy(config: PrivacyConfig) -> None:
    epsilon, delta = config.epsilon, config.delta
    if epsilon is None:
        for name in ("delta", "private_method"):
            if getattr(config, name) != getattr(PrivacyConfig, name):
                raise UserError(
                    f"{name} is {getattr(config, name)!r}, but epsilon is not set; set epsilon "
                    "(--epsilon) for differential privacy."
                )
        return
    if not 0 < epsilon <= MOST_EPSILON:
        raise UserError(
            f"epsilon is {epsilon!r}, but must be above 0 and at most {MOST_EPSILON}: a larger one "
            "would promise nothing; usual values are from 0.5 to 8."
        )
    if not 0 < delta <= MOST_DELTA:
        raise UserError(
            f"delta is {delta!r}, but must be above 0 and at most {MOST_DELTA}: it should be far "
            "below 1 / rows."
        )


def is_number(value: Any) -> bool:
    """Whether a value is a number and not a boolean, which Python counts among the integers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least` (numpy's too), or a sentence that says so."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or value < least:
        raise UserError(f"{name} is {value!r}, but must be a whole number of at least {least}.")
    return int(value)


def check_choice(name: str, value: Any, allowed: Any) -> None:
    """Refuse a value that is not one of a `Literal`'s."""
    choices = get_args(allowed)
    if value not in choices:
        raise UserError(f"{name} is {value!r}, but must be one of: {', '.join(choices)}.")
