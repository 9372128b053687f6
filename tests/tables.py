"""Small tables for tests: plain functions, seeded, with something of everything."""

import datetime as dt
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


def mixed_frame(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    """Columns of many kinds that depend on one another, an id and missing values."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, rows)
    height = np.round(150 + 10 * group + rng.normal(0, 5, rows), 1)
    weight = np.where(rng.random(rows) < 0.1, np.nan, np.round(height / 2 + rng.normal(0, 4, rows)))
    days = rng.integers(0, 400, rows)
    return pd.DataFrame(
        {
            "id": np.arange(1, rows + 1),
            "group": pd.Series(np.array(["a", "b", "c"])[group], dtype="category"),
            "height": height,
            "weight": weight,
            "visits": pd.array(rng.poisson(group + 1), dtype="Int32"),
            "member": rng.random(rows) < 0.3,
            "since": pd.Timestamp("2020-01-01", tz="Europe/Oslo") + pd.to_timedelta(days, "D"),
            "city": np.where(rng.random(rows) < 0.2, None, np.array(["Oslo", "Bergen"])[group % 2]),
        }
    )


def people(rows: int, seed: int) -> pd.DataFrame:
    """Rows of which hardly two are equal, with a long tail of incomes."""
    rng = np.random.default_rng(seed)
    city = rng.integers(0, 5, rows)
    age = rng.integers(18, 90, rows)
    income = np.exp(rng.normal(10 + city / 10, 0.5, rows))
    return pd.DataFrame(
        {
            "age": age,
            "income": income,
            "rent": income / 10 + rng.normal(0, 300, rows),
            "city": np.array(["Oslo", "Bergen", "Molde", "Bodø", "Voss"])[city],
            "score": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
        }
    )


def every_type() -> pa.Table:
    """One column of each Arrow type that a table may hold, 30 rows, every third missing."""
    rows = range(30)

    def column(values: list[object], dtype: pa.DataType) -> pa.Array:
        return pa.array([None if i % 3 == 2 else v for i, v in enumerate(values)], dtype)

    day = dt.date(2020, 1, 1)
    moment = dt.datetime(2020, 1, 1, 12)
    columns = {
        "int8": column([i % 12 for i in rows], pa.int8()),
        "uint16": column([i * 7 for i in rows], pa.uint16()),
        "int64": column([i * 10**6 + i % 7 for i in rows], pa.int64()),
        "float32": column([i / 4 for i in rows], pa.float32()),
        "float64": column([1 / (i + 1) for i in rows], pa.float64()),
        "decimal": column([f"{i}.25" for i in rows], pa.string()).cast(pa.decimal128(9, 2)),
        "bool": column([i % 2 == 0 for i in rows], pa.bool_()),
        "string": column([f"word {i % 4}" for i in rows], pa.string()),
        "large": column([f"word {i % 4}" for i in rows], pa.large_string()),
        "dictionary": column([f"word {i % 4}" for i in rows], pa.string()).dictionary_encode(),
        "date": column([day + dt.timedelta(i) for i in rows], pa.date32()),
        "stamp": column([moment + dt.timedelta(hours=i) for i in rows], pa.timestamp("us")),
        "zoned": column([moment] * 15 + [moment + dt.timedelta(1)] * 15, pa.timestamp("ms", "UTC")),
        "time": column([dt.time(i % 24, 30) for i in rows], pa.time64("us")),
        "duration": column([dt.timedelta(minutes=i) for i in rows], pa.duration("s")),
        "empty": pa.nulls(30, pa.int32()),
        "constant": pa.array([7] * 30, pa.int16()),
    }
    return pa.table(columns)


def write_parts(frame: pd.DataFrame, folder: Path, suffix: str = "parquet") -> list[Path]:
    """Files of 70 rows each, which together are the table."""
    table = pa.Table.from_pandas(frame)  # parts of one table have its types
    paths = []
    for number, start in enumerate(range(0, len(frame), 70)):
        path = folder / f"part{number}.{suffix}"
        if suffix == "csv":
            frame.iloc[start : start + 70].to_csv(path, index=False)
        else:
            pq.write_table(table.slice(start, 70), path)
        paths.append(path)
    return paths


HEADER_OF_FLOWS = (
    "Date first seen,Duration,Proto,Src IP Addr,Src Pt,Dst IP Addr,Dst Pt,Packets,Bytes,Flows,"
    "Flags,Tos,class,attackType,attackID,attackDescription"
)
FLOW_LINES = [  # as published, padding and all
    "2017-03-15 00:01:16.632,    0.000,TCP  ,192.168.100.5,   445,192.168.220.16,58844.0,"
    "       1,     108,    1,.AP...,  0,normal,---,---,---",
    "2017-03-19 23:59:59.999,  102.743,UDP  ,192.168.200.8, 33333,DNS,   53.0,       2,     164,"
    "    1,......,  0,normal,---,---,---",
    "2017-03-16 12:00:00.000,    3.102,TCP  ,10009_94,   443,192.168.210.5,50001.0,    1.1 M,"
    "  1.2 M,    1,.AP.SF, 16,normal,---,---,---",
    "2017-03-17 08:30:01.007,    0.000,ICMP ,192.168.220.4,     0,192.168.100.3,    3.1,       1,"
    "      84,    1,......,192,normal,---,---,---",
    "2017-03-17 08:30:02.007,    0.000,ICMP ,EXT_SERVER,     0,192.168.100.3,    8.0,       1,"
    "      84,    1,......,  0,victim,dos,17,DoS flags",
]


def weekly_file(path: Path, *lines: str) -> Path:
    """A file of flows as CIDDS-001 publishes them."""
    path.write_text("\n".join((HEADER_OF_FLOWS, *lines)) + "\n")
    return path


def with_little_disk(most: int) -> list[str]:
    """The beginning of a command line of tabmt that can write no file of more bytes."""
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        "from tabmt.cli import main\n"
        "main()\n"
    )
    return [sys.executable, "-c", code]


NAME, SALARY, PHONE = "Wilhelmina Quist", 9_612_345, "+47 912 34 567"
FIRST, LAST = dt.date(1931, 5, 17), dt.date(2031, 11, 3)


def planted(rows=3000, seed=0) -> pd.DataFrame:
    """A table with a unique name, an extreme salary, a first and a last date, a telephone number
    that occurs twice, and a combination of two frequent values that one row holds."""
    rng = np.random.default_rng(seed)
    names = rng.choice(["Anna Berg", "Ola Nordmann", "Kari Lie", "Per Moe"], rows).astype(object)
    salaries = np.round(rng.normal(50_000, 9_000, rows))
    days = [dt.date(2020, 1, 1) + dt.timedelta(int(day)) for day in rng.integers(0, 700, rows)]
    numbers = rng.permutation(10**7)[:rows]
    phones = [f"+47 9{n // 10**5:02} {n // 1000 % 100:02} {n % 1000:03}" for n in numbers]
    city = rng.choice(["Oslo", "Bergen", "Bodo"], rows).astype(object)
    country = np.where(city == "Bodo", "north", "south").astype(object)
    names[0], salaries[1], days[2], days[3] = NAME, SALARY, FIRST, LAST
    phones[4] = phones[5] = PHONE
    city[6], country[6] = "Bodo", "south"
    return pd.DataFrame(
        {
            "who": names, "salary": salaries, "day": days, "phone": phones,
            "city": city, "country": country,
        }
    )  # fmt: skip


def correlated(rows: int, seed: int = 0) -> pd.DataFrame:
    """Two numbers, two categories and strong relations, for generators that learn in seconds."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, rows)
    x = 2 * kind + rng.normal(0, 0.7, rows)
    y = x + rng.normal(0, 0.4, rows)
    label = (y + rng.normal(0, 0.3, rows) > 1).astype(int)
    return pd.DataFrame(
        {
            "x": x,
            "kind": pd.Categorical.from_codes(kind, ["a", "b"]),
            "y": y,
            "label": pd.Categorical.from_codes(label, [0, 1]),
        }
    )
