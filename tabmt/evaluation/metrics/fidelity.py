"""Does the synthetic table look like the real one? Columns, pairs of columns, missing values, and a
detector."""

import math
from itertools import combinations
from typing import Any

import numpy as np

from tabmt.errors import UserError, not_installed
from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.metrics.neighbours import nearest

PAIR_BINS = 10
PAIR_CATEGORIES = CORRELATED_CATEGORIES = 50  # the most frequent of a column; others count as one
ALPHAS = np.linspace(0, 1, 30)
DETECTOR_TREES = 300
DETECTOR_ROWS = 2500  # of each table, over which the score of a detector is averaged ...
MOST_DETECTORS = 30  # ... if that takes no more detectors than this
LEAST_ROWS = 20  # of either table, for metrics that learn or use quantiles


def column_distances(real: EncodedTable, synthetic: EncodedTable) -> dict[str, float]:
    """Kolmogorov-Smirnov distance of each number column, total variation of each category column,
    in [0, 1].

    Missing values count as a separate category, and are left out of numbers.
    """
    distances = {}
    for name in real.names:
        if name in real.numbers:
            distances[name] = _ks(real.numbers[name], synthetic.numbers[name])
        else:
            distances[name] = _total_variation(real.codes[name], synthetic.codes[name])
    return distances


def _ks(real: np.ndarray, synthetic: np.ndarray) -> float:
    real, synthetic = np.sort(real[~np.isnan(real)]), np.sort(synthetic[~np.isnan(synthetic)])
    if len(real) == 0 or len(synthetic) == 0:
        return float(len(real) != len(synthetic))
    every = np.concatenate([real, synthetic])
    below = [np.searchsorted(x, every, side="right") / len(x) for x in (real, synthetic)]
    return float(np.abs(below[0] - below[1]).max())


def _total_variation(real: np.ndarray, synthetic: np.ndarray) -> float:
    size = int(max(real.max(), synthetic.max())) + 2
    shares = [np.bincount(x + 1, minlength=size) / len(x) for x in (real, synthetic)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def correlations(table: EncodedTable) -> tuple[np.ndarray, list[str]]:
    """Pearson correlations of numbers and one-hot categories, and the column of each row.

    A pair is correlated over the rows where neither is missing; what does not vary has no
    correlation (NaN).
    """
    vectors, owners = [], []
    for name in table.names:
        if name in table.numbers:
            vectors.append(table.numbers[name])
            owners.append(name)
        else:
            codes = table.codes[name]
            for code in range(min(len(table.encoder.categories[name]), CORRELATED_CATEGORIES)):
                vectors.append(np.where(codes < 0, np.nan, codes == code))
                owners.append(name)
    values = np.stack(vectors, axis=1)
    values[~np.isfinite(values)] = np.nan
    return _pairwise_correlation(values), owners


def _pairwise_correlation(values: np.ndarray) -> np.ndarray:
    """(columns, columns): the result of pandas' DataFrame.corr, by matrix products."""
    known = ~np.isnan(values)
    # Centre first: the sums below then lose no digits to a large mean.
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(known, values, 0).sum(0) / known.sum(0)
        scales = np.sqrt(np.where(known, (values - means) ** 2, 0).sum(0) / known.sum(0))
        x = np.where(known, (values - means) / np.where(scales > 0, scales, 1), 0.0)
        k = known.astype(np.float64)
        n = k.T @ k
        sums = x.T @ k  # [i, j]: sum of i over the rows where j is known too
        squares = (x**2).T @ k
        covariance = x.T @ x - sums * sums.T / n
        variance = squares - sums**2 / n
        correlation = covariance / np.sqrt(variance * variance.T)
        constant = variance < 1e-10 * n
        correlation[constant | constant.T | (n < 2)] = np.nan
    return np.asarray(np.clip(correlation, -1, 1))


def correlation_errors(real: EncodedTable, synthetic: EncodedTable) -> np.ndarray:
    """The paper's |r - r'| of every pair of numbers or categories of different columns.

    A correlation that exists in only one of the tables counts as 0 in the other.
    """
    ours, owners = correlations(real)
    theirs, _ = correlations(synthetic)
    owner = np.array([real.names.index(name) for name in owners])
    pairs = np.triu(owner[:, None] != owner[None, :]) & ~(np.isnan(ours) & np.isnan(theirs))
    if not pairs.any():
        raise UserError("no two columns can be correlated")
    errors: np.ndarray = np.abs(np.nan_to_num(ours) - np.nan_to_num(theirs))[pairs]
    return errors


def pair_distances(real: EncodedTable, synthetic: EncodedTable) -> dict[tuple[str, str], float]:
    """Total variation between the joint shares of each two columns, numbers divided at deciles."""
    binned: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in real.names:
        if name in real.numbers:
            known = real.numbers[name][~np.isnan(real.numbers[name])]
            inner = np.linspace(0, 1, PAIR_BINS + 1)[1:-1]
            edges = np.unique(np.quantile(known, inner)) if len(known) else np.zeros(0)
            pair = [
                np.where(np.isnan(v), -1, np.searchsorted(edges, np.nan_to_num(v), side="right"))
                for v in (real.numbers[name], synthetic.numbers[name])
            ]
        else:
            pair = [
                np.minimum(v, PAIR_CATEGORIES) for v in (real.codes[name], synthetic.codes[name])
            ]
        binned[name] = (pair[0], pair[1])
    distances = {}
    for first, second in combinations(real.names, 2):
        width = int(max(binned[second][0].max(), binned[second][1].max())) + 2
        joint = [binned[first][i] + 1 for i in (0, 1)]
        joint = [joint[i] * width + binned[second][i] + 1 for i in (0, 1)]
        distances[first, second] = _total_variation(joint[0] - 1, joint[1] - 1)
    return distances


def missing_rate_error(real: EncodedTable, synthetic: EncodedTable) -> float:
    """Mean |difference| of the rate of missing values, over the columns that have any in either
    table."""
    rates = [(real.missing(name).mean(), synthetic.missing(name).mean()) for name in real.names]
    errors = [abs(a - b) for a, b in rates if a or b]
    return float(np.mean(errors)) if errors else 0.0


def missing_correlation_error(real: EncodedTable, synthetic: EncodedTable) -> float:
    """Mean |difference| of the correlations between which values of two columns are missing."""
    names = [name for name in real.names if real.missing(name).any()]
    if len(names) < 2:
        raise UserError("fewer than two columns have missing values")
    ours, theirs = (
        np.nan_to_num(
            _pairwise_correlation(np.stack([table.missing(n) for n in names], 1).astype(float))
        )
        for table in (real, synthetic)
    )
    upper = np.triu_indices(len(names), 1)
    return float(np.abs(ours - theirs)[upper].mean())


def detector_auc(real: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> float:
    """How well CatBoost tells synthetic from real rows it has not seen: 0.5 is chance, 1 is always.

    Equal numbers of both, half to train and half to score.
    """
    from sklearn.metrics import roc_auc_score

    frame, label, train = _detector_rows(real, synthetic, rng)
    model = catboost().CatBoostClassifier(
        iterations=DETECTOR_TREES,
        random_seed=int(rng.integers(2**31)),
        cat_features=[name for name in frame if frame[name].dtype == object],
        verbose=False,
        allow_writing_files=False,
    )
    try:
        model.fit(frame[train], label[train])
    except catboost().CatBoostError as error:
        raise UserError(f"CatBoost failed: {error}") from error
    return float(roc_auc_score(label[~train], model.predict_proba(frame[~train])[:, 1]))


def mean_detector_auc(
    real: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator
) -> float:
    """`detector_auc`, for small tables the mean over several random splits: one split of a hundred
    rows has a standard error of 0.06."""
    count = _enough(real, synthetic)
    repeats = min(MOST_DETECTORS, math.ceil(DETECTOR_ROWS / count))
    return float(np.mean([detector_auc(real, synthetic, rng) for _ in range(repeats)]))


def logistic_detector_auc(
    real: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator
) -> float:
    """The same with logistic regression, for comparison with papers that use it. It is weak."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import StandardScaler

    count = _enough(real, synthetic)
    matrices = [t.take(rng.permutation(len(t))[:count]).matrix for t in (real, synthetic)]
    rows = StandardScaler().fit_transform(np.concatenate(matrices))
    label = np.repeat([0, 1], count)
    train = rng.random(2 * count) < 0.5
    model = LogisticRegression(max_iter=300).fit(rows[train], label[train])
    return float(roc_auc_score(label[~train], model.predict_proba(rows[~train])[:, 1]))


def _enough(real: EncodedTable, synthetic: EncodedTable) -> int:
    count = min(len(real), len(synthetic))
    if count < LEAST_ROWS:
        raise UserError(f"{count} rows of each table are too few; {LEAST_ROWS} are needed")
    return count


def _detector_rows(
    real: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator
) -> tuple[Any, Any, Any]:
    import pandas as pd

    count = _enough(real, synthetic)
    frames = [t.take(rng.permutation(len(t))[:count]).frame() for t in (real, synthetic)]
    frame = pd.concat(frames, ignore_index=True)
    train = np.zeros(2 * count, bool)
    for start in (0, count):
        train[start + rng.permutation(count)[: count // 2]] = True
    return frame, np.repeat([0, 1], count), train


def alpha_precision_beta_recall(real: EncodedTable, synthetic: EncodedTable) -> tuple[float, float]:
    """Alaa et al. (2022), integrated: 1 if each quantile of the real rows contains its share of the
    synthetic ones (precision), and real rows have synthetic ones close by (recall)."""
    _enough(real, synthetic)
    a, b = real.matrix, synthetic.matrix
    centre = a.mean(0)
    radii = np.quantile(np.linalg.norm(a - centre, axis=1), ALPHAS)
    to_centre = np.linalg.norm(b - centre, axis=1)
    precision = (to_centre[None] <= radii[:, None]).mean(1)
    to_real = nearest(a, a, same=True)[0][:, 0]
    to_synthetic, which = nearest(a, b)
    closest = np.linalg.norm(b[which[:, 0]] - b.mean(0), axis=1)
    limits = np.quantile(closest, ALPHAS)
    covered = to_synthetic[:, 0] <= to_real
    recall = (covered[None] & (closest[None] <= limits[:, None])).mean(1)
    scores = [1 - np.abs(ALPHAS - curve).sum() / ALPHAS.sum() for curve in (precision, recall)]
    return float(scores[0]), float(scores[1])


def catboost() -> Any:
    try:
        import catboost
    except ImportError as error:
        raise not_installed("An evaluation", "CatBoost", "eval") from error
    return catboost
