"""TabMT: learn a table, generate rows like it. Glue between tables and tensors, no mathematics.

Follows scikit-learn's estimator contract: the constructor only stores settings, `fit` learns and
returns self, what was learned ends in an underscore.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from tabmt import artifact, tables, train
from tabmt.card import Card, Settings
from tabmt.codecs import TableCodec
from tabmt.config import (
    CodecConfig,
    Decode,
    Device,
    Gaps,
    NetworkConfig,
    NetworkName,
    Quantizer,
    TrainConfig,
)
from tabmt.errors import ModelFileError, UserError, read_json
from tabmt.fields import Field
from tabmt.networks import AnyNetwork, build
from tabmt.sample import draw_order, fill
from tabmt.schema import Schema, but_the_table_has, check_table, infer
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

CHUNK = 512  # rows that share one order of columns (the paper's generation batch)
MANY_ROWS = 8192  # so many rows have orders enough in chunks of twice the size, which are faster
BATCH_ROWS = 32 * CHUNK  # rows decoded and written at a time
LEAST_VALID_ROWS = 20  # fewer held-out rows tell nothing: no early stop
FREE_ON_RESUME = ("checkpoint_every", "threads", "device")  # may differ between the two runs


class NotFitted(UserError, NotFittedError):  # type: ignore[misc]
    """The model has not learned anything yet."""


@dataclass(frozen=True)
class Learned:
    """A fitted model: the codec, the network (None if there is nothing to learn) and its card."""

    codec: TableCodec
    net: AnyNetwork | None
    card: Card


class TabMT(BaseEstimator):  # type: ignore[misc]
    """A masked transformer that learns one table and generates rows like it.

    Tables are pandas, polars or Arrow objects, or paths of CSV, Parquet or Arrow files; samples
    come back as the kind that was fitted. Settings that are None are chosen for the table.

    Example:
        model = TabMT(minutes=2, seed=0).fit(df)
        synthetic = model.sample(1000, seed=1, temperature={"age": 1.2})
        model.save("adult.tabmt")
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        gaps: Gaps = CodecConfig.gaps,
        quantizer: Quantizer = CodecConfig.quantizer,
        max_bins: int = CodecConfig.max_bins,
        network: NetworkName = NetworkConfig.network,
        width: int = NetworkConfig.width,
        depth: int | None = None,
        heads: int = NetworkConfig.heads,
        dropout: float | None = None,
        drop_path: float = NetworkConfig.drop_path,
        steps: int = TrainConfig.steps,
        minutes: float | None = TrainConfig.minutes,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float = TrainConfig.weight_decay,
        warmup: int | None = None,
        clip: float = TrainConfig.clip,
        valid_share: float | None = None,
        eval_every: int = TrainConfig.eval_every,
        patience: int = TrainConfig.patience,
        target: str | None = TrainConfig.target,
        checkpoint_every: float = TrainConfig.checkpoint_every,
        device: Device = TrainConfig.device,
        threads: int | None = TrainConfig.threads,
    ) -> None:
        for name, value in list(locals().items()):
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(
        self,
        table: Any,
        y: None = None,
        *,
        schema: Mapping[str, Any] | str | Path | None = None,
        continue_from: "TabMT | None" = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Callable[[train.Progress], None] | None = None,
    ) -> Self:
        """Learn a table.

        `schema` overrides what is inferred (a JSON file or its content). `continue_from` goes on
        from another model's weights on new rows of its schema. `checkpoint` is a file to which
        progress is saved; `resume` continues from it. `on_step` is called after each step.
        """
        Settings.of(self.get_params())  # what is wrong with them is said before a table is read
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise UserError(f"seed is {self.seed!r}, but must be a whole number.")
        arrow, source = tables.load(table)
        settings = Settings.of(self.get_params(), arrow.num_rows)
        start = None if continue_from is None else continue_from._fitted
        if start is None:
            overrides = (
                read_json(str(schema), "schema") if isinstance(schema, str | Path) else schema
            )
            inferred = infer(arrow, source, gaps=settings.codec.gaps, overrides=overrides)
            codec = TableCodec.fit(arrow, inferred, settings.codec, self.seed)
        else:
            if schema is not None:
                raise UserError("A model that is continued keeps its schema; leave schema out.")
            check_table(arrow)
            codec = start.codec
            of_start = start.card.settings
            training = settings.train
            if training.target is None:
                training = dataclasses.replace(training, target=of_start.train.target)
            settings = Settings(of_start.codec, of_start.network, training)
            log.info("codes and network are those of the model that is continued")
        target = _target(codec, settings.train.target)
        tokens = codec.encode(arrow)
        _try_codec(codec)
        rows = arrow.num_rows
        del arrow
        card = Card(rows, self.seed, settings, None, _versions())
        if tokens.shape[1] == 0:
            log.warning("No column varies, so there is nothing to learn.")
            self.learned_ = Learned(codec, None, card)
            return self

        device, reason = train.pick_device(settings.train.device)
        log.info("computing on %s: %s", device, reason)
        net = _new_network(codec, settings.network, self.seed)
        held_out = _held_out(rows, settings.train.valid_share, self.seed)
        if start is not None and start.net is not None:
            net.load_state_dict(start.net.state_dict())
        else:
            net.fields.start_at_frequencies(_counts(tokens[~held_out], net.fields.sizes))
        net = net.to(device)
        fingerprint = _fingerprint(tokens, codec.schema)
        file = None if checkpoint is None else Path(checkpoint)
        state, threads = None, settings.train.threads
        if resume:
            if file is None:
                raise UserError("resume needs a checkpoint: the file an earlier fit saved to.")
            state, then = _read_checkpoint(file, settings, fingerprint, self.seed)
            threads = threads or then  # another number may give other bits
        threads, reason = train.pick_threads(threads)
        log.info("computing with %d threads: %s", threads, reason)
        chosen = dataclasses.replace(settings.train, threads=threads)
        card = dataclasses.replace(card, settings=dataclasses.replace(settings, train=chosen))

        def save(state: train.TrainState) -> None:
            assert file is not None
            tensors, info = state.to_parts()
            metadata = {"card": card.to_json(), "fingerprint": fingerprint, "state": info}
            artifact.write(file, "checkpoint", metadata, tensors)

        with train.threads(threads):
            summary = train.train(
                net,
                tokens[~held_out],
                tokens[held_out],
                settings.train,
                seed=derive(self.seed, "train"),
                target=target,
                on_step=on_step,
                resume=state,
                save=None if file is None else save,
            )
        log.info(
            "trained %d steps in %.0f s (%s); kept the weights of step %d",
            summary.steps,
            summary.seconds,
            summary.stopped,
            summary.best_step,
        )
        self.learned_ = Learned(codec, net, dataclasses.replace(card, summary=summary))
        return self

    @property
    def schema_(self) -> Schema:
        return self._fitted.codec.schema

    @property
    def card_(self) -> Card:
        return self._fitted.card

    @property
    def _fitted(self) -> Learned:
        learned: Learned | None = getattr(self, "learned_", None)
        if learned is None:
            raise NotFitted("This TabMT has not learned a table yet; call fit(table) first.")
        return learned

    def sample(
        self,
        rows: int,
        *,
        seed: int | None = None,
        temperature: float | Mapping[str, float] = 1.0,
        complete: bool = False,
        decode: Decode = "inside",
        kind: tables.Given | None = None,
    ) -> Any:
        """New rows, as the kind of table that was fitted (or as `kind`).

        `temperature` above 1 gives more novel rows, below 1 more typical ones; a mapping sets it
        per column. `complete` leaves no gaps. `decode="centre"` gives the centres of bins, as in
        the paper. Without a seed every call gives other rows, and the log says which seed it was.
        """
        batches = self.sample_batches(
            rows, seed=seed, temperature=temperature, complete=complete, decode=decode
        )
        table = pa.concat_tables(batches).combine_chunks()
        return tables.give_back(table, self.schema_, kind)

    def sample_batches(
        self,
        rows: int,
        *,
        seed: int | None = None,
        temperature: float | Mapping[str, float] = 1.0,
        complete: bool = False,
        decode: Decode = "inside",
    ) -> Iterator[pa.Table]:
        """`sample` in parts, as Arrow tables, so that any number of rows fits in memory."""
        learned = self._fitted
        if not isinstance(rows, int | np.integer) or isinstance(rows, bool) or rows < 0:
            raise UserError(f"The number of rows is {rows!r}, but must be a whole number from 0.")
        if decode not in get_args(Decode):
            raise UserError(f"decode is {decode!r}, but must be one of: inside, centre.")
        heat = _temperatures(temperature, learned.codec)
        if seed is None:
            seed = secrets.randbelow(2**31)
            log.info("sampling with seed %d; give it again to get the same rows", seed)
        return self._batches(learned, int(rows), seed, heat, complete, decode)

    def _batches(
        self,
        learned: Learned,
        rows: int,
        seed: int,
        heat: Tensor,
        complete: bool,
        decode: Decode,
    ) -> Iterator[pa.Table]:
        codec, net = learned.codec, learned.net
        allowed = _without_gaps(codec) if complete else None
        last = _target(codec, learned.card.settings.train.target)
        chunk = CHUNK if rows < MANY_ROWS else 2 * CHUNK
        threads = self.threads or 1  # not measured: a seed must give the same rows at any load
        for first in range(0, max(rows, 1), BATCH_ROWS):  # no rows are one empty batch
            count = min(BATCH_ROWS, rows - first)
            tokens = np.zeros((count, len(heat)), np.int64)
            if net is not None and count:
                with train.threads(threads):
                    tokens = np.concatenate(
                        [
                            _sample_chunk(
                                net, min(chunk, count - start), heat, allowed, last, stream
                            )
                            for start in range(0, count, chunk)
                            for stream in [derive(seed, "sample", (first + start) // chunk)]
                        ]
                    )
            yield codec.decode(tokens, seed=seed, first_row=first, how=decode)

    def save(self, path: str | Path) -> None:
        """Write the model as one file."""
        learned = self._fitted
        arrays, entries = learned.codec.to_parts()
        tensors = {f"codec/{name}": torch.from_numpy(a.copy()) for name, a in arrays.items()}
        if learned.net is not None:
            weights = learned.net.state_dict()
            tensors |= {f"net/{name}": tensor for name, tensor in weights.items()}
        metadata = {
            "card": learned.card.to_json(),
            "schema": learned.codec.schema.to_json(),
            "codecs": entries,
        }
        artifact.write(Path(path), "model", metadata, tensors)

    @classmethod
    def load(cls, path: str | Path) -> "TabMT":
        """Read a model that `save` wrote."""
        metadata, tensors = artifact.read(Path(path), "model")
        try:
            learned = _learned_from_parts(metadata, tensors)
            # The machine that fitted it may have had another number of cores.
            settings = learned.card.settings.to_json() | {"threads": None}
            model = cls(seed=learned.card.seed, **settings)
        except (KeyError, TypeError, ValueError, AssertionError, RuntimeError, UserError) as error:
            detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelFileError(
                f"{str(path)!r} is a TabMT model whose parts do not fit together ({detail}); "
                "the file is damaged."
            ) from error
        model.learned_ = learned
        return model


def _learned_from_parts(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Learned:
    card = Card.from_json(metadata["card"])
    schema = Schema.from_json(metadata["schema"])
    arrays = {k.removeprefix("codec/"): v.numpy() for k, v in tensors.items() if k[:6] == "codec/"}
    codec = TableCodec.from_parts(schema, arrays, metadata["codecs"])
    weights = {k.removeprefix("net/"): v for k, v in tensors.items() if k[:4] == "net/"}
    assert len(arrays) + len(weights) == len(tensors), "unknown tensors"
    if not codec.token_columns:
        return Learned(codec, None, card)
    # Before a network of the size that the file claims is built, the weights must have that size.
    codes = sum(coded.size for coded in codec.token_columns)
    config = card.settings.network
    assert tuple(weights["fields.unordered"].shape) == (codes, config.width), "sizes differ"
    blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    assert len(blocks) == config.depth, "depths differ"
    net = _new_network(codec, config, card.seed)
    net.load_state_dict(weights)
    device, _ = train.pick_device("auto" if card.settings.train.device == "cuda" else "cpu")
    return Learned(codec, net.to(device), card)


def _new_network(codec: TableCodec, config: NetworkConfig, seed: int) -> AnyNetwork:
    fields = []
    for coded in codec.token_columns:
        ratios = None if coded.ratios is None else tuple(coded.ratios.tolist())
        fields.append(Field(coded.size, ratios))
    return build(fields, config, torch.Generator().manual_seed(derive(seed, "weights")))


def _try_codec(codec: TableCodec) -> None:
    """Store and decode one row: what cannot be sampled is found before training, not after."""
    arrays, entries = codec.to_parts()
    stored = TableCodec.from_parts(codec.schema, arrays, json.loads(json.dumps(entries)))
    stored.decode(np.zeros((1, len(codec.token_columns)), np.int64), seed=0)


def _sample_chunk(
    net: AnyNetwork,
    rows: int,
    heat: Tensor,
    allowed: list[Tensor | None] | None,
    last: int | None,
    stream: int,
) -> np.ndarray:
    device = next(net.parameters()).device
    empty = torch.full((rows, len(heat)), MASK, device=device)
    generator = torch.Generator().manual_seed(stream)
    order = draw_order(len(heat), generator, last)
    filled = fill(net, empty, temperature=heat, allowed=allowed, generator=generator, order=order)
    return filled.cpu().numpy()


def _held_out(rows: int, share: float, seed: int) -> np.ndarray:
    """(rows,) bool: which rows are kept for early stopping."""
    held_out = np.zeros(rows, bool)
    count = int(rows * share)
    if count < LEAST_VALID_ROWS:
        log.info("%d rows are too few to hold any out: training does not stop early", rows)
        return held_out
    held_out[numpy_stream(seed, "held out").permutation(rows)[:count]] = True
    return held_out


def _counts(tokens: np.ndarray, sizes: tuple[int, ...]) -> list[Tensor]:
    """How often each code of each column stands in the table."""
    known = [column[column != MASK] for column in tokens.T]
    return [
        torch.from_numpy(np.bincount(codes, minlength=size)).float()
        for codes, size in zip(known, sizes, strict=True)
    ]


def _target(codec: TableCodec, name: str | None) -> int | None:
    """The token column of the target, if one was named."""
    if name is None:
        return None
    names = codec.schema.names
    if name not in names:
        raise UserError(f"The target is {name!r}, {but_the_table_has(name, names)}")
    for place, coded in enumerate(codec.token_columns):
        if coded.column.name == name:
            return place
    kind = next(column.kind for column in codec.schema.columns if column.name == name)
    raise UserError(
        f"The target is {name!r}, but that column is {kind}, and nothing of it is learned; "
        "name another target, or set its kind in the schema."
    )


def _temperatures(temperature: float | Mapping[str, float], codec: TableCodec) -> Tensor:
    """(C,) float64: one temperature per token column."""
    names = codec.schema.names
    given = temperature if isinstance(temperature, Mapping) else dict.fromkeys(names, temperature)
    for name, value in given.items():
        if name not in names:
            raise UserError(
                f"A temperature is set for column {name!r}, {but_the_table_has(str(name), names)}"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise UserError(
                f"The temperature of column {name!r} is {value!r}, but must be a number from 0 "
                "(1 is the model's own distribution)."
            )
    heat = [given.get(coded.column.name, 1.0) for coded in codec.token_columns]
    return torch.tensor(heat, dtype=torch.float64)


def _without_gaps(codec: TableCodec) -> list[Tensor | None]:
    """Weights per code that leave out the missing code of every column."""
    for coded in codec.coded:
        if coded.column.reason == "nothing but gaps":
            log.warning("Column %r has nothing but gaps, so it has no value.", coded.column.name)
    allowed: list[Tensor | None] = []
    for coded in codec.token_columns:
        if coded.missing_code is None:
            allowed.append(None)
        else:
            weights = torch.ones(coded.size, dtype=torch.float64)
            weights[coded.missing_code] = 0.0
            allowed.append(weights)
    return allowed


def _fingerprint(tokens: np.ndarray, schema: Schema) -> str:
    """Tells whether a resumed run sees the table that the interrupted one saw."""
    digest = hashlib.blake2b(json.dumps(schema.to_json()).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(tokens).tobytes())
    return digest.hexdigest()


def _read_checkpoint(
    path: Path, settings: Settings, fingerprint: str, seed: int
) -> tuple[train.TrainState, int | None]:
    """The state of an unfinished run, and how many threads it had."""
    metadata, tensors = artifact.read(path, "checkpoint")
    try:
        card = Card.from_json(metadata["card"])
        state = train.TrainState.from_parts(tensors, metadata["state"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"The unfinished run in {str(path)!r} is of another version of TabMT; "
            "delete the file to start anew."
        ) from error
    then, now = {"seed": card.seed, **card.settings.to_json()}, {"seed": seed, **settings.to_json()}
    for name in now:
        if name not in FREE_ON_RESUME and then[name] != now[name]:
            raise UserError(
                f"The unfinished run in {str(path)!r} has {name} {then[name]!r}, this one "
                f"{now[name]!r}. Resume with the same settings, or delete the file to start anew."
            )
    if metadata["fingerprint"] != fingerprint:
        raise UserError(
            f"The unfinished run in {str(path)!r} was learning another table. Resume with that "
            "table, or delete the file to start anew."
        )
    return state, card.settings.train.threads


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("tabmt", "torch", "numpy")}
