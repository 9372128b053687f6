"""Row positions of training, validation and test rows, where no file gives them.

TabDDPM took most of its larger tables from the script of "On Embeddings for Numerical Features in
Tabular Deep Learning" (Gorishniy et al., 2022), which splits 64/16/20 with the seeds below. For
California, Churn, Adult and Diabetes the row positions were compared with those of TabDDPM and are
the same; for Gesture, Higgs, House and Facebook they follow from that script; how the others were
split is not published, so theirs are our own.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

Rows = dict[str, np.ndarray]  # "train", "val" and "test" -> row positions
# From the target column, and whether it has classes, which then are equally frequent everywhere.
Splitter = Callable[[pd.Series, bool], Rows]

ADULT_TRAIN_ROWS = 32_561  # adult.data; adult.test has the others
FACEBOOK_QUANTILE = 0.99


def seeded(target: pd.Series, classes: bool, seeds: tuple[int, int] = (0, 1)) -> Rows:
    """64 % training, 16 % validation and 20 % test rows."""
    test_seed, valid_seed = seeds
    rest, test = train_test_split(
        np.arange(len(target)),
        test_size=0.2,
        random_state=test_seed,
        stratify=target if classes else None,
    )
    return _train_and_valid(rest, target, classes, valid_seed) | {"test": test}


def seeded_twice_by_0(target: pd.Series, classes: bool) -> Rows:
    return seeded(target, classes, (0, 0))


def adult(target: pd.Series, classes: bool) -> Rows:
    """The test rows are those of adult.test."""
    rows = np.arange(len(target))
    train = _train_and_valid(rows[:ADULT_TRAIN_ROWS], target, classes, 1)
    return train | {"test": rows[ADULT_TRAIN_ROWS:]}


def facebook(target: pd.Series, classes: bool) -> Rows:
    """80/10/10, then without the rows whose target exceeds the 99 % quantile of training rows."""
    train, rest = train_test_split(np.arange(len(target)), test_size=0.2, random_state=2)
    valid, test = train_test_split(rest, test_size=0.5, random_state=2)
    highest = target.iloc[train].quantile(FACEBOOK_QUANTILE)
    parts = {"train": train, "val": valid, "test": test}
    return {name: rows[target.iloc[rows] <= highest] for name, rows in parts.items()}


def flows(target: pd.Series, classes: bool) -> Rows:
    """5 % validation rows, on which the paper reports; there are no test rows."""
    train, valid = train_test_split(np.arange(len(target)), test_size=0.05, random_state=0)
    return {"train": train, "val": valid, "test": np.array([], int)}


def _train_and_valid(rows: np.ndarray, target: pd.Series, classes: bool, seed: int) -> Rows:
    train, valid = train_test_split(
        rows,
        test_size=0.2,
        random_state=seed,
        stratify=target.iloc[rows] if classes else None,
    )
    return {"train": train, "val": valid}
