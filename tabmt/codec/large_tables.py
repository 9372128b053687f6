"""The codec of a table of any size: a part of a very large one is looked at, then all is counted.

For `fit`. Kinds, decimals and bins of numbers are those of the rows that were looked at; categories
are those of all rows, for one that was left out could never be learned. A column that turns out
to be otherwise (a gap, a second value, text of another form) is looked at whole.
"""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.columns import CategoricalCodec, CodedColumn, ConstantCodec, TableCodec, typed
from tabmt.config import CodecConfig
from tabmt.data import text_formats as text
from tabmt.data.dataset import Columns
from tabmt.data.schema import Columnar, Source, combine, infer, known_values
from tabmt.parallel import cores, each

log = logging.getLogger(__name__)

LOOKED_ROWS = 2**25  # a column of them as text is a gigabyte


@dataclass(frozen=True)
class Tally:
    """What a part holds of a column: gaps, the distinct values of categories, and whether text is
    of the form that was found."""

    gaps: int
    words: pa.Array | None
    alike: bool = True


def find_codec(
    table: Columnar,
    source: Source,
    config: CodecConfig,
    overrides: Mapping[str, Any] | None,
    seed: int,
) -> TableCodec:
    def look(rows: Columnar, edits: Mapping[str, Any] | None) -> TableCodec:
        schema = infer(rows, source, gaps=config.gaps, overrides=edits)
        return TableCodec.fit(rows, schema, config, seed)

    if not isinstance(table, Columns):
        return look(table, overrides)
    some = table.spread(LOOKED_ROWS)
    codec = look(some, overrides)
    if some.num_rows == table.num_rows:
        return codec
    log.info(
        "kinds, and bins of numbers, are those of %s of %s rows; categories those of all",
        f"{some.num_rows:,}",
        f"{table.num_rows:,}",
    )
    everywhere = (overrides or {}).get("gap_text")
    spelled = dict.fromkeys(codec.schema.names, everywhere)
    spelled |= {e["name"]: e["gap_text"] for e in _entries(overrides) if "gap_text" in e}
    gaps = [0] * len(codec.coded)
    alike = [True] * len(codec.coded)
    words = [getattr(one.codec, "values", None) for one in codec.coded]
    for tallies in each(CountPart(codec, spelled), list(table.parts()), workers=cores()):
        for place, tally in enumerate(tallies):
            gaps[place] += tally.gaps
            alike[place] = alike[place] and tally.alike
            if tally.words is not None:
                words[place] = pc.unique(pa.concat_arrays([words[place], tally.words]))
    coded = []
    for place, one in enumerate(codec.coded):
        name, own, known = one.column.name, one.codec, words[place]
        varies = isinstance(own, ConstantCodec) and known is not None and len(known) > 1
        if varies or not alike[place] or (gaps[place] and one.column.gaps == "none"):
            log.info("column %r is otherwise than in those rows: all of it is looked at", name)
            edits = [entry for entry in _entries(overrides) if entry["name"] == name]
            edits_of_it = {**(overrides or {}), "columns": edits, "rules": {}}
            one = look(pa.table({name: table.column(name)}), edits_of_it).coded[0]
        elif isinstance(own, CategoricalCodec):
            assert known is not None
            dictionary = own.dictionary
            if dictionary is not None:
                dictionary = pc.unique(pa.concat_arrays([dictionary, known]))
            known = known.take(pc.sort_indices(known))
            one = CodedColumn(one.column, CategoricalCodec(known, dictionary))
        coded.append(one)
    columns = tuple(one.column for one in coded)
    return TableCodec(dataclasses.replace(codec.schema, columns=columns), tuple(coded))


def _entries(overrides: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [] if overrides is None else overrides.get("columns", [])


@dataclass(frozen=True)
class CountPart:
    codec: TableCodec
    spelled: Mapping[str, str | None]  # column -> a gap where text holds it, as a person told

    def __call__(self, part: Columns) -> list[Tally]:
        return [self._count(part.column(one.column.name), one) for one in self.codec.coded]

    def _count(self, array: pa.ChunkedArray, one: CodedColumn) -> Tally:
        column, told = one.column, self.spelled[one.column.name]
        plain = array
        if column.gap_text is not None:
            plain = text.without_gap(combine(array), column.format, column.gap_text)
        all_gaps = plain.null_count == len(plain)
        is_text = text.is_text(getattr(array.type, "value_type", array.type))
        if told not in (None, column.gap_text) and is_text:
            words = pc.unique(array).cast(pa.string())
            if pc.index(words, told).as_py() >= 0:
                return Tally(0, None, alike=False)
        read = column.format not in (None, "text")
        if read and text.is_text(array.type) and not all_gaps:
            found = text.recognise(array, told if told == column.gap_text else None)
            if found is None or found.format != column.format:
                return Tally(0, None, alike=False)
            if found.gap_text not in (None, column.gap_text):  # none here: none that differs
                return Tally(0, None, alike=False)
        values, gaps, _ = known_values(typed(array, column))
        words = None
        if isinstance(one.codec, CategoricalCodec | ConstantCodec):
            words = pc.unique(values).cast(one.codec.values.type)
        return Tally(gaps, words)
