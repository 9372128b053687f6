"""The codec of a table of any size: a part of a very large one is looked at, then all is counted.

For `fit`. Kinds, decimals and bins of numbers are those of the rows that were looked at; categories
and gaps are those of all rows, for a category that was left out could never be learned.
"""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codecs import CategoricalCodec, CodedColumn, ConstantCodec, TableCodec, typed
from tabmt.config import CodecConfig, Gaps
from tabmt.engine import cores, each
from tabmt.many_files import Columns
from tabmt.schema import Columnar, Source, infer, known_values

log = logging.getLogger(__name__)

LOOKED_ROWS = 2**25  # a column of them as text is a gigabyte

Tally = list[tuple[int, pa.Array | None]]  # of each column: gaps, and distinct values of categories


def find_codec(
    table: Columnar,
    source: Source,
    config: CodecConfig,
    overrides: Mapping[str, Any] | None,
    seed: int,
) -> TableCodec:
    some = table.spread(LOOKED_ROWS) if isinstance(table, Columns) else table
    schema = infer(some, source, gaps=config.gaps, overrides=overrides)
    codec = TableCodec.fit(some, schema, config, seed)
    if not isinstance(table, Columns) or some.num_rows == table.num_rows:
        return codec
    log.info(
        "kinds, and bins of numbers, are those of %s of %s rows; categories and gaps those of all",
        f"{some.num_rows:,}",
        f"{table.num_rows:,}",
    )
    return _widened(codec, table, config.gaps)


def _widened(codec: TableCodec, table: Columns, how: Gaps) -> TableCodec:
    """The same codec with the categories and gaps of all rows."""
    gaps = [0] * len(codec.coded)
    words = [getattr(one.codec, "values", None) for one in codec.coded]
    for tally in each(CountPart(codec), list(table.parts()), workers=cores()):
        for place, (more, found) in enumerate(tally):
            gaps[place] += more
            if found is not None:
                words[place] = pc.unique(pa.concat_arrays([words[place], found]))
    coded = []
    for one, missing, known in zip(codec.coded, gaps, words, strict=True):
        column, own = one.column, one.codec
        if missing and column.gaps == "none":
            column = dataclasses.replace(column, gaps=how)
        if isinstance(own, CategoricalCodec | ConstantCodec):
            assert known is not None
            known = known.take(pc.sort_indices(known))
            dictionary = own.dictionary
            if dictionary is not None:
                dictionary = pc.unique(pa.concat_arrays([dictionary, known]))
            if len(known) > 1 and column.kind == "constant":
                reason = f"{len(known)} values in all rows"
                column = dataclasses.replace(column, kind="categorical", reason=reason)
            codecs = CategoricalCodec if len(known) > 1 else type(own)
            own = codecs(known, dictionary)
        coded.append(CodedColumn(column, own))
    columns = tuple(one.column for one in coded)
    return TableCodec(dataclasses.replace(codec.schema, columns=columns), tuple(coded))


@dataclass(frozen=True)
class CountPart:
    codec: TableCodec

    def __call__(self, part: Columns) -> Tally:
        found: Tally = []
        for one in self.codec.coded:
            values, gaps, _ = known_values(typed(part.column(one.column.name), one.column))
            words = None
            if isinstance(one.codec, CategoricalCodec | ConstantCodec):
                words = pc.unique(values).cast(one.codec.values.type)
            found.append((gaps, words))
        return found
