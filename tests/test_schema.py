import json

import pyarrow as pa
import pytest

from tabmt.data.arrow_types import parse_type
from tabmt.data.dataset import InMemory
from tabmt.data.infer import infer_schema
from tabmt.data.schema import Column, Schema, Source
from tabmt.json_files import InvalidDataError
from tests.tables import every_type


def test_schema_survives_json():
    schema = infer_schema(InMemory(every_type(), Source("pandas", "{}")))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_what_a_user_has_set_survives_json():
    column = Column(name="x", kind="numeric", dtype="double", set_by_user=("kind", "max_bins"))
    schema = Schema((column,), rules={"order": "x > 0"})
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_a_kind_that_does_not_exist_is_refused():
    entry = {"name": "x", "kind": "number", "dtype": "double"}
    with pytest.raises(InvalidDataError):
        Schema.from_json({"columns": [entry], "source": {"kind": "arrow"}})


def test_every_type_survives_its_name():
    for field in every_type().schema:
        assert parse_type(str(field.type)) == field.type
    for dtype in (pa.decimal256(50, -3), pa.dictionary(pa.int8(), pa.int64(), ordered=True)):
        assert parse_type(str(dtype)) == dtype
