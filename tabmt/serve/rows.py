"""From a checked request to rows. The same code runs in the server, for a few rows, and in a
separate process, for many."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tabmt.data.arrow_types import is_text
from tabmt.data.dataset import Dataset
from tabmt.data.schema import Schema
from tabmt.data.typed_columns import in_schema_types
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.model.generate import BATCH_ROWS
from tabmt.model.row_scores import SCORES
from tabmt.search.pareto_front import Front
from tabmt.serve.requests import (
    CompleteRequest,
    Drawing,
    ImputeRequest,
    SampleRequest,
    ScoreRequest,
    check_rows,
    conditions,
)

What = Literal["sample", "complete", "impute", "score"]
RowsRequest = SampleRequest | CompleteRequest | ImputeRequest | ScoreRequest
REQUESTS: dict[What, type[Any]] = {
    "sample": SampleRequest,
    "complete": CompleteRequest,
    "impute": ImputeRequest,
    "score": ScoreRequest,
}


@dataclass(frozen=True)
class RowsAnswer:
    """Batches of rows, and the schema in which they are written."""

    schema: Schema
    batches: Iterator[pa.Table]


def temperature_of(
    temperature: float | dict[str, float] | None, point: int | None, front: Front | None
) -> float | dict[str, float] | None:
    """The temperature of a request, or the temperatures of the point that it names."""
    if point is None:
        return temperature
    if front is None:
        raise UserError("This model has no Pareto front; remove `point`.")
    return front.choose(point=point).temperatures


def drawing_options(request: Drawing, front: Front | None) -> dict[str, Any]:
    return {
        "seed": secrets.randbelow(2**31) if request.seed is None else request.seed,
        "temperature": temperature_of(request.temperature, request.point, front),
        "allow_missing": request.allow_missing,
        "decode": request.decode,
    }


def answer(
    model: TabMT, request: RowsRequest, front: Front | None, table: Path | None
) -> RowsAnswer:
    """The rows that a request asks for. `table` is the file of an uploaded table."""
    schema = model.schema_
    if isinstance(request, SampleRequest):
        options = {
            **drawing_options(request, front),
            "where": conditions(request.where) or None,
            "balance": request.balance,
        }
        return RowsAnswer(schema, model.sample_batches(request.rows, **options))
    given = prompts(request, schema) if table is None else table
    if isinstance(request, CompleteRequest):
        completed = model.complete_batches(given, **drawing_options(request, front))
        return RowsAnswer(schema, completed)
    dataset = Dataset.open(given)
    if isinstance(request, ScoreRequest):
        scores = (
            model.score(batch, orders=request.orders, seed=request.seed, output="arrow")
            for batch in dataset.batches(BATCH_ROWS)
        )
        return RowsAnswer(answer_schema(schema, request), scores)
    filled = model.impute_batches(dataset.batches(BATCH_ROWS), how=request.how, seed=request.seed)
    return RowsAnswer(schema, (in_schema_types(batch, schema) for batch in filled))


def answer_together(
    model: TabMT, requests: Sequence[RowsRequest], front: Front | None
) -> list[pa.Table]:
    """The rows of each of several requests that are alike, but for their rows and conditions."""
    first = requests[0]
    if len(requests) == 1:  # with a seed, what the library gives
        return [pa.concat_tables(answer(model, first, front, None).batches)]
    if isinstance(first, SampleRequest):
        samples = [one for one in requests if isinstance(one, SampleRequest)]
        asked = [(one.rows, conditions(one.where)) for one in samples]
        tables: list[pa.Table] = model.sample_many(
            asked, output="arrow", **drawing_options(first, front)
        )
        return tables
    prompted = [one.rows or [] for one in requests if isinstance(one, CompleteRequest)]
    together = first.model_copy(update={"rows": [row for rows in prompted for row in rows]})
    table = pa.concat_tables(answer(model, together, front, None).batches)
    ends = accumulate(map(len, prompted))
    return [
        table.slice(end - len(rows), len(rows)) for end, rows in zip(ends, prompted, strict=True)
    ]


def answer_schema(schema: Schema, request: RowsRequest) -> Schema:
    """How the rows of an answer are written."""
    return Schema.of_table(SCORES) if isinstance(request, ScoreRequest) else schema


def prompts(request: CompleteRequest | ImputeRequest | ScoreRequest, schema: Schema) -> pa.Table:
    """Rows within a request as a table. Absent cells and nulls are unknown."""
    rows = request.rows
    assert rows is not None
    check_rows(rows, schema.names)
    names = schema.names
    if isinstance(request, CompleteRequest):  # the others need every column
        names = [name for name in names if any(name in row for row in rows)] or names[:1]
    return pa.table({n: _array([row.get(n) for row in rows], schema, n) for n in names})


def _array(values: list[Any], schema: Schema, name: str) -> pa.Array:
    """Cells in the type of their column, or as text, which is read as in a file."""
    known = [value for value in values if value is not None]
    column = schema[name]
    if not known:
        return pa.nulls(len(values))
    if is_text(column.type) or any(isinstance(value, str) for value in known):
        return pa.array([None if value is None else _text(value) for value in values], pa.string())
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise UserError(
            f"The cells of column {name!r} are of several types; give numbers, or text."
        ) from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
