"""What each column of a table is: the schema, as it is shown, stored and returned to.

    numeric      whole numbers and floats, quantised and learned in order
    datetime     dates, times and timestamps, likewise
    categorical  text, booleans and whole numbers with few distinct values
    constant     one value, or only missing values: returned as it is
    id           new values are generated, nothing is learned

How the kinds are found is in infer.py, what users may change in overrides.py.
"""

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tabmt.config import Quantizer
from tabmt.data.arrow_types import parse_type
from tabmt.data.text_formats import check_format
from tabmt.data.units import TIME_STEPS
from tabmt.errors import UserError
from tabmt.json_files import convert, require

Kind = Literal["numeric", "datetime", "categorical", "constant", "id"]
SourceKind = Literal["pandas", "polars", "arrow", "csv", "parquet", "ipc"]
MOST_TEXT = 2**16  # characters of a cell: longer ones would fill the memory when they are sampled
OWN_CODES = "; a separate bin for each value, because a found rule needs it"
ALWAYS_SHOWN = ("name", "kind", "dtype", "missing", "reason")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `dtype` is the type that users get back, as Arrow prints it."""

    name: str
    kind: Kind
    dtype: str
    missing: Literal["none", "learned", "masked"] = "none"
    decimals: int | None = None  # numeric: after the point, negative for tens; None: any number
    time_step: str | None = None  # datetime: every value is a multiple of it
    format: str | None = None  # how the values are written as text (text_formats.py)
    missing_text: str | None = None  # how a missing value is written in that text
    quantizer: Quantizer | None = None  # None: the setting for the whole table
    max_bins: int | None = None  # None: the setting for the whole table
    set_by_user: tuple[str, ...] = ()  # which of these entries a user has chosen
    reason: str = ""

    @property
    def type(self) -> pa.DataType:
        return parse_type(self.dtype)


@dataclass(frozen=True)
class Source:
    """Where a table came from, so that samples can be of the same kind."""

    kind: SourceKind
    pandas: str | None = None  # pandas' own description of its dtypes (JSON)


@dataclass(frozen=True)
class FoundRule:
    """Why a rule is in a schema although nobody wrote it."""

    share: float  # of the rows in which it holds
    reason: str = ""


@dataclass(frozen=True)
class SchemaRules:
    """What must hold between the columns of a table."""

    rules: Mapping[str, str] = field(default_factory=dict)  # name -> rule (rules/rule.py)
    found: Mapping[str, FoundRule] = field(default_factory=dict)  # those that were not written
    suggested: Mapping[str, float] = field(default_factory=dict)  # rule -> share; not enforced
    max_bins: Mapping[str, int] = field(default_factory=dict)  # of columns without bins

    def columns_with_own_codes(self, columns: Iterable[Column]) -> tuple[Column, ...]:
        """The same columns, where each value of those in `max_bins` has a code of its own: a rule
        that was found depends on single values."""
        return tuple(
            dataclasses.replace(
                column,
                max_bins=self.max_bins[column.name],
                reason=f"{column.reason}{OWN_CODES}",
            )
            if column.name in self.max_bins and not column.reason.endswith(OWN_CODES)
            else column
            for column in columns
        )


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]
    source: Source = Source("arrow")
    rules: Mapping[str, str] = field(default_factory=dict)  # name -> rule (rules/rule.py)
    found: Mapping[str, FoundRule] = field(default_factory=dict)  # which of them were found
    suggested: Mapping[str, float] = field(default_factory=dict)  # rule -> share; not enforced

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def with_rules(self, rules: SchemaRules) -> "Schema":
        return dataclasses.replace(
            self,
            columns=rules.columns_with_own_codes(self.columns),
            rules=dict(rules.rules),
            found=dict(rules.found),
            suggested=dict(rules.suggested),
        )

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.names.index(name)]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the tables that users get back."""
        metadata = None if self.source.pandas is None else {"pandas": self.source.pandas}
        fields = [pa.field(column.name, column.type) for column in self.columns]
        return pa.schema(fields, metadata=metadata)

    @classmethod
    def of_table(cls, arrow: pa.Schema) -> "Schema":
        """A schema by which a table that nobody learns is written to a file."""
        return cls(tuple(Column(name=f.name, kind="categorical", dtype=str(f.type)) for f in arrow))

    def to_json(self) -> dict[str, Any]:
        columns = []
        for column in self.columns:
            entries = dataclasses.asdict(column).items()
            shown = {k: v for k, v in entries if k in ALWAYS_SHOWN or v not in (None, ())}
            columns.append(shown)
        content: dict[str, Any] = {"columns": columns, "source": dataclasses.asdict(self.source)}
        found = {name: dataclasses.asdict(rule) for name, rule in self.found.items()}
        rules = {"rules": dict(self.rules), "found": found, "suggested": dict(self.suggested)}
        return content | {key: entry for key, entry in rules.items() if entry}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Schema":
        """Read what `to_json` wrote; what users edit is read by overrides.py."""
        schema = convert(data, cls)
        require(len(schema.columns) > 0, "there are no columns")
        for column in schema.columns:
            parse_type(column.dtype)
            _check_column(column)
        return schema


def _check_column(column: Column) -> None:
    """What a model file says about a column must be something that inference can have found."""
    end = f"of column {column.name!r} is not possible"
    require(column.decimals is None or abs(column.decimals) <= 80, f"the precision {end}")
    require(column.max_bins is None or 2 <= column.max_bins <= 2**31, f"the number of bins {end}")
    require(column.time_step is None or column.time_step in TIME_STEPS, f"the time step {end}")
    require(len(column.missing_text or "") <= MOST_TEXT, f"the text of missing values {end}")
    if column.format is not None:
        check_format(column.format)


def check_names(names: Sequence[str]) -> None:
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        listed = ", ".join(repr(name) for name in duplicates)
        raise UserError(f"Column names must be unique, but these are repeated: {listed}.")


def unknown_column(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about a column that does not exist."""
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"which does not exist; the columns are: {', '.join(names)}.{hint}"
