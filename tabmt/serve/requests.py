"""What may be asked of the server: the bodies of requests, checked before anything is done."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from tabmt.conditions.condition import Condition, between, known, missing, one_of, parse_conditions
from tabmt.config import MOST_EPSILON, Decode, Imputation, Privacy, Quality, SamplerName
from tabmt.data.schema import Kind
from tabmt.errors import UserError
from tabmt.serve import limits
from tabmt.serve.formats import Format
from tabmt.serve.workspace import ID

Cell = str | bool | int | FiniteFloat | None
Value = str | bool | int | FiniteFloat
Id = Annotated[str, Field(pattern=ID)]
Name = Annotated[str, Field(max_length=4096)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Temperature = Annotated[FiniteFloat, Field(ge=0, le=100)]
JobKind = Literal["fit", "synthesize", "evaluate", "pareto"]


class Body(BaseModel):
    """A JSON object without unknown entries."""

    model_config = ConfigDict(extra="forbid")


# --- conditions ----------------------------------------------------------------------------


class ColumnCondition(Body):
    """What is asked of one column: a value, one of several, a range, or missing or not."""

    equals: Value | None = None
    one_of: list[Value] | None = Field(None, min_length=1, max_length=limits.MOST_VALUES)
    low: Value | None = None
    high: Value | None = None
    closed: Literal["both", "left", "right", "neither"] = "both"
    missing: bool | None = None

    @model_validator(mode="after")
    def _is_one_form(self) -> "ColumnCondition":
        ranged = self.low is not None or self.high is not None
        given = [self.equals is not None, self.one_of is not None, ranged, self.missing is not None]
        if sum(given) != 1:
            raise ValueError("give exactly one of: equals, one_of, low and high, missing")
        return self

    def condition(self) -> Condition:
        if self.missing is not None:
            return missing() if self.missing else known()
        if self.equals is not None:
            return one_of(self.equals)
        if self.one_of is not None:
            return one_of(*self.one_of)
        return between(self.low, self.high, closed=self.closed)


Where = dict[Name, ColumnCondition] | list[Name]


def conditions(where: Where) -> dict[str, Condition]:
    """Conditions as the library takes them, from objects or from sentences."""
    if isinstance(where, list):
        return parse_conditions(where)
    return {name: wanted.condition() for name, wanted in where.items()}


# --- rows ----------------------------------------------------------------------------------


class Drawing(Body):
    """How values are generated."""

    seed: Seed | None = Field(None, description="the same seed gives the same rows")
    temperature: Temperature | dict[Name, Temperature] | None = Field(
        None, description="above 1 more unusual values, below 1 more typical ones"
    )
    point: int | None = Field(
        None, ge=1, le=10_000, description="a point of the model's Pareto front, from 1"
    )
    allow_missing: bool = True
    decode: Decode | None = None
    format: Format = Field("ndjson", description="of the rows that are returned")
    escape_formulas: bool = Field(
        False, description="in CSV, put ' before text that a spreadsheet would run as a formula"
    )

    @model_validator(mode="after")
    def _is_one_choice(self) -> "Drawing":
        if self.point is not None and self.temperature is not None:
            raise ValueError("give a temperature or a point of the front, not both")
        return self


class SampleRequest(Drawing):
    """New rows."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "rows": 10,
                    "where": {
                        "species": {"equals": "Adelie"},
                        "body_mass_g": {"low": 4000},
                    },
                    "seed": 1,
                },
                {"rows": 10, "where": ["species = Adelie", "body_mass_g >= 4000"]},
            ]
        },
    )

    rows: int = Field(ge=0, le=limits.MOST_ROWS)
    where: Where = Field(default_factory=dict, max_length=limits.MOST_CONDITIONS)
    balance: Name | None = Field(None, description="column whose values are equally frequent")


class DistributionRequest(Body):
    """Which rows the distributions are of."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"rows": 2000, "where": {"sex": {"equals": "female"}}}]},
    )

    rows: int = Field(2_000, ge=1, le=limits.MOST_DISTRIBUTION_ROWS)
    where: Where = Field(default_factory=dict, max_length=limits.MOST_CONDITIONS)
    temperature: Temperature | dict[Name, Temperature] | None = None
    point: int | None = Field(None, ge=1, le=10_000)
    seed: Seed = 1
    download_rows: int = Field(1_000, ge=0, le=limits.MOST_ROWS, description="of the commands")


PROMPT_ROWS = Field(
    None,
    min_length=1,
    max_length=limits.MOST_PROMPTS,
    description="rows as objects; columns that are absent or null are not known",
)


class Given(Body):
    """Rows that are given: within the request, or a table that was uploaded."""

    rows: list[dict[Name, Cell]] | None = PROMPT_ROWS
    table: Id | None = None

    @model_validator(mode="after")
    def _is_one_source(self) -> "Given":
        if (self.rows is None) == (self.table is None):
            raise ValueError("give either rows or table")
        return self


class CompleteRequest(Given, Drawing):
    """Partly known rows, whose unknown cells are generated."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"rows": [{"species": "Gentoo", "sex": "female"}]}]},
    )


class ImputeRequest(Given):
    """Rows whose missing values are filled."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"rows": [{"species": "Gentoo", "sex": None}], "how": "mode"}]
        },
    )

    how: Imputation = "draw"
    seed: Seed = 0
    format: Format = "ndjson"
    escape_formulas: bool = False


class ScoreRequest(Given):
    """Rows that are scored: what is their log-likelihood and anomaly score?"""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"rows": [{"species": "Gentoo", "body_mass_g": 3000}]}]},
    )

    orders: int = Field(4, ge=1, le=64)
    seed: Seed = 0
    format: Format = "ndjson"
    escape_formulas: bool = False


# --- tables and jobs -----------------------------------------------------------------------


class KindsRequest(Body):
    """Other kinds for some columns of a table."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"kinds": {"year": "categorical"}}]}
    )

    kinds: dict[Name, Kind] = Field(max_length=limits.MOST_COLUMNS)


Minutes = Annotated[FiniteFloat, Field(gt=0, le=limits.MOST_JOB_MINUTES)]


class JobRequest(Body):
    """A job that takes longer than a request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"kind": "synthesize", "table": "0123456789abcdef", "minutes": 2, "target": "sex"},
                {"kind": "pareto", "model": "0123456789abcdef", "trials": 40},
            ]
        },
    )

    kind: JobKind
    table: Id | None = Field(None, description="fit, synthesize: the table to learn")
    synthetic: Id | None = Field(None, description="evaluate: the table to evaluate")
    train: Id | None = Field(None, description="evaluate, pareto: the real training rows")
    test: Id | None = Field(
        None, description="evaluate, pareto: test rows, which the model has not seen"
    )
    model: Id | None = Field(None, description="pareto: the model whose temperatures are searched")
    rows: int | None = Field(None, ge=1, le=limits.MOST_ROWS)
    target: Name | None = None
    minutes: Minutes | None = None
    steps: int | None = Field(None, ge=0, le=10_000_000)
    protect: int | None = Field(None, ge=0, le=1_000_000)
    epsilon: FiniteFloat | None = Field(
        None, gt=0, le=MOST_EPSILON, description="fit, synthesize: with differential privacy"
    )
    max_risk: FiniteFloat | None = Field(None, ge=0, le=1)
    trials: int = Field(40, ge=1, le=10_000)
    privacy: Privacy = "dcr"
    quality: Quality = "detector"
    sampler: SamplerName = "guided"
    seed: Seed = 0

    @model_validator(mode="after")
    def _has_its_inputs(self) -> "JobRequest":
        needed = {"fit": ("table",), "synthesize": ("table",), "pareto": ("model",),
                  "evaluate": ("synthetic", "train")}  # fmt: skip
        for name in needed[self.kind]:
            if getattr(self, name) is None:
                raise ValueError(f"a job of kind {self.kind} needs {name}")
        return self


def training_settings(request: JobRequest) -> dict[str, Any]:
    """The settings of a fit that the request sets."""
    given = {name: getattr(request, name) for name in ("minutes", "steps", "protect", "epsilon")}
    return {name: value for name, value in given.items() if value is not None}


def check_rows(rows: list[dict[str, Any]], names: list[str]) -> None:
    """See that rows within a request have columns of the model only."""
    unknown = sorted({name for row in rows for name in row} - set(names))
    if unknown:
        raise UserError(
            f"The rows have a column {unknown[0]!r}, which does not exist; the columns are: "
            f"{', '.join(names)}."
        )
