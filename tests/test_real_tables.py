"""Every real table in a folder goes through the command line. The folder is $TABMT_DATA."""

import json
import os
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from tabmt.cli import main

FOLDER = Path(os.environ.get("TABMT_DATA", Path(__file__).parents[2] / "shared" / "data"))
TABLES = sorted(FOLDER.glob("*.parquet"))
SETTINGS = ["--steps", "50", "--eval-every", "25", "--seed", "0"]


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow
@pytest.mark.skipif(not TABLES, reason=f"no Parquet tables in {FOLDER}; set TABMT_DATA")
@pytest.mark.parametrize("path", TABLES or [None], ids=lambda path: path and path.stem)
def test_a_real_table_is_learned_and_sampled_with_its_types_and_columns(path, tmp_path):
    real = pyarrow.parquet.read_table(path)
    columns = json.loads(run("schema", path).stdout)["columns"]
    assert [column["name"] for column in columns] == real.column_names
    run("fit", path, "-o", tmp_path / "m.tabmt", *SETTINGS)
    run("sample", tmp_path / "m.tabmt", "-n", 600, "-o", tmp_path / "out.parquet", "--seed", 1)
    made = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert made.schema.names == real.schema.names
    for one, two in zip(made.schema, real.schema, strict=True):
        assert one.type == two.type, one.name
    assert made.num_rows == 600
    for column, array in zip(columns, made.columns, strict=True):
        if column["missing"] == "none" and column["reason"] != "every value is missing":
            assert array.null_count == 0
        if column["kind"] in ("numeric", "datetime"):
            values, known = array.to_pandas().dropna(), real[column["name"]].to_pandas().dropna()
            assert values.min() >= known.min() and values.max() <= known.max()
    run("sample", tmp_path / "m.tabmt", "-n", 600, "-o", tmp_path / "out.csv", "--seed", 1)
    assert len(pd.read_csv(tmp_path / "out.csv", low_memory=False)) == 600
