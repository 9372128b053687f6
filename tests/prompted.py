"""A table to prompt, a model of it, and how drawn rows compare with their chances."""

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from scipy.stats import chisquare

from tabmt import TabMT, known, missing
from tabmt.data.typed_columns import parse_column
from tabmt.tokens import MASK
from tests.conftest import TINY


def frame(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, rows)
    size = 5 * kind + rng.integers(0, 16, rows)
    price = np.round(size / 4 + rng.normal(0, 1, rows), 1)
    hours = np.where(rng.random(rows) < 0.4, 40, 10 + size * 2 + rng.integers(0, 9, rows))
    start = pd.Timestamp("2020-01-01")
    return pd.DataFrame(
        {
            "id": np.arange(1, rows + 1),
            "kind": np.where(rng.random(rows) < 0.2, None, np.array(["ant", "bee", "cat"])[kind]),
            "size": size,
            "price": np.where(rng.random(rows) < 0.3, np.nan, price),
            "flag": rng.random(rows) < 0.2 + 0.3 * kind,
            "hours": hours,
            "day": start + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
            "moment": start + pd.to_timedelta(rng.integers(0, 2000, rows), "h"),
            "ratio": rng.normal(size=rows),
            "same": "x",
        }
    )


# Few bins, so that ranges cut them; 40 hours are an atom among bins.
WIDE = {
    "columns": [
        *({"name": name, "max_bins": 4} for name in ("size", "price", "day", "moment", "ratio")),
        {"name": "hours", "max_bins": 12},
    ]
}


COLUMNS = "id, kind, size, price, flag, hours, day, moment, ratio, same"


def learn(**settings) -> TabMT:
    # Without protection every value of the table can be asked for.
    return TabMT(**TINY | {"protect": 0} | settings).fit(frame(), schema=WIDE)


def as_set(series) -> set:
    return set(series.dropna().tolist()) | ({None} if series.isna().any() else set())


def p_value(counts, chances) -> float:
    """Chi-square, rare cells together; what has no chance must not come at all."""
    counts, chances = np.asarray(counts, float), np.asarray(chances, float)
    assert counts[chances == 0].sum() == 0
    chances = chances / chances.sum()
    often = chances * counts.sum() > 5
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(chances[often], chances[~often].sum()) * counts.sum()
    keep = expected > 1e-9
    assert keep.sum() > 1 or often.sum() == 1  # otherwise nothing is compared
    return chisquare(observed[keep], expected[keep] / expected[keep].sum() * counts.sum()).pvalue


def met(rows, name, condition) -> bool:
    """Whether a column meets a condition, by pandas' own comparison."""
    column = rows[name]
    if condition == missing():
        return column.isna().all()
    if condition == known():
        return column.notna().all()
    if not hasattr(condition, "values"):
        return (column == condition).all()
    if condition.values is not None:
        return column.isin(condition.values).all()
    low = column.min() if condition.low is None else condition.low
    high = column.max() if condition.high is None else condition.high
    inclusive = {
        (False, False): "both",
        (True, True): "right" if condition.high is None else "neither",
    }
    return column.between(
        low, high, inclusive=inclusive[condition.excludes_low, condition.excludes_high]
    ).all()


def chances(model: TabMT, column: str, known: dict | None = None) -> dict:
    """What the model says of each value of a column once `known` is known, in its order."""
    codec, net, row = model.model_.codec, model.model_.net, torch.arange(1)
    names = list(codec.token_index)
    state = net.start(torch.full((1, len(names)), MASK))
    for name, value in (known or {}).items():
        coded = codec.token_columns[names.index(name)]
        given = parse_column(pa.array([value], coded.column.type), coded.column)
        state.set(row, names.index(name), torch.from_numpy(coded.encode(given)[0]))
    coded = codec.token_columns[names.index(column)]
    own = state.logits(row, names.index(column))[0].double().softmax(0).numpy()
    found = {} if coded.missing_code is None else {None: own[coded.missing_code]}
    if coded.codec.numeric is None:
        return found | dict(zip(coded.codec.values.to_pylist(), own, strict=False))
    low, high = coded.codec.codes.extent
    units = np.arange(low, high + 1)
    codes, outside = coded.codec.codes.encode(units)
    shares = np.where(outside, 0.0, coded.codec.codes.point_shares(units, codes))
    values = coded.codec.grid.values(units).to_pylist()
    return found | dict(zip(values, own[codes] * shares, strict=True))


def follows(rows, column: str, expected: dict) -> float:
    counts = dict.fromkeys(expected, 0)
    for value in rows[column].tolist():
        counts[None if pd.isna(value) else value] += 1
    return p_value(list(counts.values()), list(expected.values()))
