"""Tables that are known in part: prompts given as a table, rows to be like, and imputation.

Imputing keeps the table's own types, and every known cell comes back as it was. Prompts come back
in the model's types, with the prompted cells exact.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.columns import Bounds, ConstantCodec, NumericCodec, TableCodec, as_given, typed
from tabmt.config import Imputation
from tabmt.data import files as tables
from tabmt.data import text_formats as text
from tabmt.data.schema import Column, but_the_table_has, combine
from tabmt.errors import UserError
from tabmt.model import complete as completion
from tabmt.model.complete import Broken
from tabmt.model.fitted import Learned
from tabmt.model.generate import BATCH_ROWS, Request
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK


def completed(
    learned: Learned, source: Any, rows: int | None, keep: Any, request: Request
) -> Iterator[pa.Table]:
    """Each row of a table of prompts, completed. With `keep` only these of its cells are known."""
    if rows is None:
        found, _ = tables.batches(_one_row(source), BATCH_ROWS)
    else:
        whole, _ = tables.load(_one_row(source))
        found = _repeated(whole, rows)
    first, warned, count = 0, set[str](), Broken()
    for table in found:
        yield _complete_part(learned, table, keep, request, first, warned, count)
        first += table.num_rows
    count.tell()


def _one_row(source: Any) -> Any:
    """A mapping, or a row of a data frame, is a table of one row."""
    if type(source).__module__.startswith("pandas") and type(source).__name__ == "Series":
        source = source.to_dict()
    if isinstance(source, Mapping):
        return pa.table({str(k): pa.array([v], from_pandas=True) for k, v in source.items()})
    return source


def _repeated(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """`rows` rows, from the first to the last and over again."""
    if table.num_rows == 0:
        raise UserError("The table of rows to be like has no rows.")
    for first in range(0, max(rows, 1), BATCH_ROWS):
        places = np.arange(first, min(first + BATCH_ROWS, rows)) % table.num_rows
        yield table.take(pa.array(places))


def _complete_part(
    learned: Learned,
    table: pa.Table,
    keep: Any,
    request: Request,
    first: int,
    warned: set[str],
    count: Broken,
) -> pa.Table:
    codec = learned.codec
    tokens = partial_tokens(codec, table, warned=warned)
    kept = known_cells(codec, table) & _kept(table, keep, request.seed, first)
    places = {name: place for place, name in enumerate(table.column_names)}
    for place, coded in enumerate(codec.token_columns):
        if coded.column.name in places:
            tokens[~kept[:, places[coded.column.name]], place] = MASK
    tokens, within = completion.complete(
        learned, tokens, _only(table, kept), request, first_row=first, count=count
    )
    drawn = codec.decode(
        tokens, seed=request.seed, first_row=first, how=request.decode, within=within
    )
    return put_prompts(codec, table, kept, drawn)


def _only(table: pa.Table, kept: np.ndarray) -> pa.Table:
    """The table with gaps where cells are not kept."""
    rows = np.arange(table.num_rows)
    columns = [
        combine(column).take(pa.array(rows, mask=~kept[:, place]))
        for place, column in enumerate(table.columns)
    ]
    return pa.table(columns, names=table.column_names)


def _kept(table: pa.Table, keep: Any, seed: int, first: int) -> np.ndarray:
    """(rows, columns) bool: the cells that stay."""
    names = table.column_names
    if keep is None:
        return np.ones((table.num_rows, len(names)), bool)
    if isinstance(keep, int | np.integer) and not isinstance(keep, bool):
        if not 0 <= keep <= len(names):
            raise UserError(f"keep is {keep}, but there are {len(names)} columns to keep cells of.")
        rank = numpy_stream(seed, "keep", first).random((table.num_rows, len(names))).argsort(1)
        return np.asarray(rank.argsort(1) < keep)
    if isinstance(keep, str):
        keep = [keep]
    if not isinstance(keep, Iterable):
        raise UserError(f"keep is {keep!r}, but must be names of columns or a number of cells.")
    for name in keep:
        if name not in names:
            raise UserError(f"keep names column {name!r}, {but_the_table_has(str(name), names)}")
    return np.tile(np.isin(names, list(keep)), (table.num_rows, 1))


def imputed(
    learned: Learned,
    parts: Iterable[pa.Table],
    request: Request,
    *,
    how: Imputation,
    columns: Sequence[str] | None,
    draw: int,
    warned: set[str],
) -> Iterator[pa.Table]:
    """Tables with their gaps filled, in their own types."""
    codec = learned.codec
    names = codec.schema.names
    columns = [columns] if isinstance(columns, str) else columns
    for name in columns or ():
        if name not in names:
            raise UserError(f"A column to impute is {name!r}, {but_the_table_has(name, names)}")
    leave = [] if columns is None else [name for name in names if name not in columns]
    left = [place for place, coded in enumerate(codec.token_columns) if coded.column.name in leave]
    request = dataclasses.replace(request, complete=True)
    seed = derive(request.seed, "draw", draw) if draw else request.seed
    first, count = 0, Broken()
    for table in tables.in_parts(iter(parts), BATCH_ROWS):  # the same rows, however it was cut
        codec.check_columns(table)
        tokens = partial_tokens(codec, table, leave, warned)
        means: dict[str, np.ndarray] = {}
        within: dict[str, Bounds] = {}
        if how == "draw":
            tokens, within = completion.complete(
                learned, tokens, table, request, first_row=first, count=count, leave=left, draw=draw
            )
        else:
            tokens, means = completion.expect(learned, tokens, how, request.threads)
        drawn = codec.decode(
            np.maximum(tokens, 0),
            seed=seed,
            first_row=first,
            how="inside" if how == "draw" else "centre",
            within=within,
        )
        if means:
            drawn = put_means(codec, drawn, means)
        yield fill_gaps(codec, table, drawn, leave)
        first += table.num_rows
    count.tell()


def partial_tokens(
    codec: TableCodec,
    table: pa.Table,
    leave: Collection[str] = (),
    warned: set[str] | None = None,
) -> np.ndarray:
    """(rows, C): gaps and columns that are not there are MASK, to be filled. In the columns of
    `leave`, a gap is known to be one, if the model has learned gaps there."""
    codec.check_columns(table, all_of_them=False)
    tokens = np.full((table.num_rows, len(codec.token_columns)), MASK, np.int64)
    for place, coded in enumerate(codec.token_columns):
        name = coded.column.name
        if name in table.column_names:
            codes = coded.encode(table.column(name), gaps_expected=True, warned=warned)
            if coded.missing_code is not None and name not in leave:
                codes = np.where(codes == coded.missing_code, MASK, codes)
            tokens[:, place] = codes
    return tokens


def put_means(codec: TableCodec, drawn: pa.Table, means: dict[str, np.ndarray]) -> pa.Table:
    """Expected numbers in place of drawn ones, rounded as their columns are."""
    for place, coded in enumerate(codec.coded):
        if coded.column.name in means and isinstance(coded.codec, NumericCodec):
            low, high = coded.codec.codes.extent
            units = np.clip(means[coded.column.name], low, high)
            if not coded.codec.grid.continuous:
                units = np.floor(units + 0.5)
            values = as_given(coded.codec.grid.values(units), coded)
            drawn = drawn.set_column(place, drawn.schema.field(place), values)
    return drawn


def fill_gaps(
    codec: TableCodec, table: pa.Table, drawn: pa.Table, leave: Collection[str] = ()
) -> pa.Table:
    """The table as given, with drawn values in its gaps. Ids are nobody's to invent."""
    columns = []
    for coded in codec.coded:
        column, original = coded.column, table.column(coded.column.name)
        nothing = isinstance(coded.codec, ConstantCodec) and len(coded.codec.values) == 0
        if column.kind == "id" or column.name in leave or nothing:
            columns.append(original)
            continue
        values = drawn.column(column.name)
        written = text.is_text(original.type) and not text.is_text(values.type)
        if written and column.format is not None:
            values = text.write(combine(values), column.format, column.gap_text)
        try:
            columns.append(_joined(_is_known(combine(original), column), original, values))
        except pa.ArrowInvalid as error:
            raise UserError(
                f"Column {column.name!r} is {original.type} in this table, which cannot hold what "
                f"the model gives ({column.dtype}): {str(error).splitlines()[0]}. Cast it first."
            ) from error
    filled = pa.Table.from_arrays(columns, names=codec.schema.names)
    return filled.select(table.column_names).replace_schema_metadata(table.schema.metadata)


def put_prompts(
    codec: TableCodec, prompts: pa.Table, kept: np.ndarray, drawn: pa.Table
) -> pa.Table:
    """Drawn rows with the prompted cells as they were given; `kept` tells which, (rows, columns
    of the prompts)."""
    names = codec.schema.names
    for cell, name in enumerate(prompts.column_names):
        place = names.index(name)
        coded = codec.coded[place]
        column = prompts.column(name)
        known = pc.and_(_is_known(combine(column), coded.column), pa.array(kept[:, cell]))
        given = combine(drawn.column(name)).type
        values = combine(as_given(combine(typed(column, coded.column)), coded)).cast(given)
        joined = _joined(pc.invert(known), drawn.column(name), values)
        drawn = drawn.set_column(place, drawn.schema.field(place), joined)
    return drawn


def known_cells(codec: TableCodec, table: pa.Table) -> np.ndarray:
    """(rows, columns of the table) bool: which cells are no gaps."""
    by_name = {column.name: column for column in codec.schema.columns}
    cells = [
        _is_known(combine(table.column(name)), by_name[name]).to_numpy(zero_copy_only=False)
        for name in table.column_names
    ]
    return np.stack(cells, axis=1) if cells else np.zeros((table.num_rows, 0), bool)


def _is_known(array: pa.Array, column: Column) -> pa.Array:
    known = pc.is_valid(array)
    if pa.types.is_floating(array.type):
        known = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(array), False)))
    gap = text.gap_value(array.type, column.format, column.gap_text)
    if gap is not None:
        known = pc.and_(known, pc.fill_null(pc.not_equal(array, gap), False))
    return known


def _joined(known: pa.Array, one: pa.ChunkedArray, other: pa.ChunkedArray | pa.Array) -> pa.Array:
    """`one` where it is known, `other` elsewhere, in the type of `one`."""
    plain = combine(one)
    if pa.types.is_null(plain.type):  # nothing is known, not even the type
        return combine(other)
    values = pc.if_else(known, plain, combine(other).cast(plain.type))
    if not pa.types.is_dictionary(one.type):
        return values.cast(one.type)
    words = values[:0]
    if one.num_chunks:
        words = one.unify_dictionaries().chunk(0).dictionary.cast(plain.type).drop_null()
    words = pc.unique(pa.concat_arrays([words, values.drop_null()]))
    indices = pc.index_in(values, words).cast(one.type.index_type)
    return pa.DictionaryArray.from_arrays(
        indices, words.cast(one.type.value_type), ordered=one.type.ordered
    )
