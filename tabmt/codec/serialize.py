"""Codecs as arrays and JSON, and back: what a model file holds of them. Loading runs no code."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.codec.columns import (
    CategoricalCodec,
    CodedColumn,
    ColumnCodec,
    ConstantCodec,
    IdCodec,
    NumericCodec,
    TableCodec,
)
from tabmt.codec.identifiers import Identifiers
from tabmt.codec.quantize import Quantized
from tabmt.data.schema import Schema, parse_type
from tabmt.data.units import Grid, is_time, whole_type


def to_parts(codec: TableCodec) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Arrays and JSON that together are the codec."""
    arrays: dict[str, np.ndarray] = {}
    entries = []
    for place, coded in enumerate(codec.coded):
        found, entry = _codec_to_parts(coded.codec)
        arrays |= {f"{place}.{key}": array for key, array in found.items()}
        entries.append(entry)
    return arrays, entries


def from_parts(
    schema: Schema, arrays: Mapping[str, np.ndarray], entries: list[dict[str, Any]]
) -> TableCodec:
    coded = []
    for place, (column, entry) in enumerate(zip(schema.columns, entries, strict=True)):
        prefix = f"{place}."
        own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        coded.append(CodedColumn(column, _codec_from_parts(own, entry)))
    return TableCodec(schema, tuple(coded))


NUMERIC_ARRAYS = ("centres", "atom", "edges", "knot_bin", "knot_share", "knot_value")


def _words_to_bytes(words: pa.Array) -> np.ndarray:
    """Values of any flat type as the bytes of a JSON list of texts."""
    if is_time(words.type):
        words = words.cast(whole_type(words.type))  # Arrow cannot read all times from text
    texts = words.cast(pa.string()).to_pylist()
    return np.frombuffer(json.dumps(texts, ensure_ascii=False).encode(), np.uint8)


def _words_from_bytes(array: np.ndarray, dtype: pa.DataType) -> pa.Array:
    words = json.loads(array.tobytes().decode())
    assert isinstance(words, list) and all(isinstance(word, str) for word in words)
    if pa.types.is_null(dtype):
        return pa.nulls(len(words))
    texts = pa.array(words, pa.string())
    return (texts.cast(whole_type(dtype)) if is_time(dtype) else texts).cast(dtype)


def _codec_to_parts(codec: ColumnCodec) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if isinstance(codec, NumericCodec):
        arrays = {key: getattr(codec.codes, key) for key in NUMERIC_ARRAYS}
        grid = codec.grid
        return arrays, {
            "codec": "numeric",
            "dtype": str(grid.dtype),
            "decimals": grid.decimals,
            "step": grid.step,
            "offset": grid.offset,
            "local": grid.local,
        }
    if isinstance(codec, IdCodec):
        found = codec.identifiers
        return {}, {
            "codec": "id",
            "start": found.start,
            "count": found.count,
            "pattern": list(found.pattern),
            "prefix": found.prefix,
            "skip": found.skip,
        }
    arrays = {"values": _words_to_bytes(codec.values)}
    if codec.dictionary is not None:
        arrays["dictionary"] = _words_to_bytes(codec.dictionary)
    name = "categorical" if isinstance(codec, CategoricalCodec) else "constant"
    return arrays, {"codec": name, "dtype": str(codec.values.type)}


def _codec_from_parts(arrays: Mapping[str, np.ndarray], entry: dict[str, Any]) -> ColumnCodec:
    if entry["codec"] == "id":
        own = {key: entry[key] for key in ("start", "count", "prefix")}
        pattern = tuple(entry["pattern"])
        return IdCodec(Identifiers(**own, pattern=pattern, skip=entry.get("skip")))
    dtype = parse_type(entry["dtype"])
    if entry["codec"] == "numeric":
        grid = Grid(
            dtype, entry["decimals"], entry["step"], entry["offset"], entry.get("local", False)
        )
        numbers = {key: arrays[key] for key in NUMERIC_ARRAYS}
        codes = Quantized(**numbers, continuous=grid.continuous)
        bins = int((~codes.atom).sum())
        assert codes.centres.shape == codes.atom.shape and codes.centres.ndim == 1
        assert len(codes.edges) == (bins + 1 if bins else 0)
        assert len(codes.knot_bin) == len(codes.knot_share) == len(codes.knot_value)
        assert np.array_equal(np.unique(codes.knot_bin), np.arange(bins))
        return NumericCodec(grid, codes)
    values = _words_from_bytes(arrays["values"], dtype)
    stored = arrays.get("dictionary")
    dictionary = None if stored is None else _words_from_bytes(stored, dtype)
    if entry["codec"] == "constant":
        assert len(values) <= 1
        return ConstantCodec(values, dictionary)
    assert entry["codec"] == "categorical" and len(values) > 0
    return CategoricalCodec(values, dictionary)
