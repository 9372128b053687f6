"""From a table to a model, in named steps: read, infer, encode, train, calibrate."""

import dataclasses
import importlib.metadata
import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt import parallel
from tabmt.codec import large_tables
from tabmt.codec.resolution import MOST_DETECTABLE, codes_detector_auc, detectable_columns
from tabmt.codec.table import TableCodec, fit_column, log_protection
from tabmt.config import CodecConfig, Engine, TrainConfig
from tabmt.data.dataset import Dataset
from tabmt.data.infer import SAMPLED_ROWS, Inference, check_not_empty
from tabmt.data.overrides import read_overrides
from tabmt.data.protection import least_rows
from tabmt.data.typed_columns import TypedColumn, TypedTable, parse_column
from tabmt.errors import UserError
from tabmt.memory import available_memory
from tabmt.method import devices
from tabmt.method.calibrate_missing import calibrate_missing
from tabmt.method.column_order import ColumnOrder
from tabmt.method.distributed import Group
from tabmt.method.networks import Network
from tabmt.method.train import Progress, SavedRun, Summary, train, training_bytes
from tabmt.model.checkpoint import (
    read_answers,
    read_checkpoint,
    table_fingerprint,
    write_checkpoint,
)
from tabmt.model.fitted_model import (
    FittedModel,
    check_buffers,
    new_network,
    order_of_training,
)
from tabmt.model.model_card import ModelCard, Settings
from tabmt.model.private_rows import (
    PrivateRows,
    check_continued,
    find_private_rows,
    train_on_real_rows,
)
from tabmt.private.noise import Answers, Noise
from tabmt.rules.computed import computable
from tabmt.rules.enforce import RuleSet
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import TokenStore
from tabmt.writing import TemporaryFolder

log = logging.getLogger(__name__)

LEAST_VALID_ROWS = 20  # fewer validation rows say nothing, so training does not stop early


@dataclass(frozen=True)
class FitOptions:
    """Everything about a fit that is not a setting of the model."""

    schema: Mapping[str, Any] | str | Path | None = None
    continue_from: FittedModel | None = None
    checkpoint: Path | None = None
    resume: bool = False
    store: Path | None = None  # folder for the tokens of a table larger than memory
    engine: Engine = "local"
    on_step: Callable[[Progress], None] | None = None
    should_stop: Callable[[], bool] | None = None
    answers: Answers | None = None  # to be given again to a fit with epsilon
    noise: Noise | None = None  # of a fit with epsilon; None: nobody can predict it


def fit(table: Any, values: Mapping[str, Any], options: FitOptions) -> FittedModel:
    """A model of a table. `values` are the settings and the seed."""
    early = Settings.of(values)  # mistakes are reported before a table is read
    seed = values["seed"]
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise UserError(f"seed is {seed!r}, but must be a whole number.")
    parallel.check(options.engine)
    if options.continue_from is not None:
        check_continued(options.continue_from.card, early)
    dataset = Dataset.open(table)
    private = None
    if early.privacy.epsilon is not None:
        private = _private_rows(dataset, early, seed, options)
        dataset = private.dataset  # the real table is not used from here on
    settings = _settings(values, dataset, options.continue_from)
    encoded = _encode(dataset, settings, seed, options)
    codec, tokens, rules = encoded.codec, encoded.tokens, encoded.rules
    column_order = order_of_training(codec, settings, rules)
    _check_codec(codec)
    before = options.continue_from
    temperatures = {} if before is None else before.card.temperatures
    card = ModelCard(
        rows=len(tokens),
        seed=seed,
        settings=settings,
        summary=None,
        versions=_versions(),
        temperatures=temperatures,
        codes_detector_auc=encoded.codes_detector_auc,
        privacy=None if private is None else private.statement,
    )
    del dataset
    if tokens.shape[1] == 0:
        log.warning(
            "All columns are constant or ids: the model repeats the constants and generates new "
            "ids."
        )
        return FittedModel(codec, None, card, rules)
    if private is not None and private.training is not None:
        net, card, summary = _train_privately(codec, tokens, card, private, options)
    else:
        answers = None if private is None else private.answers
        net, card, summary = _train(codec, tokens, card, column_order, options, answers)
    _calibrate(net, codec, tokens, summary, seed, column_order, card)
    return FittedModel(codec, net, dataclasses.replace(card, summary=summary), rules)


def _private_rows(
    dataset: Dataset, settings: Settings, seed: int, options: FitOptions
) -> PrivateRows:
    """Private rows; of a resumed fit, those of the interrupted one, which spend nothing again."""
    answers = options.answers
    if options.resume and settings.privacy.private_method == "dp-sgd":
        raise UserError(
            "A fit by DP-SGD cannot be resumed, as it writes no checkpoint; start it again, which "
            "spends its epsilon again."
        )
    if options.resume and options.checkpoint is not None:
        answers = read_answers(options.checkpoint, settings)
    return find_private_rows(dataset, settings, seed, options.schema, answers, options.noise)


# --- the table as tokens -------------------------------------------------------------------


@dataclass(frozen=True)
class Encoded:
    codec: TableCodec
    tokens: TokenStore
    rules: RuleSet
    folder: TemporaryFolder | None = None  # in which the tokens are, as long as they are used
    codes_detector_auc: float | None = None  # see codec/resolution.py

    def with_equal_numbers(self, typed: Callable[[str], TypedColumn]) -> "Encoded":
        """With the columns that often have the number of another one; rules decide theirs."""
        codec = self.codec.with_equal_numbers(typed, leave=self.rules.columns())
        return dataclasses.replace(self, codec=codec)


def _settings(values: Mapping[str, Any], dataset: Dataset, before: FittedModel | None) -> Settings:
    """The settings of this fit; a model that is continued keeps all but those of training."""
    settings = Settings.of(values, dataset.num_rows, dataset.num_columns)
    if before is None:
        return settings
    log.info("using the data, network and generation settings of the model to continue from")
    own = before.card.settings
    for part in ("codec", "network", "generation"):
        asked, kept = getattr(settings, part), getattr(own, part)
        for item in dataclasses.fields(asked):
            value, used = getattr(asked, item.name), getattr(kept, item.name)
            if value not in (item.default, used) and not item.metadata.get("auto"):
                log.warning(
                    "%s stays %r, as in the model to continue from; %r is not used.",
                    item.name,
                    used,
                    value,
                )
    training = settings.train
    if training.target is None:
        training = dataclasses.replace(training, target=own.train.target)
    return dataclasses.replace(own, train=training)


def _encode(dataset: Dataset, settings: Settings, seed: int, options: FitOptions) -> Encoded:
    """The codec, the tokens and the rules of a table."""
    if options.continue_from is not None:
        return _encode_more(dataset, options.continue_from, options)
    overrides = read_overrides(options.schema)
    _check_protection(dataset, settings.codec.protect)
    if dataset.fits_in_memory:
        _log_unused(options)
        inference = Inference.of(dataset, settings.codec, overrides)
        typed = TypedTable.of(inference.columns(dataset))
        encoded = _encode_in_memory(dataset, inference, typed, settings.codec, seed)
        if settings.codec.protect:
            log_protection(encoded.codec, typed, settings.codec.protect)
        return encoded
    request = {"schema": overrides, "codec": dataclasses.asdict(settings.codec), "seed": seed}
    return _encode_large(
        dataset,
        lambda: large_tables.fit_table_codec(dataset, settings.codec, overrides, seed),
        request,
        options,
        settings.codec.protect,
        seed,
        find_equal=settings.codec.find_rules,
    )


def _check_protection(dataset: Dataset, protect: int) -> None:
    """See that there are rows enough to share what is stored, and say if nothing is protected."""
    check_not_empty(dataset)
    if protect == 0:
        log.info("protection is off: the model stores rare values and exact numbers (protect 0)")
    elif dataset.num_rows < least_rows(protect):
        rows = "1 row" if dataset.num_rows == 1 else f"{dataset.num_rows} rows"
        raise UserError(
            f"The table has {rows}, but protect is {protect}, which needs at "
            f"least {least_rows(protect)}; set protect (--protect) lower, or to 0 to store every "
            "value."
        )


def _encode_in_memory(
    dataset: Dataset, inference: Inference, typed: TypedTable, config: CodecConfig, seed: int
) -> Encoded:
    """Numbers that many rows share get codes of their own where bins lose too much detail: in
    single columns, or in all of them if that is not enough."""
    rules = inference.rules(dataset, {name: one.column for name, one in typed.columns.items()})
    typed = typed.with_columns(rules.columns_with_own_codes(typed.schema_columns()))
    codec = TableCodec.fit(typed.columns.values(), dataset.source, {}, config, seed)
    codec = codec.with_rules(rules)
    is_auto = config.shared_values == "auto"
    if is_auto and (names := detectable_columns(codec, typed, seed=seed)):
        log.info("numbers that occur in many rows get bins of their own in: %s", ", ".join(names))
        codec = _with_shared_values(codec, typed, names, config, seed)
    encoded = _encode_typed(codec, typed, config, seed)
    auc = encoded.codes_detector_auc
    if not is_auto or auc is None or auc <= MOST_DETECTABLE:
        return encoded
    log.info(
        "numbers that occur in many rows get bins of their own in all columns, because binning is "
        "detectable"
    )
    codec = _with_shared_values(codec, typed, codec.schema.names, config, seed)
    return _encode_typed(codec, typed, config, seed)


def _with_shared_values(
    codec: TableCodec, typed: TypedTable, names: Collection[str], config: CodecConfig, seed: int
) -> TableCodec:
    """A codec in which values that many rows share have codes of their own, in some columns."""
    config = dataclasses.replace(config, shared_values="codes")
    coded = tuple(
        fit_column(typed.columns[one.name], config, seed) if one.name in names else one
        for one in codec.coded
    )
    return dataclasses.replace(codec, coded=coded)


def _encode_typed(codec: TableCodec, typed: TypedTable, config: CodecConfig, seed: int) -> Encoded:
    """The tokens and rules of a table, and what its codes alone lose."""
    tokens = codec.encode(typed, warned=set(codec.schema.names))  # log_protection says it
    encoded = _with_rules(codec, tokens, [_values(typed)], config.protect, seed)
    if config.find_rules:
        encoded = encoded.with_equal_numbers(typed.columns.__getitem__)
    computed = {step.target for step in computable(encoded.rules, codec).values()}
    auc = codes_detector_auc(encoded.codec, typed, leave=computed, seed=seed)
    if auc is not None:
        log.info(
            "detectability of binned numbers: a classifier tells them from real ones with AUC %.2f "
            "(0.5: it cannot)",
            auc,
        )
    return dataclasses.replace(encoded, codes_detector_auc=auc)


def _encode_more(dataset: Dataset, before: FittedModel, options: FitOptions) -> Encoded:
    """New rows for a model that is continued, by its own codec."""
    if options.schema is not None:
        raise UserError(
            "A fit that continues from a model keeps its schema; leave out schema (--schema)."
        )
    if options.store is not None:
        raise UserError(
            "A fit that continues from a model encodes new rows; leave out store (--store)."
        )
    check_not_empty(dataset)
    if dataset.fits_in_memory:
        _log_unused(options)
        typed = before.codec.parse(dataset.to_table())
        return Encoded(before.codec, before.codec.encode(typed), before.rules)
    card = before.card
    encoded = _encode_large(
        dataset,
        lambda: before.codec,
        {},
        options,
        card.settings.codec.protect,
        card.seed,
        find_equal=False,
    )
    return dataclasses.replace(encoded, rules=before.rules)


def _encode_large(
    dataset: Dataset,
    make_codec: Callable[[], TableCodec],
    request: Mapping[str, Any],
    options: FitOptions,
    protect: int,
    seed: int,
    *,
    find_equal: bool,
) -> Encoded:
    """A table larger than memory, encoded into a folder by the first of several processes."""
    group = Group.current()
    is_first = group.rank == 0
    holds = "the rows of a table as numbers, for training"
    temporary = TemporaryFolder(holds) if options.store is None and is_first else None
    folder = options.store if temporary is None else temporary.path
    mistake = ""
    if is_first:
        assert folder is not None
        try:
            large_tables.encode_into(folder, dataset, make_codec, request, options.engine)
        except UserError as error:
            mistake = str(error)
    if mistake := group.broadcast_text(mistake):  # the others wait for the first, and end with it
        raise UserError(mistake)
    shared = Path(group.broadcast_text(str(folder)))
    if not shared.is_dir():
        raise UserError(
            f"The encoded table is in {str(shared)!r}, which this machine does not have. Set "
            "store (--store) to a folder that all machines share."
        )
    codec, tokens = large_tables.read_encoded(shared)
    names = {name for rule in codec.schema.rules for name in codec.schema.names}
    pieces = ({n: part.column(n) for n in names} for part in dataset.fragments())
    encoded = _with_rules(codec, tokens, pieces if codec.schema.rules else [], protect, seed)
    if find_equal:
        some = dataset.sample(SAMPLED_ROWS)
        encoded = encoded.with_equal_numbers(
            lambda name: parse_column(some.column(name), codec[name].column)
        )
    return dataclasses.replace(encoded, folder=temporary)


def _with_rules(
    codec: TableCodec, tokens: TokenStore, pieces: Any, protect: int, seed: int
) -> Encoded:
    rules = RuleSet.from_table(codec, pieces, tokens, protect=protect, seed=seed)
    return Encoded(codec, tokens, rules)


def _values(typed: TypedTable) -> dict[str, pa.Array]:
    return {name: column.values for name, column in typed.columns.items()}


def _log_unused(options: FitOptions) -> None:
    if options.store is not None or options.engine != "local":
        log.info("the table fits in memory, so it is encoded there: store and engine are not used")


def _check_codec(codec: TableCodec) -> None:
    """Store and decode one row: what cannot be sampled is found before training, not after."""
    arrays, entries = codec.to_parts()
    try:
        stored = TableCodec.from_parts(codec.schema, arrays, json.loads(json.dumps(entries)))
        stored.check()
    except ValueError as error:
        raise UserError(f"The model cannot be trained, because {error}.") from error


# --- training ------------------------------------------------------------------------------


def _train(
    codec: TableCodec,
    tokens: TokenStore,
    card: ModelCard,
    column_order: ColumnOrder,
    options: FitOptions,
    answers: Answers | None,
) -> tuple[Network, ModelCard, Summary]:
    """A trained network; the card with the threads that were used, and the training summary."""
    settings, seed = card.settings, card.seed
    device, reason = devices.pick_device(settings.train.device)
    log.info("computing on %s: %s", device, reason)
    valid = _validation_rows(len(tokens), settings.train.valid_share, seed)
    training_rows = tokens.subset(np.flatnonzero(~valid))
    check_buffers(codec, settings.network)
    net = _start_network(codec, training_rows, card, options.continue_from).to(device)
    _check_memory(net, settings.train.batch_size, str(device))
    counts = training_rows.counts(net.sizes)
    net.output.sample_codes_in_loss(counts, settings.train.sampled_codes)
    table = "" if options.checkpoint is None else table_fingerprint(tokens, codec.schema)
    run, config = _read_run(options, settings, table, seed, net)
    threads, reason = devices.pick_threads(config.threads)
    log.info("computing with %d thread%s: %s", threads, "s" * (threads != 1), reason)
    with devices.threads(threads):
        net.precision, reason = devices.pick_precision(config.precision, device)
    log.info("training in %s: %s", net.precision, reason)
    config = dataclasses.replace(config, threads=threads, precision=net.precision)
    card = dataclasses.replace(card, settings=dataclasses.replace(settings, train=config))

    def save(run: SavedRun) -> None:
        assert options.checkpoint is not None
        write_checkpoint(options.checkpoint, card, table, run, answers)

    is_writer = options.checkpoint is not None and Group.current().rank == 0
    with devices.threads(threads):
        summary = train(
            net,
            training_rows,
            tokens.subset(np.flatnonzero(valid)),
            config,
            seed=derive(seed, "train"),
            column_order=column_order,
            on_step=options.on_step,
            should_stop=options.should_stop,
            resume=run,
            save=save if is_writer else None,
        )
    net.precision = "float32"
    finish = summary.finish_steps
    log.info(
        "trained for %d steps in %.0f s%s; kept the weights of step %d%s",
        summary.steps,
        summary.seconds,
        " (stopped early)" if summary.stopped == "early" else "",
        summary.best_step,
        f" and trained them for {finish} more steps on all rows" if finish else "",
    )
    return net, card, summary


def _train_privately(
    codec: TableCodec,
    tokens: TokenStore,
    card: ModelCard,
    private: PrivateRows,
    options: FitOptions,
) -> tuple[Network, ModelCard, Summary]:
    """A network trained by DP-SGD; `tokens` are private rows, by which its biases start."""
    settings = card.settings
    check_buffers(codec, settings.network)
    net = _start_network(codec, tokens, card, None)
    threads, reason = devices.pick_threads(settings.train.threads)
    log.info("computing with %d thread%s: %s", threads, "s" * (threads != 1), reason)
    config = dataclasses.replace(settings.train, threads=threads, precision="float32")
    card = dataclasses.replace(card, settings=dataclasses.replace(settings, train=config))
    with devices.threads(threads):
        summary = train_on_real_rows(
            net, codec, tokens, private, settings, card.seed, options.on_step, options.should_stop
        )
    log.info("trained for %d steps in %.0f s", summary.steps, summary.seconds)
    return net, card, summary


def _check_memory(net: Network, batch_size: int, device: str) -> None:
    """Say before training, not in the middle of it, that a table is too wide for this machine."""
    needed, free = training_bytes(net, batch_size), available_memory()
    if device == "cpu" and needed > free:
        raise UserError(
            f"Training {len(net.sizes):,} columns would need about {needed / 1e9:.1f} GB of "
            f"memory, but {free / 1e9:.1f} GB are free. Use fewer columns, a smaller width, fewer "
            "heads or less depth."
        )


def _start_network(
    codec: TableCodec, rows: TokenStore, card: ModelCard, before: FittedModel | None
) -> Network:
    """A new network, or one with the weights of the model that is continued."""
    net = new_network(codec, card.settings.network, card.seed)
    if before is not None and before.net is not None:
        net.load_state_dict(before.net.state_dict())
    elif card.settings.network.initial_bias == "frequencies":
        net.output.start_at_frequencies(rows.counts(net.sizes))
    return net


def _read_run(
    options: FitOptions, settings: Settings, table: str, seed: int, net: Network
) -> tuple[SavedRun | None, TrainConfig]:
    """The unfinished run to resume, if any, and how to train."""
    config = settings.train
    if not options.resume:
        return None, config
    if options.checkpoint is None:
        raise UserError("resume needs a checkpoint (the file to which an earlier fit was saved).")
    run, before = read_checkpoint(options.checkpoint, settings, table, seed, net.state_dict())
    # Other numbers of threads and other number formats may give other bits.
    if config.threads is None:
        config = dataclasses.replace(config, threads=before.threads)
    if config.precision == "auto":
        config = dataclasses.replace(config, precision=before.precision)
    return run, config


def _validation_rows(rows: int, share: float, seed: int) -> np.ndarray:
    """(rows,) bool: which rows are used for early stopping.

    PAPER-DIFF valid_share: the paper trains all rows for a fixed number of steps, which small
    tables would not survive without being memorised.
    """
    is_valid = np.zeros(rows, bool)
    count = int(rows * share)
    if share == 0:
        log.info("validation is off (valid_share 0): no early stopping")
        return is_valid
    if count < LEAST_VALID_ROWS:
        log.info("%d of %d rows are too few for validation: no early stopping", count, rows)
        return is_valid
    is_valid[numpy_stream(seed, "held out").permutation(rows)[:count]] = True
    return is_valid


def _calibrate(
    net: Network,
    codec: TableCodec,
    tokens: TokenStore,
    summary: Summary,
    seed: int,
    column_order: ColumnOrder,
    card: ModelCard,
) -> None:
    """Generate missing values at the rate of the training table."""
    missing_codes = [coded.missing_code for coded in codec.token_columns]
    if not summary.steps or all(code is None for code in missing_codes):
        return
    if not card.settings.generation.calibrate_missing:
        return
    log.info("calibrating the rates of missing values")
    with devices.threads(card.settings.train.threads):
        before, after = calibrate_missing(
            net, tokens, missing_codes, seed=derive(seed, "gaps"), column_order=column_order
        )
    log.info(
        "rates of missing values: off by up to %.1f percentage points before, %.1f after",
        100 * before,
        100 * after,
    )


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("tabmt", "torch", "numpy")}
