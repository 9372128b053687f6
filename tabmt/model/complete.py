"""Complete rows of which some cells are known: tables of prompts, and rows like given ones.

Known cells stay exactly as they are, in the types that the model returns. Drawn cells satisfy the
rules, as far as the known cells allow it.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.columns import CANDIDATES_PER_BIN, Bounds
from tabmt.codec.table import TableCodec
from tabmt.data.arrow_types import plain_array
from tabmt.data.dataset import Dataset
from tabmt.data.missing import is_known
from tabmt.data.schema import unknown_column
from tabmt.data.typed_columns import parse_column
from tabmt.errors import UserError
from tabmt.model.fitted_model import FittedModel
from tabmt.model.generate import (
    BATCH_ROWS,
    MOST_WEIGHTS,
    Request,
    Rows,
    Sampler,
    drawn_codes,
    unbounded,
)
from tabmt.rules.enforce import RuleState
from tabmt.rules.redraw import Candidates, redraw
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

CHUNK_ROWS = 256  # rows with one order, whatever the size of the table
COPIES = (4, 16, 64, 64, 64, 64)  # of a row that violates a rule, in each further attempt ...
MOST_CANDIDATES = 2048  # ... and how many of them at a time


@dataclass
class RuleViolations:
    """How many of the completed rows violate a rule, and why."""

    rows: int = 0
    by_known_cells: int = 0
    not_solved: int = 0

    def log(self) -> None:
        for count, why in (
            (self.by_known_cells, "because of their known cells, which are not changed"),
            (self.not_solved, "because no value was found that satisfies it"),
        ):
            if count:
                log.warning("%s of %s rows violate a rule %s.", f"{count:,}", f"{self.rows:,}", why)


# --- tables of prompts ---------------------------------------------------------------------


def complete_batches(model: FittedModel, table: Any, request: Request) -> Iterator[pa.Table]:
    """Each row of a table of prompts, with its missing values and absent columns drawn."""
    batches = Dataset.open(_one_row_as_table(table)).batches(BATCH_ROWS)
    return _completed(model, batches, None, request)


def like_batches(
    model: FittedModel, table: Any, rows: int | None, keep: Any, request: Request
) -> Iterator[pa.Table]:
    """Rows of a table of which only some cells are kept, and the others drawn.

    With a number of `rows`, the rows of the table are taken in turn until there are as many.
    """
    dataset = Dataset.open(_one_row_as_table(table))
    batches = dataset.batches(BATCH_ROWS)
    if rows is not None:
        batches = _repeated(dataset.to_table(), rows)
    return _completed(model, batches, keep, request)


def _completed(
    model: FittedModel, batches: Iterable[pa.Table], keep: Any, request: Request
) -> Iterator[pa.Table]:
    codec = model.codec
    completion = Completion(model, request)
    first, warned = 0, set[str]()
    for table in batches:
        tokens = codec.encode_partial(table, warned=warned)
        kept = _known_cells(codec, table) & _kept_cells(table, keep, request.seed, first)
        for name, cells in zip(table.column_names, kept.T, strict=True):
            if name in codec.token_index:
                tokens[~cells, codec.token_index[name]] = MASK
        rows = completion.fill(tokens, _only(table, kept), first)
        drawn = codec.decode(
            rows.tokens,
            seed=request.seed,
            first_row=first,
            how=request.decode,
            within=rows.within,
        )
        yield _with_prompts(codec, table, kept, drawn)
        first += table.num_rows
    completion.violations.log()


def _one_row_as_table(source: Any) -> Any:
    """A mapping, or a row of a data frame, is a table of one row."""
    if type(source).__module__.startswith("pandas") and type(source).__name__ == "Series":
        source = source.to_dict()
    if isinstance(source, Mapping):
        return pa.table({str(k): pa.array([v], from_pandas=True) for k, v in source.items()})
    return source


def _repeated(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """`rows` rows, from the first to the last and over again."""
    if table.num_rows == 0:
        raise UserError("The table given to `like` has no rows.")
    for first in range(0, max(rows, 1), BATCH_ROWS):
        indices = np.arange(first, min(first + BATCH_ROWS, rows)) % table.num_rows
        yield table.take(pa.array(indices))


def _known_cells(codec: TableCodec, table: pa.Table) -> np.ndarray:
    """(rows, columns of the table) bool: which cells are not missing."""
    cells = [
        is_known(table.column(name), codec.schema[name]).to_numpy(zero_copy_only=False)
        for name in table.column_names
    ]
    return np.stack(cells, axis=1) if cells else np.zeros((table.num_rows, 0), bool)


def _kept_cells(table: pa.Table, keep: Any, seed: int, first: int) -> np.ndarray:
    """(rows, columns of the table) bool: the cells that stay; `keep` names columns, or is a number
    of cells that are chosen at random in each row."""
    names = table.column_names
    if keep is None:
        return np.ones((table.num_rows, len(names)), bool)
    if isinstance(keep, int | np.integer) and not isinstance(keep, bool):
        if not 0 <= keep <= len(names):
            raise UserError(
                f"keep is {keep}, but must be from 0 to {len(names)}, the number of columns."
            )
        rank = numpy_stream(seed, "keep", first).random((table.num_rows, len(names))).argsort(1)
        return np.asarray(rank.argsort(1) < keep)
    if isinstance(keep, str):
        keep = [keep]
    if not isinstance(keep, Iterable):
        raise UserError(f"keep is {keep!r}, but must be names of columns or a number of cells.")
    for name in keep:
        if name not in names:
            raise UserError(f"keep names column {name!r}, {unknown_column(str(name), names)}")
    return np.tile(np.isin(names, list(keep)), (table.num_rows, 1))


def _only(table: pa.Table, kept: np.ndarray) -> pa.Table:
    """The table with nulls where cells are not kept."""
    rows = np.arange(table.num_rows)
    columns = [
        plain_array(column).take(pa.array(rows, mask=~kept[:, index]))
        for index, column in enumerate(table.columns)
    ]
    return pa.table(columns, names=table.column_names)


def _with_prompts(
    codec: TableCodec, prompts: pa.Table, kept: np.ndarray, drawn: pa.Table
) -> pa.Table:
    """Drawn rows with the kept cells of the prompts as they were given."""
    for cells, name in zip(kept.T, prompts.column_names, strict=True):
        coded, column = codec[name], prompts.column(name)
        own = plain_array(drawn.column(name)).type
        given = coded.in_user_type(parse_column(column, coded.column).values)
        joined = join_columns(pa.array(~cells), drawn.column(name), plain_array(given).cast(own))
        index = drawn.column_names.index(name)
        drawn = drawn.set_column(index, drawn.schema.field(index), joined)
    return drawn


def join_columns(
    use_first: pa.Array, first: pa.ChunkedArray, second: pa.ChunkedArray | pa.Array
) -> pa.Array:
    """`first` where it is to be used, `second` elsewhere, in the type of `first`."""
    plain = plain_array(first)
    if pa.types.is_null(plain.type):  # not even the type is known
        return plain_array(second)
    values = pc.if_else(use_first, plain, plain_array(second).cast(plain.type))
    if not pa.types.is_dictionary(first.type):
        return values.cast(first.type)
    words = values[:0]
    if first.num_chunks:
        words = first.unify_dictionaries().chunk(0).dictionary.cast(plain.type).drop_null()
    words = pc.unique(pa.concat_arrays([words, values.drop_null()]))
    indices = pc.index_in(values, words).cast(first.type.index_type)
    return pa.DictionaryArray.from_arrays(
        indices, words.cast(first.type.value_type), ordered=first.type.ordered
    )


# --- tokens of known cells -----------------------------------------------------------------


class Completion:
    """Draws the masked cells of rows, batch after batch."""

    def __init__(
        self,
        model: FittedModel,
        request: Request,
        *,
        leave: Sequence[int] = (),
        draw: int = 0,
    ) -> None:
        """The token columns of `leave` are not drawn; `draw` numbers repeated imputations."""
        self._model, self._request, self._leave, self._draw = model, request, leave, draw
        self._rules = model.rules.for_rows(allow_missing=request.allow_missing)
        self.violations = RuleViolations()
        self._allowed = drawn_codes(model.codec, allow_missing=request.allow_missing)
        self._sampler = None if model.net is None else Sampler(model, request)

    def fill(self, tokens: np.ndarray, table: pa.Table, first_row: int) -> Rows:
        """Tokens without masked cells, (B, C) -> (B, C).

        `table` is what the tokens were made from: rules need its values, not only their codes.
        """
        if self._sampler is None or not len(tokens):
            return Rows(tokens, {})
        if self._rules.rules:
            return self._fill_under_rules(tokens, table, first_row)
        chunks = []
        for start in range(0, len(tokens), CHUNK_ROWS):
            seed = self._seed((first_row + start) // CHUNK_ROWS)
            chunks.append(self._fill_chunk(tokens[start : start + CHUNK_ROWS], seed, None))
        return Rows(np.concatenate(chunks), {})

    def _seed(self, *position: int) -> int:
        return derive(self._request.seed, "complete", self._draw, *position)

    def _fill_chunk(
        self, tokens: np.ndarray, seed: int, constraint: RuleState | None
    ) -> np.ndarray:
        assert self._sampler is not None
        return self._sampler.fill(
            tokens,
            seed,
            allowed=self._allowed,
            column_order=self._model.column_order,
            leave=self._leave,
            constraint=constraint,
        )

    def _fill_under_rules(self, tokens: np.ndarray, table: pa.Table, first_row: int) -> Rows:
        """Rows that violate a rule are drawn again, several copies at once. A row for which no copy
        is valid stays as it was drawn first, and is counted."""
        known = self._known_values(tokens, table)
        result = RuledRows(tokens)
        most = self._most_rows_at_once()
        chunk_rows = min(CHUNK_ROWS, 2 ** int(math.log2(most)))
        for start in range(0, len(tokens), chunk_rows):
            rows = np.arange(start, min(start + chunk_rows, len(tokens)))
            number = (first_row + start) // chunk_rows
            first, waived = self._attempt(tokens, known, rows, self._seed(number))
            result.use(rows, first, np.arange(len(rows)))
            rounds = (
                lambda slots, turn=turn, copies=copies, number=number: self._attempt_copies(
                    tokens, known, slots, copies, min(MOST_CANDIDATES, most), (number, turn)
                )
                for turn, copies in enumerate(COPIES)
            )
            still_open = redraw(rows[~first.valid], rounds, result.use)
            self.violations.by_known_cells += int(waived.sum())
            self.violations.not_solved += len(still_open)
        self.violations.rows += len(tokens)
        return result.rows()

    def _attempt(
        self, tokens: np.ndarray, known: "KnownValues", rows: np.ndarray, seed: int
    ) -> tuple[Candidates, np.ndarray]:
        """Draw rows once; also which of them violate a rule by their known cells alone."""
        model = self._model
        rng = numpy_stream(seed, "rules")
        state = RuleState(
            self._rules, model.codec, len(rows), rng, allowed=self._allowed, selections={}
        )
        for name, (is_given, codes, values) in known.items():
            state.set_known(name, is_given[rows], codes[rows], values.take(pa.array(rows)))
        waived = state.mark_unsatisfiable()
        drawn = self._fill_chunk(tokens[rows], seed, state)
        return Candidates((drawn, state.units), state.satisfied(), rows), waived

    def _attempt_copies(
        self,
        tokens: np.ndarray,
        known: "KnownValues",
        rows: np.ndarray,
        copies: int,
        most: int,
        position: tuple[int, int],
    ) -> Iterator[Candidates]:
        """Several candidates for each row, a bounded number at a time."""
        size = max(1, most // copies)
        for start in range(0, len(rows), size):
            some = rows[start : start + size].repeat(copies)
            yield self._attempt(tokens, known, some, self._seed(*position, start))[0]

    def _known_values(self, tokens: np.ndarray, table: pa.Table) -> "KnownValues":
        """For each column of the rules: which cells are given, their codes and their values."""
        model, known = self._model, {}
        for coded in model.codec.coded:
            name = coded.name
            if name not in self._rules.columns() or name not in table.column_names:
                continue
            typed = parse_column(table.column(name), coded.column)
            codes, is_given = np.zeros(len(tokens), np.int64), typed.is_known
            if (index := model.codec.token_index.get(name)) is not None:
                codes = tokens[:, index]
                # In a column that is not drawn, missing values stay missing.
                is_given = np.ones(len(codes), bool) if index in self._leave else codes != MASK
            known[name] = is_given, codes, typed.values
        return known

    def _most_rows_at_once(self) -> int:
        """Rows whose weights fit in memory: every candidate of every code has one."""
        columns = self._rules.columns()
        sizes = [c.size for c in self._model.codec.token_columns if c.name in columns]
        return max(1, MOST_WEIGHTS // (CANDIDATES_PER_BIN * max(sizes, default=1)))


KnownValues = Mapping[str, tuple[np.ndarray, np.ndarray, pa.Array]]


class RuledRows:
    """Rows that are taken over from candidates, with the numbers that satisfied the rules."""

    def __init__(self, tokens: np.ndarray) -> None:
        self._tokens = tokens.copy()
        self._within: dict[str, Bounds] = {}

    def use(self, rows: np.ndarray, candidates: Candidates, chosen: np.ndarray) -> None:
        drawn, units = candidates.rows
        self._tokens[rows] = drawn[chosen]
        for name, own in units.items():
            for side in self._within.setdefault(name, unbounded(len(self._tokens))):
                side[rows] = np.where(np.isnan(own[chosen]), side[rows], own[chosen])

    def rows(self) -> Rows:
        return Rows(self._tokens, self._within)
