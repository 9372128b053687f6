"""Fill the missing values of a table; every known cell stays exactly as it is, in its own type."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch

from tabmt.codec.columns import Bounds
from tabmt.codec.table import TableCodec
from tabmt.config import Imputation
from tabmt.data import text_formats
from tabmt.data.arrow_types import is_text, plain_array
from tabmt.data.files import rechunk
from tabmt.data.missing import is_known
from tabmt.errors import UserError
from tabmt.method import devices
from tabmt.method.likelihood import probabilities
from tabmt.model.complete import Completion, join_columns
from tabmt.model.fitted_model import FittedModel
from tabmt.model.generate import BATCH_ROWS, Request
from tabmt.seeds import derive
from tabmt.tokens import MASK


def impute_batches(
    model: FittedModel,
    tables: Iterable[pa.Table],
    request: Request,
    *,
    how: Imputation,
    columns: Sequence[str] | None = None,
    draw: int = 0,
    warned: set[str] | None = None,
) -> Iterator[pa.Table]:
    """Tables with their missing values filled, in their own types.

    `columns` are those to fill: a missing value in any other is known to be missing, and stays.
    `draw` numbers the draws of multiple imputation.
    """
    codec = model.codec
    columns = [columns] if isinstance(columns, str) else columns
    for name in columns or ():
        codec.find(name, "A column to impute is")
    leave = [n for n in codec.schema.names if columns is not None and n not in columns]
    left = [codec.token_index[name] for name in leave if name in codec.token_index]
    request = dataclasses.replace(request, allow_missing=False)
    seed = derive(request.seed, "draw", draw) if draw else request.seed
    completion = Completion(model, request, leave=left, draw=draw)
    warned = set() if warned is None else warned
    first = 0
    for table in rechunk(tables, BATCH_ROWS):  # the same rows, however the table was cut
        codec.check_columns(table.column_names)
        tokens = codec.encode_partial(table, leave=leave, warned=warned)
        within: dict[str, Bounds] = {}
        expected: dict[str, pa.Array] = {}
        if how == "draw":
            rows = completion.fill(tokens, table, first)
            tokens, within = rows.tokens, dict(rows.within)
        else:
            tokens, expected = _most_likely(model, tokens, request.threads)
        filled = codec.decode(
            np.maximum(tokens, 0),
            seed=seed,
            first_row=first,
            how=request.decode if how == "draw" else "rounded",
            within=within,
        )
        if how == "mean":
            filled = _with_expected(codec, filled, expected)
        yield _fill_missing(codec, table, filled, leave)
        first += table.num_rows
    completion.violations.log()


def _most_likely(
    model: FittedModel, tokens: np.ndarray, threads: int
) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """The likeliest code of every masked cell given the row's known cells, and the expected values
    of columns of numbers, (B,) each."""
    result, expected = tokens.copy(), {}
    if model.net is None or not len(tokens):
        return result, {}
    device = next(model.net.parameters()).device
    with devices.threads(threads):
        for index, coded in enumerate(model.codec.token_columns):
            rows = np.flatnonzero(tokens[:, index] == MASK)
            if len(rows) == 0:
                continue
            known = torch.from_numpy(tokens[rows]).to(device)
            shares = probabilities(model.net, known, index).cpu().numpy()  # (rows, K)
            shares = shares[:, : coded.codec.size]  # without the missing code ...
            shares = shares * coded.codec.is_drawn  # ... and without rare values
            result[rows, index] = shares.argmax(1)
            values = coded.codec.expected_values(shares)
            if values is not None:
                position = np.zeros(len(tokens), np.int64)
                position[rows] = np.arange(len(rows))
                expected[coded.name] = values.take(pa.array(position))
    return result, expected


def _with_expected(codec: TableCodec, filled: pa.Table, expected: dict[str, pa.Array]) -> pa.Table:
    """Expected values in place of the likeliest ones."""
    for name, values in expected.items():
        index = filled.column_names.index(name)
        own = codec[name].in_user_type(values)
        filled = filled.set_column(index, filled.schema.field(index), own)
    return filled


def _fill_missing(
    codec: TableCodec, table: pa.Table, filled: pa.Table, leave: Collection[str]
) -> pa.Table:
    """The table as given, with filled values where it has missing ones. Ids are not invented."""
    columns = []
    for coded in codec.coded:
        column, original = coded.column, table.column(coded.name)
        if column.kind == "id" or column.name in leave or coded.codec.is_empty:
            columns.append(original)
            continue
        values = filled.column(column.name)
        if column.format is not None and is_text(original.type) and not is_text(values.type):
            values = text_formats.write(plain_array(values), column.format, column.missing_text)
        try:
            columns.append(join_columns(is_known(original, column), original, values))
        except pa.ArrowInvalid as error:
            raise UserError(
                f"Column {column.name!r} is {original.type} in this table, which cannot hold what "
                f"the model returns ({column.dtype}). Cast it first."
            ) from error
    joined = pa.Table.from_arrays(columns, names=codec.schema.names)
    return joined.select(table.column_names).replace_schema_metadata(table.schema.metadata)
