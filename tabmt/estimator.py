"""TabMT: learn a table, generate rows like it. Glue between tables and tensors, no mathematics.

Follows scikit-learn's estimator contract: the constructor only stores settings, `fit` learns and
returns self, what was learned ends in an underscore.
"""

import dataclasses
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from tabmt.conditions.condition import conditions
from tabmt.conditions.prompts import parts as parts_of
from tabmt.config import (
    CodecConfig,
    Decode,
    Device,
    Engine,
    Gaps,
    Imputation,
    NetworkConfig,
    NetworkName,
    Quantizer,
    TrainConfig,
)
from tabmt.data import files as tables
from tabmt.data.schema import Schema
from tabmt.errors import UserError
from tabmt.method.train import Progress
from tabmt.model import folders as partitions
from tabmt.model import impute as partial
from tabmt.model import score as scores
from tabmt.model.card import Card
from tabmt.model.fit import fit
from tabmt.model.fitted import Learned
from tabmt.model.folders import PART_ROWS
from tabmt.model.generate import Request, rows_in_batches, temperatures

log = logging.getLogger(__name__)


class NotFitted(UserError, NotFittedError):  # type: ignore[misc]
    """The model has not learned anything yet."""


class TabMT(BaseEstimator):  # type: ignore[misc]
    """A masked transformer that learns one table and generates rows like it.

    Tables are pandas, polars or Arrow objects, or paths of CSV, Parquet or Arrow files; samples
    come back as the kind that was fitted. Settings that are None are chosen for the table. Example:
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
        max_bins: int | None = CodecConfig.max_bins,
        network: NetworkName = NetworkConfig.network,
        width: int = NetworkConfig.width,
        depth: int | None = None,
        heads: int = NetworkConfig.heads,
        dropout: float | None = None,
        smoothing: float = NetworkConfig.smoothing,
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
        finish: float = TrainConfig.finish,
        sampled_codes: int = TrainConfig.sampled_codes,
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
        store: str | Path | None = None,
        engine: Engine = "local",
        on_step: Callable[[Progress], None] | None = None,
    ) -> Self:
        """Learn a table.

        `schema` overrides what is inferred (a JSON file or its content). `continue_from` goes on
        from another model's weights on new rows of its schema. `checkpoint` is a file to which
        progress is saved; `resume` continues from it. Files that are too large for memory are coded
        first, by `engine` "local" or "ray", into the folder `store`, where a later fit of the same
        files finds them. `on_step` is called after each step.
        """
        self.learned_ = fit(
            table,
            self.get_params(),
            schema=schema,
            start=None if continue_from is None else continue_from._fitted,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            resume=resume,
            store=None if store is None else Path(store).absolute(),
            engine=engine,
            on_step=on_step,
        )
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
        rows: int | None = None,
        *,
        seed: int | None = None,
        temperature: float | Mapping[str, float] | None = None,
        complete: bool = False,
        decode: Decode = "inside",
        where: Mapping[str, Any] | Sequence[str] | str | None = None,
        balance: str | Mapping[str, Mapping[Any, float]] | None = None,
        prompts: Any = None,
        like: Any = None,
        keep: Sequence[str] | int | None = None,
        kind: tables.Given | None = None,
    ) -> Any:
        """New rows, as the kind of table that was fitted (or as `kind`).

        `where` sets conditions on any columns: a value, `one_of(...)`, `between(low, high)`,
        `missing()` or `known()`, or sentences such as "age in 30..40". `balance` names a column
        whose values shall come equally often, or maps it to shares. `prompts` is a table of which
        each row is completed: its gaps and the columns it lacks are drawn. `like` is a row, or a
        table of rows, of which `keep` (names, or a number of cells chosen at random) stays.

        `temperature` above 1 gives more novel rows, below 1 more typical ones; for all columns or
        each (1, or what `pareto` chose). `complete` leaves no gaps. `decode="centre"` gives the
        centres of bins, as in the paper. Without a seed every call gives other rows, and the log
        says which seed it was; the number of rows is part of what a seed means.
        """
        parts = self.sample_batches(
            rows,
            seed=seed,
            temperature=temperature,
            complete=complete,
            decode=decode,
            where=where,
            balance=balance,
            prompts=prompts,
            like=like,
            keep=keep,
        )
        table = pa.concat_tables(parts).combine_chunks()
        return tables.give_back(table, self.schema_, kind)

    def sample_batches(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        temperature: float | Mapping[str, float] | None = None,
        complete: bool = False,
        decode: Decode = "inside",
        where: Mapping[str, Any] | Sequence[str] | str | None = None,
        balance: str | Mapping[str, Mapping[Any, float]] | None = None,
        prompts: Any = None,
        like: Any = None,
        keep: Sequence[str] | int | None = None,
    ) -> Iterator[pa.Table]:
        """`sample` in parts, as Arrow tables, so that any number of rows fits in memory."""
        learned = self._fitted
        if prompts is not None or like is not None:
            if where is not None or balance is not None or not (prompts is None or like is None):
                raise UserError("Give one of: where (with or without balance), prompts, like.")
            if prompts is not None and (rows is not None or keep is not None):
                raise UserError("Prompts give one row each; leave out the number of rows and keep.")
            if rows is not None:
                _check_count(rows, "The number of rows", 0)
            source = prompts if like is None else like
            request = self._request(seed, temperature, complete, decode)
            return partial.completed(learned, source, rows, keep, request)
        if keep is not None:
            raise UserError("keep goes with like: the cells that stay as they are.")
        count = _check_count(rows, "The number of rows", 0)
        request = self._request(seed, temperature, complete, decode, where, balance)
        return rows_in_batches(learned, count, request)

    def sample_to(
        self,
        folder: str | Path,
        rows: int,
        *,
        seed: int,
        temperature: float | Mapping[str, float] | None = None,
        complete: bool = False,
        decode: Decode = "inside",
        where: Mapping[str, Any] | Sequence[str] | str | None = None,
        balance: str | Mapping[str, Mapping[Any, float]] | None = None,
        part_rows: int = PART_ROWS,
        engine: Engine = "local",
        on_part: Callable[[int], None] | None = None,
    ) -> int:
        """Write the rows that `sample` gives as Parquet files of `part_rows` rows each; how many.

        `on_part` is called with the rows of each part that is there. What an interrupted call has
        written stays; the same call goes on. `engine="ray"` makes the parts on a Ray cluster whose
        machines all see the folder.
        """
        count = _check_count(rows, "The number of rows", 0)
        request = self._request(seed, temperature, complete, decode, where, balance)
        asked = {
            "seed": request.seed,
            "temperatures": request.heat.tolist(),
            "complete": complete,
            "decode": decode,
            "where": repr(where),
            "balance": repr(balance),
        }
        parts = partitions.sample_parts(
            self._fitted,
            Path(folder).absolute(),
            count,
            request,
            asked=asked,
            part_rows=_check_count(part_rows, "part_rows", 1),
            engine=engine,
        )
        return _sum(parts, on_part)

    def impute_to(
        self,
        folder: str | Path,
        source: Any,
        *,
        how: Imputation = "draw",
        columns: Sequence[str] | None = None,
        seed: int = 0,
        engine: Engine = "local",
        on_part: Callable[[int], None] | None = None,
    ) -> int:
        """`impute` for files of any size together (a file, a list, a folder or a pattern), as
        Parquet files; see `sample_to`."""
        if how not in get_args(Imputation):
            raise UserError(f"how is {how!r}, but must be one of: draw, mode, mean.")
        parts = partitions.impute_parts(
            self._fitted,
            Path(folder).absolute(),
            source,
            self._request(seed, 1.0),
            how=how,
            columns=columns,
            engine=engine,
        )
        return _sum(parts, on_part)

    def _request(
        self,
        seed: int | None,
        temperature: float | Mapping[str, float] | None,
        complete: bool = True,
        decode: Decode = "inside",
        where: Any = None,
        balance: Any = None,
    ) -> Request:
        learned = self._fitted
        if decode not in get_args(Decode):
            raise UserError(f"decode is {decode!r}, but must be one of: inside, centre.")
        return Request(
            seed=_seed(seed),
            heat=temperatures(temperature, learned),
            complete=complete,
            decode=decode,
            threads=self._threads,
            parts=parts_of(learned.codec, conditions(where), balance),
        )

    def impute(
        self,
        table: Any,
        *,
        how: Imputation = "draw",
        draws: int | None = None,
        columns: Sequence[str] | None = None,
        seed: int | None = None,
        kind: tables.Given | None = None,
    ) -> Any:
        """The table with its gaps filled; every known cell comes back as it was.

        `how` is "draw" (a value from the distribution given the row's known cells), "mode" (the
        likeliest value) or "mean" (the expected number; the mode of other columns). With `draws`
        a list of that many tables comes back, for multiple imputation. `columns` are those to
        fill: a gap in any other is known to be missing, and stays.
        """
        if draws is not None:
            _check_count(draws, "draws", 1)
        arrow, source = tables.load(table)
        source = tables.forget(source, [one.name for one in arrow.schema if one.type == pa.null()])
        schema = dataclasses.replace(self.schema_, source=source)
        seed = _seed(seed) if how == "draw" else 0
        found, warned = [], set[str]()
        for draw in range(draws or 1):
            parts = self.impute_batches(
                [arrow], how=how, columns=columns, seed=seed, draw=draw, warned=warned
            )
            filled = pa.concat_tables(parts).combine_chunks()
            if source.kind == "csv":
                filled = self._fitted.codec.read(filled).select(filled.column_names)
            if source.pandas is not None:
                filled = filled.replace_schema_metadata({"pandas": source.pandas})
            found.append(tables.same_index(tables.give_back(filled, schema, kind), table))
        return found if draws is not None else found[0]

    def impute_batches(
        self,
        batches: Iterable[pa.Table],
        *,
        how: Imputation = "draw",
        columns: Sequence[str] | None = None,
        seed: int,
        draw: int = 0,
        warned: set[str] | None = None,
    ) -> Iterator[pa.Table]:
        """`impute` for a table in parts, of any size together, as Arrow tables.

        `draw` counts the draws of multiple imputation; `warned` holds the columns that a warning
        was given of, so that it comes once.
        """
        if how not in get_args(Imputation):
            raise UserError(f"how is {how!r}, but must be one of: draw, mode, mean.")
        learned = self._fitted
        request = self._request(seed, 1.0)
        return partial.imputed(
            learned,
            batches,
            request,
            how=how,
            columns=columns,
            draw=draw,
            warned=set() if warned is None else warned,
        )

    def log_prob(self, table: Any, *, orders: int = 1, seed: int = 0) -> np.ndarray:
        """Log-probability of each row in nats, (rows,).

        Of a number it is the mass of its point on the column's decimal grid, so that models with
        other bins compare. Along one order of columns it is exact; with several `orders` it is
        that of their mixture. A cell whose value the model never saw counts as one row in all
        training rows and one; gaps that the model was told to mask count nothing.
        """
        return scores.log_prob(self._fitted, tables.load(table)[0], orders, seed, self._threads)

    def score(self, table: Any, *, orders: int = 4, seed: int = 0, kind: Any = None) -> Any:
        """How usual each row is: a table with `log_prob`, `anomaly` (the mean surprise of its
        known cells in nats: higher is odder) and `oddest` (the column that surprises most)."""
        found = scores.score(self._fitted, tables.load(table)[0], orders, seed, self._threads)
        return tables.give(found, self.schema_, kind, like=table)

    def predict_proba(self, table: Any, column: str, *, kind: Any = None) -> Any:
        """Probabilities of each value of `column` (of each bin of numbers) given the rest of the
        row, as a table with one column per value; what the table holds in `column` is not read."""
        arrow = tables.load(table)[0]
        found = scores.predict_proba(self._fitted, arrow, column, self._threads)
        return tables.give(found, self.schema_, kind, like=table)

    def embed(self, table: Any) -> np.ndarray:
        """What the network makes of each row: (rows, width) float32."""
        return scores.embed(self._fitted, tables.load(table)[0], self._threads)

    @property
    def _threads(self) -> int:
        return self.threads or 1  # not measured: results must not depend on the load

    def save(self, path: str | Path) -> None:
        """Write the model as one file."""
        self._fitted.save(Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "TabMT":
        """Read a model that `save` wrote."""
        learned = Learned.load(Path(path))
        # The machine that fitted it may have had another number of cores.
        settings = learned.card.settings.to_json() | {"threads": None}
        model = cls(seed=learned.card.seed, **settings)
        model.learned_ = learned
        return model


def _sum(parts: Iterator[int], on_part: Callable[[int], None] | None) -> int:
    total = 0
    for rows in parts:
        total += rows
        if on_part is not None:
            on_part(rows)
    return total


def _check_count(value: Any, what: str, least: int) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise UserError(f"{what} is {value!r}, but must be a whole number from {least}.")
    return int(value)


def _seed(seed: int | None) -> int:
    if seed is None:
        seed = secrets.randbelow(2**31)
        log.info("drawing with seed %d; give it again to get the same rows", seed)
    return int(seed)
