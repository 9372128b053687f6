"""How much detail the codes lose: can rows be told from the same rows redrawn from their codes?

No network can generate rows that are harder to tell apart than these.
"""

from collections.abc import Collection, Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from tabmt.codec.columns import CodedColumn, Decoding
from tabmt.codec.table import TableCodec
from tabmt.data.typed_columns import TypedColumn, TypedTable
from tabmt.seeds import derive, numpy_stream

LEAST_ROWS = 1000  # of fewer rows a score would be mostly chance
MOST_ROWS = 40_000
TREES, TREES_OF_COLUMN = 300, 50
MOST_DETECTABLE = 0.6  # AUC above which codes do not represent a table well enough
MOST_DETECTABLE_ALONE = 0.53  # AUC above which those of a single column do not
STANDARD_ERRORS = 3.0  # by which an AUC must be above 0.5


def codes_detector_auc(
    codec: TableCodec, table: TypedTable, *, leave: Collection[str] = (), seed: int
) -> float | None:
    """AUC of a classifier that tells real rows from redrawn ones, 0.5 if it cannot; None if there
    are too few rows, or no numbers to redraw. Columns in `leave` are not generated from codes.
    """
    columns = [coded for coded in codec.token_columns if coded.name not in leave]
    if table.num_rows < LEAST_ROWS or not any(coded.codec.numeric for coded in columns):
        return None
    return _detector_auc(columns, table, TREES, seed)


def detectable_columns(codec: TableCodec, table: TypedTable, *, seed: int) -> list[str]:
    """The columns of numbers whose redrawn values can be told from the real ones without any other
    column, because their bins contain single values that many rows share."""
    if table.num_rows < LEAST_ROWS:
        return []
    scored = min(table.num_rows, MOST_ROWS) / 2
    chance = STANDARD_ERRORS * (3 * scored) ** -0.5  # the standard error of an AUC of 0.5
    least = max(MOST_DETECTABLE_ALONE, 0.5 + chance)
    return [
        coded.name
        for coded in codec.token_columns
        if coded.codec.numeric is not None
        and not coded.codec.numeric.codes.atom.all()
        and _detector_auc([coded], table, TREES_OF_COLUMN, seed) > least
    ]


def _detector_auc(
    columns: Sequence[CodedColumn], table: TypedTable, trees: int, seed: int
) -> float:
    rng = numpy_stream(seed, "resolution")
    chosen = rng.permutation(table.num_rows)[:MOST_ROWS]
    redrawn = np.arange(len(chosen)) % 2 == 1
    features = [
        _ranks(_values(coded, table.columns[coded.name], chosen, redrawn, rng)) for coded in columns
    ]
    matrix = np.column_stack(features)
    half = len(chosen) // 2
    model = HistGradientBoostingClassifier(
        max_iter=trees, early_stopping=False, random_state=derive(seed, "resolution") % 2**32
    )
    model.fit(matrix[:half], redrawn[:half])
    return float(roc_auc_score(redrawn[half:], model.predict_proba(matrix[half:])[:, 1]))


def _values(
    coded: CodedColumn,
    typed: TypedColumn,
    rows: np.ndarray,
    redrawn: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """A number for each of some rows, NaN if missing: the value itself, or one drawn from its
    code; the code of a category."""
    known = typed.is_known
    values = np.full(len(known), np.nan)
    codes, _ = coded.codec.encode(typed.known)
    values[known] = codes
    if (numeric := coded.codec.numeric) is not None:
        values[known] = numeric.grid.units(typed.known)
        drawn = np.full(len(known), np.nan)
        drawn[known] = numeric.decode_units(codes, Decoding(rng))
        values[rows[redrawn]] = drawn[rows[redrawn]]
    return np.asarray(values[rows])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Trees see only the order; ranks cannot overflow."""
    ranks = np.full(len(values), np.nan)
    known = ~np.isnan(values)
    ranks[known] = np.unique(values[known], return_inverse=True)[1]
    return ranks
