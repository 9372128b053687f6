"""TabMT, the scikit-learn estimator: the Python interface. It stores settings and calls the model.

The constructor only stores settings, `fit` trains and returns self, and the names of fitted
attributes end in an underscore.
"""

import contextlib
import copy
import dataclasses
import functools
import html
import inspect
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from tabmt.conditions.condition import parse_conditions
from tabmt.conditions.selections import Selections, select, shares_of_rows
from tabmt.config import (
    CodecConfig,
    Decayed,
    Decode,
    Device,
    DrawOptions,
    Engine,
    GenerationConfig,
    Imputation,
    InitialBias,
    Missing,
    NetworkConfig,
    NetworkName,
    Optimizer,
    Precision,
    PrivacyConfig,
    PrivateMethod,
    Quantizer,
    SampleOptions,
    SharedValues,
    TrainConfig,
    check_choice,
    check_count,
    help_in_python,
)
from tabmt.data import frames
from tabmt.data.dataset import Dataset
from tabmt.data.frames import Output
from tabmt.data.schema import Schema
from tabmt.data.typed_columns import in_schema_types
from tabmt.errors import UserError
from tabmt.method.train import Progress
from tabmt.model import folders
from tabmt.model import row_scores as scores
from tabmt.model.complete import complete_batches, like_batches
from tabmt.model.fit import FitOptions, fit
from tabmt.model.fitted_model import FittedModel
from tabmt.model.folders import FILE_ROWS
from tabmt.model.generate import Request, generate_batches, resolve_temperatures
from tabmt.model.impute import impute_batches
from tabmt.model.model_card import ModelCard
from tabmt.model.model_file import load_model, save_model
from tabmt.model.model_html import model_html
from tabmt.model.sample_many import Asked, sample_many
from tabmt.progress import describe, in_notebook, notebook_bar

log = logging.getLogger(__name__)

Result = TypeVar("Result")
OnStep = Callable[[Progress], None]


class NotFitted(UserError, NotFittedError):  # type: ignore[misc]
    """The model has not learned anything yet."""


@contextlib.contextmanager
def _shown(on_step: OnStep | None) -> Iterator[OnStep | None]:
    """What to call after each step: in a notebook, by default, a bar below the cell."""
    if on_step is not None or not in_notebook():
        yield on_step
        return
    with notebook_bar() as draw:
        yield lambda step: draw(step.share, describe(step))


def with_options(
    options_class: type[Any],
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Let a method take the fields of a dataclass as keyword arguments.

    The options are declared once, in config.py; the method receives them as `options`, and its
    signature and docstring list them.
    """
    fields = dataclasses.fields(options_class)

    def decorate(method: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(method)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Result:
            given = {f.name: kwargs.pop(f.name) for f in fields if f.name in kwargs}
            return method(self, *args, options=options_class(**given), **kwargs)

        own = inspect.signature(method)
        parameters = [p for p in own.parameters.values() if p.name != "options"]
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
            for f in fields
        ]
        wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        lines = [f"            {f.name}: {help_in_python(f)}" for f in fields]
        wrapper.__doc__ = "\n".join([f"{method.__doc__}", "        Options:", *lines, "        "])
        return wrapper

    return decorate


class TabMT(BaseEstimator):  # type: ignore[misc]
    """A masked transformer that learns one table and generates rows like it.

    Wherever a table is expected, it may be a pandas, polars or Arrow table, the path of a CSV,
    Parquet or Arrow file or of a folder of such files, or a pattern such as "months/*.csv". Samples
    have the type of the table that was fitted. Settings that are None are chosen for the table.

    Example:
        >>> model = TabMT(minutes=2, seed=0).fit(df)
        >>> synthetic = model.sample(1000, seed=1, temperature={"age": 1.2})
        >>> model.save("adult.tabmt")
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        missing: Missing = CodecConfig.missing,
        quantizer: Quantizer = CodecConfig.quantizer,
        max_bins: int | None = CodecConfig.max_bins,
        shared_values: SharedValues = CodecConfig.shared_values,
        few_values: int = CodecConfig.few_values,
        find_ids: bool = CodecConfig.find_ids,
        find_rules: bool = CodecConfig.find_rules,
        protect: int = CodecConfig.protect,
        rare_text: str | None = CodecConfig.rare_text,
        network: NetworkName = NetworkConfig.network,
        width: int = NetworkConfig.width,
        depth: int | None = None,
        heads: int = NetworkConfig.heads,
        dropout: float | None = None,
        smoothing: float = NetworkConfig.smoothing,
        drop_path: float = NetworkConfig.drop_path,
        initial_bias: InitialBias = NetworkConfig.initial_bias,
        steps: int = TrainConfig.steps,
        minutes: float | None = TrainConfig.minutes,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        optimizer: Optimizer = TrainConfig.optimizer,
        weight_decay: float = TrainConfig.weight_decay,
        weight_decay_on: Decayed = TrainConfig.weight_decay_on,
        warmup: int | None = None,
        clip: float = TrainConfig.clip,
        average_steps: int = TrainConfig.average_steps,
        valid_share: float | None = None,
        eval_every: int = TrainConfig.eval_every,
        patience: int = TrainConfig.patience,
        finish: float = TrainConfig.finish,
        sampled_codes: int = TrainConfig.sampled_codes,
        target: str | None = TrainConfig.target,
        checkpoint_every: float = TrainConfig.checkpoint_every,
        device: Device = TrainConfig.device,
        precision: Precision = TrainConfig.precision,
        threads: int | None = TrainConfig.threads,
        decode: Decode = GenerationConfig.decode,
        rows_per_order: int | None = GenerationConfig.rows_per_order,
        target_last: bool = GenerationConfig.target_last,
        large_columns_first: bool = GenerationConfig.large_columns_first,
        calibrate_missing: bool = GenerationConfig.calibrate_missing,
        epsilon: float | None = PrivacyConfig.epsilon,
        delta: float = PrivacyConfig.delta,
        private_method: PrivateMethod = PrivacyConfig.private_method,
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
        on_step: OnStep | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Self:
        """Fit the model to a table.

        `schema` overrides what is inferred (a JSON file or its content). `continue_from` is another
        model, from whose weights training continues on new rows with its schema. `checkpoint` is a
        file to which progress is saved; with `resume`, an interrupted fit resumes from it. Files
        that are too large for memory are first encoded, by the `engine` "local" or "ray", into the
        folder `store`, where a later fit of the same files finds them. `on_step` is called after
        each step; if it raises `Cancelled`, the checkpoint is saved first. Training ends with the
        best weights so far as soon as `should_stop`, which is called before each step, returns
        True. In a notebook, a fit without `on_step` shows its progress.

        Example:
            >>> schema = {"columns": [{"name": "code", "kind": "categorical"}]}
            >>> model = TabMT(minutes=2).fit("people.csv", schema=schema)
        """
        options = FitOptions(
            schema=schema,
            continue_from=None if continue_from is None else continue_from.model_,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            resume=resume,
            store=None if store is None else Path(store).absolute(),
            engine=engine,
            should_stop=should_stop,
        )
        with _shown(on_step) as shown:
            options = dataclasses.replace(options, on_step=shown)
            self._model = fit(table, self.get_params(), options)
        return self

    @property
    def model_(self) -> FittedModel:
        """The fitted model: codec, network, rules and card."""
        model: FittedModel | None = getattr(self, "_model", None)
        if model is None:
            raise NotFitted("This TabMT is not fitted yet; call fit(table) first.")
        return model

    @property
    def schema_(self) -> Schema:
        """The kind of each column, with a reason."""
        return self.model_.codec.schema

    @property
    def card_(self) -> ModelCard:
        """How the model was fitted: settings, rows, training, versions."""
        return self.model_.card

    def _repr_html_(self) -> str:
        """What a notebook shows: how the model was made, and its columns."""
        if not self.__sklearn_is_fitted__():
            return f"<pre>{html.escape(repr(self))}</pre>"
        return model_html(self.model_)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    # --- new rows --------------------------------------------------------------------------

    @with_options(SampleOptions)
    def sample(self, rows: int, *, output: Output | None = None, options: SampleOptions) -> Any:
        """New rows, as the kind of table that was fitted, or as `output` (pandas, polars, arrow).

        In `where`, a column is mapped to a value, `one_of(...)`, `between(low, high)`, `missing()`
        or `known()`. Without a seed every call returns other rows, and the log says which seed was
        used. The rows of a seed depend on the number of rows.

        Example:
            >>> model.sample(200, where={"species": "Gentoo", "body_mass_g": between(5000, 6000)})
            >>> model.sample(300, balance="species", seed=1)
        """
        return self._in_memory(self._generate(rows, options), output)

    @with_options(DrawOptions)
    def sample_many(
        self,
        requests: Sequence[tuple[int, Any]],
        *,
        output: Output | None = None,
        options: DrawOptions,
    ) -> list[Any]:
        """A table for each of several requests: a number of rows, and its `where` or None.

        Small requests share most of the work, so this is faster than `sample` for each. All rows
        are in memory.

        Example:
            >>> adelie, gentoo = model.sample_many([(10, "species = Adelie"), (5, None)], seed=1)
        """
        frames.check_output(output)
        if not requests:
            return []
        request = self._request(options)
        codec = self.model_.codec.at_centres() if request.decode == "centre" else self.model_.codec
        asked, indices, selections = [], dict[str, int](), list[Selections]()
        for rows, where in requests:
            conditions = parse_conditions(where)
            index = indices.setdefault(repr(conditions), len(selections))
            if index == len(selections):
                selections.append(select(codec, conditions))
            asked.append(Asked(check_count("rows", rows, 0), index))
        tables = sample_many(self.model_, asked, selections, request)
        return [frames.from_arrow(table, self.schema_, output) for table in tables]

    @with_options(SampleOptions)
    def sample_batches(self, rows: int, *, options: SampleOptions) -> Iterator[pa.Table]:
        """`sample` as a stream of Arrow tables, for any number of rows.

        Example:
            >>> for table in model.sample_batches(10**9, seed=1): ...
        """
        return self._generate(rows, options)

    @with_options(SampleOptions)
    def sample_to(
        self,
        folder: str | Path,
        rows: int,
        *,
        file_rows: int = FILE_ROWS,
        engine: Engine = "local",
        on_file: Callable[[int], None] | None = None,
        options: SampleOptions,
    ) -> int:
        """`sample` as a folder of Parquet files with `file_rows` rows each; returns the rows.

        Files of an interrupted call stay, and the same call resumes it. `engine="ray"` writes the
        files on a Ray cluster whose machines share the folder. `on_file` is called with the number
        of rows of each file. A seed is required, so that the same call can resume.

        Example:
            >>> model.sample_to("rows", 100_000_000, seed=1)
        """
        if options.seed is None:
            raise UserError(
                "A folder of files needs a seed, so that an interrupted call can be resumed."
            )
        request = self._request(options, options.where, options.balance)
        described = {
            **{f.name: getattr(options, f.name) for f in dataclasses.fields(options)},
            "where": repr(options.where),
            "balance": repr(options.balance),
            "temperature": request.temperature.tolist(),
        }
        written = folders.sample_into(
            self.model_,
            Path(folder).absolute(),
            check_count("rows", rows, 0),
            request,
            options=described,
            file_rows=check_count("file_rows", file_rows, 1),
            engine=engine,
        )
        return _total(written, on_file)

    @with_options(DrawOptions)
    def complete(self, table: Any, *, output: Output | None = None, options: DrawOptions) -> Any:
        """Each row of a table of prompts, with missing values and absent columns generated.

        Known cells stay as they are. A mapping is a table of one row.

        Example:
            >>> model.complete({"species": "Gentoo", "sex": "female"}, seed=1)
        """
        batches = complete_batches(self.model_, table, self._request(options))
        return self._in_memory(batches, output)

    @with_options(DrawOptions)
    def complete_batches(self, table: Any, *, options: DrawOptions) -> Iterator[pa.Table]:
        """`complete` as a stream of Arrow tables, for prompts of any size.

        Example:
            >>> for table in model.complete_batches("prompts.parquet", seed=1): ...
        """
        return complete_batches(self.model_, table, self._request(options))

    @with_options(DrawOptions)
    def like(
        self,
        table: Any,
        rows: int | None = None,
        *,
        keep: Sequence[str] | int,
        output: Output | None = None,
        options: DrawOptions,
    ) -> Any:
        """Rows like given ones: some of their cells are kept, the others generated.

        `keep` names the columns to keep, or is a number of cells that are chosen at random in each
        row. With a number of `rows`, the rows of the table are used in turn.

        Example:
            >>> model.like(df[:1], 100, keep=["species", "island"], seed=1)
        """
        batches = self._like(table, rows, keep, options)
        return self._in_memory(batches, output)

    @with_options(DrawOptions)
    def like_batches(
        self,
        table: Any,
        rows: int | None = None,
        *,
        keep: Sequence[str] | int,
        options: DrawOptions,
    ) -> Iterator[pa.Table]:
        """`like` as a stream of Arrow tables, for any number of rows.

        Example:
            >>> for table in model.like_batches(df, 10**9, keep=["species"], seed=1): ...
        """
        return self._like(table, rows, keep, options)

    def _generate(self, rows: int, options: SampleOptions) -> Iterator[pa.Table]:
        count = check_count("rows", rows, 0)
        request = self._request(options, options.where, options.balance)
        return generate_batches(self.model_, count, request)

    def _like(
        self, table: Any, rows: int | None, keep: Any, options: DrawOptions
    ) -> Iterator[pa.Table]:
        count = None if rows is None else check_count("rows", rows, 0)
        return like_batches(self.model_, table, count, keep, self._request(options))

    def _request(self, options: DrawOptions, where: Any = None, balance: Any = None) -> Request:
        model = self.model_
        decode = options.decode or model.card.settings.generation.decode
        check_choice("decode", decode, Decode)
        codec = model.codec.at_centres() if decode == "centre" else model.codec
        return Request(
            seed=_seed(options.seed),
            temperature=resolve_temperatures(options.temperature, model),
            allow_missing=options.allow_missing,
            decode=decode,
            threads=self._threads,
            shares=shares_of_rows(codec, parse_conditions(where), balance),
        )

    def _in_memory(self, batches: Iterator[pa.Table], output: Output | None) -> Any:
        frames.check_output(output)
        table = pa.concat_tables(batches).combine_chunks()
        return frames.from_arrow(table, self.schema_, output)

    # --- missing values --------------------------------------------------------------------

    def impute(
        self,
        table: Any,
        *,
        how: Imputation = "draw",
        columns: Sequence[str] | None = None,
        seed: int | None = None,
        output: Output | None = None,
    ) -> Any:
        """The table with its missing values filled; every known cell stays as it is.

        `how` is "draw" (a random value given the row's known cells), "mode" (the
        likeliest value) or "mean" (the expected number; the mode of other columns). `columns` are
        those to fill: a missing value in any other is known to be missing, and stays.

        Example:
            >>> filled = model.impute(df, seed=1)
        """
        return self._impute(table, 1, how, columns, seed, output)[0]

    def impute_many(
        self,
        table: Any,
        draws: int,
        *,
        columns: Sequence[str] | None = None,
        seed: int | None = None,
        output: Output | None = None,
    ) -> list[Any]:
        """Several tables, each with other random values for the missing ones: multiple imputation.

        Example:
            >>> for filled in model.impute_many(df, 5, seed=1): ...
        """
        draws = check_count("draws", draws, 1)
        return self._impute(table, draws, "draw", columns, seed, output)

    def _impute(
        self,
        table: Any,
        draws: int,
        how: Imputation,
        columns: Sequence[str] | None,
        seed: int | None,
        output: Output | None,
    ) -> list[Any]:
        dataset = Dataset.open(table)
        whole = dataset.to_table()
        empty = [field.name for field in whole.schema if field.type == pa.null()]
        source = frames.forget_pandas_types(dataset.source, empty)
        schema = dataclasses.replace(self.schema_, source=source)
        seed = _seed(seed) if how == "draw" else 0
        results, warned = [], set[str]()
        for draw in range(draws):
            batches = self.impute_batches(
                [whole], how=how, columns=columns, seed=seed, draw=draw, warned=warned
            )
            filled = pa.concat_tables(batches).combine_chunks()
            if source.kind == "csv":
                typed = in_schema_types(filled, self.schema_)
                filled = typed.select(filled.column_names)
            if source.pandas is not None:
                filled = filled.replace_schema_metadata({"pandas": source.pandas})
            result = frames.from_arrow(filled, schema, output)
            results.append(frames.with_index_of(result, table))
        return results

    def impute_batches(
        self,
        tables: Iterable[pa.Table],
        *,
        how: Imputation = "draw",
        columns: Sequence[str] | None = None,
        seed: int,
        draw: int = 0,
        warned: set[str] | None = None,
    ) -> Iterator[pa.Table]:
        """`impute` for a stream of Arrow tables, of any size together.

        `draw` is the number of the table in multiple imputation; `warned` collects the columns with
        a warning, so that each warning is logged once.

        Example:
            >>> for table in model.impute_batches(tables, seed=1): ...
        """
        check_choice("how", how, Imputation)
        request = self._request(DrawOptions(seed=seed, temperature=1.0))
        return impute_batches(
            self.model_, tables, request, how=how, columns=columns, draw=draw, warned=warned
        )

    def impute_to(
        self,
        folder: str | Path,
        table: Any,
        *,
        how: Imputation = "draw",
        columns: Sequence[str] | None = None,
        seed: int = 0,
        engine: Engine = "local",
        on_file: Callable[[int], None] | None = None,
    ) -> int:
        """`impute` for files of any size, into a folder of Parquet files; see `sample_to`.

        Example:
            >>> model.impute_to("complete", "months/*.parquet", seed=1)
        """
        check_choice("how", how, Imputation)
        written = folders.impute_into(
            self.model_,
            Path(folder).absolute(),
            table,
            self._request(DrawOptions(seed=seed, temperature=1.0)),
            how=how,
            columns=columns,
            engine=engine,
        )
        return _total(written, on_file)

    # --- likelihood ------------------------------------------------------------------------

    def log_prob(self, table: Any, *, orders: int = 1, seed: int = 0) -> np.ndarray:
        """Log-probability of each row in nats, (rows,).

        For a number it is the mass of its point on the column's decimal grid, so that models with
        different bins can be compared. Along one order of columns it is exact; with several
        `orders` it is that of their mixture. For a value that the model has never seen, it is
        divided by the number of training rows plus one; missing values that were masked in
        training do not count.

        Example:
            >>> model.log_prob(test).mean()
        """
        return scores.log_prob(
            self.model_, Dataset.open(table).to_table(), orders, seed, self._threads
        )

    def score(
        self, table: Any, *, orders: int = 4, seed: int = 0, output: Output | None = None
    ) -> Any:
        """How usual each row is, as a table: `log_prob`; `anomaly`, the mean negative
        log-likelihood of the row's known cells in nats (higher is more unusual); and
        `least_likely`, the most unusual column.

        Example:
            >>> model.score(df).sort_values("anomaly").tail()
        """
        whole = Dataset.open(table).to_table()
        result = scores.score(self.model_, whole, orders, seed, self._threads)
        return frames.results_from_arrow(result, self.schema_, output, rows=table)

    def predict_proba(self, table: Any, column: str, *, output: Output | None = None) -> Any:
        """Probabilities of each value of `column` (of each bin of numbers) given the rest of the
        row, as a table with one column per value. The values of `column` in the table are not used.

        Example:
            >>> model.predict_proba(df, "species")
        """
        whole = Dataset.open(table).to_table()
        result = scores.predict_proba(self.model_, whole, column, self._threads)
        return frames.results_from_arrow(result, self.schema_, output, rows=table)

    def embed(self, table: Any) -> np.ndarray:
        """The network's representation of each row: (rows, width) float32.

        Example:
            >>> vectors = model.embed(df)
        """
        return scores.embed(self.model_, Dataset.open(table).to_table(), self._threads)

    def embed_batches(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """`embed` for a stream of Arrow tables, of any size together: as tables with one column
        for each dimension, `embedding_0` and so on.

        Example:
            >>> for table in model.embed_batches(tables): ...
        """
        for table in tables:
            vectors = self.embed(table)
            yield pa.table({f"embedding_{i}": values for i, values in enumerate(vectors.T)})

    # --- files -----------------------------------------------------------------------------

    def with_temperatures(self, temperatures: Mapping[str, float]) -> "TabMT":
        """The same model with other default temperatures: those of a point of a Pareto front.

        Example:
            >>> private = model.with_temperatures(front.choose(quality=0.8).temperatures)
        """
        model = self.model_
        columns = set(model.codec.token_index)
        if set(temperatures) != columns:
            differing = ", ".join(sorted(set(temperatures) ^ columns))
            raise UserError(
                f"The temperatures and the model differ in the columns {differing}: they belong to "
                "another model."
            )
        card = dataclasses.replace(model.card, temperatures=dict(temperatures))
        other = copy.copy(self)
        other._model = dataclasses.replace(model, card=card)
        return other

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model as one file, readable by its owner only.

        A file that is not a model is not replaced, unless `force` is set.

        Example:
            >>> model.save("people.tabmt")
        """
        save_model(self.model_, Path(path), force=force)

    @classmethod
    def load(cls, path: str | Path) -> "TabMT":
        """Read a model that `save` wrote.

        Example:
            >>> model = TabMT.load("people.tabmt")
        """
        model = load_model(Path(path))
        # The machine that fitted it may have had another number of cores, or other ones.
        settings = model.card.settings.to_json() | {"threads": None, "precision": "auto"}
        loaded = cls(seed=model.card.seed, **settings)
        loaded._model = model
        return loaded

    @property
    def _threads(self) -> int:
        return self.threads or 1  # not measured: results must not depend on the load


def _total(counts: Iterator[int], on_file: Callable[[int], None] | None) -> int:
    total = 0
    for rows in counts:
        total += rows
        if on_file is not None:
            on_file(rows)
    return total


def _seed(seed: int | None) -> int:
    if seed is None:
        seed = secrets.randbelow(2**31)
        log.info("generating with seed %d; use it again to get the same rows", seed)
    return int(seed)
