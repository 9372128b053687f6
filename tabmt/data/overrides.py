"""What users set in a schema: a JSON file, or its content, checked entry by entry.

Only what differs from the inferred schema has to be given. `missing_text` beside the columns holds
for every text column that contains it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from tabmt.config import Missing, Quantizer
from tabmt.data.arrow_types import is_text
from tabmt.data.schema import Column, FoundRule, Kind, Schema, SchemaRules, unknown_column
from tabmt.errors import UserError
from tabmt.json_files import convert, read_json

EDITABLE = ("kind", "missing", "missing_text", "decimals", "quantizer", "max_bins")


@dataclass(frozen=True)
class Overrides:
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> entries
    rules: SchemaRules | None = None  # None: nothing is said about rules
    missing_text: str | None = None  # of every text column that contains it

    def of(self, name: str) -> Mapping[str, Any]:
        return self.columns.get(name, {})

    def only(self, name: str) -> "Overrides":
        """What is set for one column, for a table of that column alone."""
        return Overrides({name: self.of(name)}, None, self.missing_text)


def read_overrides(schema: Any) -> Mapping[str, Any] | None:
    """What users pass as a schema: the path of a JSON file, its content, or None."""
    return read_json(schema, "schema") if isinstance(schema, str | Path) else schema


def parse_overrides(content: Mapping[str, Any] | None, names: Sequence[str]) -> Overrides:
    """Check the content of a schema file against the columns of a table."""
    if content is None:
        return Overrides()
    entries = content.get("columns", []) if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or not all(
        isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in entries
    ):
        raise UserError(
            'A schema is JSON of the form {"columns": [{"name": ..., "kind": ...}, ...]}; '
            "`tabmt schema TABLE` writes one to start from."
        )
    for key in content:
        if key not in ("columns", "source", "rules", "found", "suggested", "missing_text"):
            raise UserError(
                f"The schema has an unknown entry {key!r}; it can have: columns, rules, "
                "missing_text."
            )
    _check_missing_text(content, "the table")
    for entry in entries:
        _check_entry(entry, names)
    by_name = {entry["name"]: entry for entry in entries}
    return Overrides(by_name, _rules(content), content.get("missing_text"))


def as_overrides(schema: Schema) -> dict[str, Any]:
    """A schema as overrides, for tables that already have its types."""
    columns = []
    for column in schema.columns:
        entries = {key: value for key in EDITABLE if (value := getattr(column, key)) is not None}
        if not is_text(column.type):
            entries.pop("missing_text", None)  # the numbers and dates have already been read
        columns.append({"name": column.name, **entries})
    rules = {"rules": dict(schema.rules)}
    found = {name: dataclasses.asdict(rule) for name, rule in schema.found.items()}
    return {"columns": columns, **rules, **({"found": found} if found else {})}


def _rules(content: Mapping[str, Any]) -> SchemaRules | None:
    """The rules of a schema, which replace those that would be found; None if it has no entry."""
    if "rules" not in content:
        return None
    rules = content["rules"]
    if not isinstance(rules, Mapping) or not all(isinstance(rule, str) for rule in rules.values()):
        raise UserError('The rules of a schema have the form {"rules": {"name": "rule", ...}}.')
    try:
        found = convert(content.get("found", {}), dict[str, FoundRule])
    except ValueError as error:
        raise UserError(
            'The found rules of a schema have the form {"found": {"name": {"share": ...}}}; leave '
            f"them as `tabmt schema` has written them ({error})."
        ) from error
    return SchemaRules(
        {str(name): rule for name, rule in rules.items()},
        {name: entry for name, entry in found.items() if name in rules},
    )


def _check_entry(entry: Mapping[str, Any], names: Sequence[str]) -> None:
    name = entry["name"]
    if name not in names:
        raise UserError(f"The schema names column {name!r}, {unknown_column(name, names)}")
    known = [item.name for item in dataclasses.fields(Column)]
    for key in entry:
        if key not in known:
            raise UserError(
                f"The schema of column {name!r} has an unknown entry {key!r}; "
                f"you can set: {', '.join(EDITABLE)}."
            )
    _check_choice(entry, "kind", get_args(Kind))
    _check_choice(entry, "missing", ("none", *get_args(Missing)))
    _check_choice(entry, "quantizer", (None, *get_args(Quantizer)))
    _check_missing_text(entry, f"column {name!r}")
    _check_integer(entry, "decimals", -6, 10)
    _check_integer(entry, "max_bins", 2, 2**31)


def _check_choice(entry: Mapping[str, Any], key: str, choices: tuple[Any, ...]) -> None:
    if key in entry and entry[key] not in choices:
        allowed = ", ".join(choice for choice in choices if choice is not None)
        raise UserError(
            f"The schema sets {key} of column {entry['name']!r} to {entry[key]!r}; "
            f"it must be one of: {allowed}."
        )


def _check_missing_text(entry: Mapping[str, Any], of: str) -> None:
    if not isinstance(entry.get("missing_text", ""), str | None):
        raise UserError(
            f"The schema sets missing_text of {of} to {entry['missing_text']!r}; it must be text, "
            'such as "NA".'
        )


def _check_integer(entry: Mapping[str, Any], key: str, low: int, high: int) -> None:
    value = entry.get(key)
    if value is not None and not (type(value) is int and low <= value <= high):
        raise UserError(
            f"The schema sets {key} of column {entry['name']!r} to {value!r}; "
            f"it must be a whole number from {low} to {high}."
        )
