"""From a table to a model: schema, codes, network, training. Glue, no mathematics.

For the synthesizer.
"""

import dataclasses
import importlib.metadata
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.codec import serialize as codec_parts
from tabmt.codec.columns import TableCodec
from tabmt.codec.large_tables import find_codec
from tabmt.codec.token_files import prepare, prepared
from tabmt.config import Engine
from tabmt.data.dataset import Columns, open_table
from tabmt.data.schema import check_table, read_overrides
from tabmt.errors import UserError
from tabmt.method import devices, train
from tabmt.method.calibrate import calibrate_gaps
from tabmt.method.distributed import Group
from tabmt.model import checkpoint as checkpoints
from tabmt.model.card import Card, Settings
from tabmt.model.fitted import Learned, new_network, token_column
from tabmt.parallel import check as check_engine
from tabmt.rules.enforce import RuleBook
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import Scratch, TokenStore

log = logging.getLogger(__name__)

LEAST_VALID_ROWS = 20  # fewer held-out rows tell nothing: no early stop


def fit(
    table: Any,
    values: Mapping[str, Any],
    *,
    schema: Mapping[str, Any] | str | Path | None,
    start: Learned | None,
    checkpoint: Path | None,
    resume: bool,
    store: Path | None,
    engine: Engine,
    on_step: Callable[[train.Progress], None] | None,
) -> Learned:
    """A model of a table. `values` are the settings and the seed; `start` is continued."""
    Settings.of(values)  # what is wrong with them is said before a table is read
    seed = values["seed"]
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise UserError(f"seed is {seed!r}, but must be a whole number.")
    check_engine(engine)
    arrow, source = open_table(table)
    settings = Settings.of(values, arrow.num_rows, arrow.num_columns)
    if start is None:
        overrides = read_overrides(schema)
        asked = {"schema": overrides, "codec": dataclasses.asdict(settings.codec), "seed": seed}
        find: Callable[[], TableCodec] = partial(
            find_codec, arrow, source, settings.codec, overrides, seed
        )
    else:
        if schema is not None:
            raise UserError("A model that is continued keeps its schema; leave schema out.")
        if store is not None:
            raise UserError("A model that is continued codes new rows; leave store out.")
        check_table(arrow)
        of_start = start.card.settings
        training = settings.train
        if training.target is None:
            training = dataclasses.replace(training, target=of_start.train.target)
        settings = Settings(of_start.codec, of_start.network, training)
        log.info("codes and network are those of the model that is continued")
        known = start.codec
        asked, find = {}, lambda: known
    if isinstance(arrow, Columns):
        codec, tokens, _scratch = _coded(arrow, find, asked, store, engine)
    else:
        if store is not None or engine != "local":
            log.info("the table fits in memory: it is coded there, by this process")
        codec = find()
        tokens = codec.store(arrow)
    target = token_column(codec, settings.train.target, "target")
    _try_codec(codec)
    book = RuleBook.write(codec, arrow, tokens) if start is None else start.book
    rows = arrow.num_rows
    del arrow, find
    heat = start.card.temperatures if start else {}
    card = Card(rows, seed, settings, None, _versions(), heat)
    if tokens.shape[1] == 0:
        log.warning("No column varies, so there is nothing to learn.")
        return Learned(codec, None, card, book)

    device, reason = devices.pick_device(settings.train.device)
    log.info("computing on %s: %s", device, reason)
    net = new_network(codec, settings.network, seed)
    held_out = _held_out(rows, settings.train.valid_share, seed)
    learned_rows = tokens.subset(np.flatnonzero(~held_out))
    counts = learned_rows.counts(net.fields.sizes)
    if start is not None and start.net is not None:
        net.load_state_dict(start.net.state_dict())
    else:
        net.fields.start_at_frequencies(counts)
    net = net.to(device)
    net.fields.compare_with_some(counts, settings.train.sampled_codes)
    fingerprint = "" if checkpoint is None else checkpoints.fingerprint(tokens, codec.schema)
    state, threads = None, settings.train.threads
    if resume:
        if checkpoint is None:
            raise UserError("resume needs a checkpoint: the file an earlier fit saved to.")
        state, then = checkpoints.read(checkpoint, settings, fingerprint, seed)
        threads = threads or then  # another number may give other bits
    threads, reason = devices.pick_threads(threads)
    log.info("computing with %d threads: %s", threads, reason)
    chosen = dataclasses.replace(settings.train, threads=threads)
    card = dataclasses.replace(card, settings=dataclasses.replace(settings, train=chosen))

    def save(state: train.TrainState) -> None:
        assert checkpoint is not None
        checkpoints.write(checkpoint, card, fingerprint, state)

    with devices.threads(threads):
        summary = train.train(
            net,
            learned_rows,
            tokens.subset(np.flatnonzero(held_out)),
            settings.train,
            seed=derive(seed, "train"),
            target=target,
            on_step=on_step,
            resume=state,
            save=None if checkpoint is None or Group.here().rank else save,  # one writes
        )
        missing = [coded.missing_code for coded in codec.token_columns]
        if any(code is not None for code in missing) and summary.steps:
            log.info("comparing gap rates with the table's")
            before, after = calibrate_gaps(
                net, tokens, missing, seed=derive(seed, "gaps"), last=target
            )
            log.info("gap rates: off by up to %.1f points, now %.1f", 100 * before, 100 * after)
    log.info(
        "trained %d steps in %.0f s (%s); weights of step %d, then %d steps with all rows",
        summary.steps,
        summary.seconds,
        summary.stopped,
        summary.best_step,
        summary.finish_steps,
    )
    return Learned(codec, net, dataclasses.replace(card, summary=summary), book)


def _coded(
    table: Columns,
    find: Callable[[], TableCodec],
    asked: Mapping[str, Any],
    store: Path | None,
    engine: Engine,
) -> tuple[TableCodec, TokenStore, Scratch | None]:
    """The codec and the tokens of a large table, made by one process of those that train, and the
    temporary folder, if they lie in one."""
    group = Group.here()
    scratch = Scratch() if store is None and group.rank == 0 else None
    folder = store if scratch is None else scratch.path
    mistake = ""
    if group.rank == 0:
        assert folder is not None
        try:
            prepare(folder, table, find, asked, engine)
        except UserError as error:
            mistake = str(error)
    if mistake := group.tell(mistake):  # the others wait for the first, and end with it
        raise UserError(mistake)
    there = Path(group.tell(str(folder)))
    if not there.is_dir():
        raise UserError(
            f"The codes of the table are in {str(there)!r}, which is not on this machine. Give "
            "--store a folder on a disk that all machines see."
        )
    return *prepared(there), scratch


def _try_codec(codec: TableCodec) -> None:
    """Store and decode one row: what cannot be sampled is found before training, not after."""
    arrays, entries = codec_parts.to_parts(codec)
    stored = codec_parts.from_parts(codec.schema, arrays, json.loads(json.dumps(entries)))
    stored.decode(np.zeros((1, len(codec.token_columns)), np.int64), seed=0)


def _held_out(rows: int, share: float, seed: int) -> np.ndarray:
    """(rows,) bool: which rows are kept for early stopping."""
    held_out = np.zeros(rows, bool)
    count = int(rows * share)
    if count < LEAST_VALID_ROWS:
        log.info("%d rows are too few to hold any out: training does not stop early", rows)
        return held_out
    held_out[numpy_stream(seed, "held out").permutation(rows)[:count]] = True
    return held_out


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("tabmt", "torch", "numpy")}
