"""Does the synthetic table look like the real one? Columns, pairs of columns, gaps, a detector."""

from itertools import combinations
from typing import Any

import numpy as np

from tabmt.errors import UserError
from tabmt.evaluation.metrics.neighbours import nearest
from tabmt.evaluation.metrics.view import View

PAIR_BINS = 10
PAIR_CATEGORIES = CORRELATED_CATEGORIES = 50  # the most frequent of a column; the rest count as one
ALPHAS = np.linspace(0, 1, 30)
DETECTOR_TREES = 300
LEAST_ROWS = 20  # of either table, for what is learned or counted by quantiles


def column_distances(real: View, synthetic: View) -> dict[str, float]:
    """Kolmogorov-Smirnov distance of each number, total variation of each category, in [0, 1].

    Gaps count as a value of their own for categories and are left out for numbers.
    """
    distances = {}
    for name in real.lens.names:
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
    below = [np.searchsorted(one, every, side="right") / len(one) for one in (real, synthetic)]
    return float(np.abs(below[0] - below[1]).max())


def _total_variation(real: np.ndarray, synthetic: np.ndarray) -> float:
    size = int(max(real.max(), synthetic.max())) + 2
    shares = [np.bincount(one + 1, minlength=size) / len(one) for one in (real, synthetic)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def correlations(view: View) -> tuple[np.ndarray, list[str]]:
    """Pearson correlations of numbers and one-hot categories, and the field of each row.

    A pair is correlated over the rows where neither is a gap; a column that does not vary has
    no correlation (NaN).
    """
    parts, fields = [], []
    for name in view.lens.names:
        if name in view.numbers:
            parts.append(view.numbers[name])
            fields.append(name)
        else:
            codes = view.codes[name]
            for place in range(min(len(view.lens.words[name]), CORRELATED_CATEGORIES)):
                parts.append(np.where(codes < 0, np.nan, codes == place))
                fields.append(name)
    values = np.stack(parts, axis=1)
    values[~np.isfinite(values)] = np.nan
    return _pairwise_correlation(values), fields


def _pairwise_correlation(values: np.ndarray) -> np.ndarray:
    """(columns, columns): what pandas' DataFrame.corr gives, by matrix products."""
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
        found = covariance / np.sqrt(variance * variance.T)
        still = variance < 1e-10 * n
        found[still | still.T | (n < 2)] = np.nan
    return np.asarray(np.clip(found, -1, 1))


def correlation_errors(real: View, synthetic: View) -> np.ndarray:
    """The paper's |r - r'| of every pair of columns of different fields.

    A correlation that only one of the tables has counts as 0 in the other.
    """
    ours, fields = correlations(real)
    theirs, _ = correlations(synthetic)
    places = {name: place for place, name in enumerate(real.lens.names)}
    owner = np.array([places[name] for name in fields])
    pairs = np.triu(owner[:, None] != owner[None, :]) & ~(np.isnan(ours) & np.isnan(theirs))
    if not pairs.any():
        raise UserError("no two columns can be correlated")
    errors: np.ndarray = np.abs(np.nan_to_num(ours) - np.nan_to_num(theirs))[pairs]
    return errors


def pair_distances(real: View, synthetic: View) -> dict[tuple[str, str], float]:
    """Total variation between the joint shares of each two columns, numbers cut into tenths."""
    cut: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in real.lens.names:
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
        cut[name] = (pair[0], pair[1])
    found = {}
    for one, two in combinations(real.lens.names, 2):
        width = int(max(cut[two][0].max(), cut[two][1].max())) + 2
        joint = [cut[one][i] + 1 for i in (0, 1)]
        joint = [joint[i] * width + cut[two][i] + 1 for i in (0, 1)]
        found[one, two] = _total_variation(joint[0] - 1, joint[1] - 1)
    return found


def gap_rate_error(real: View, synthetic: View) -> float:
    """Mean |difference| of the share of gaps, over the columns that have any in either table."""
    rates = [(real.gaps(name).mean(), synthetic.gaps(name).mean()) for name in real.lens.names]
    gappy = [abs(a - b) for a, b in rates if a or b]
    return float(np.mean(gappy)) if gappy else 0.0


def gap_correlation_error(real: View, synthetic: View) -> float:
    """Mean |difference| of the correlations between where columns have their gaps."""
    names = [name for name in real.lens.names if real.gaps(name).any()]
    if len(names) < 2:
        raise UserError("fewer than two columns have gaps")
    found = [
        np.nan_to_num(
            _pairwise_correlation(np.stack([view.gaps(n) for n in names], 1).astype(float))
        )
        for view in (real, synthetic)
    ]
    upper = np.triu_indices(len(names), 1)
    return float(np.abs(found[0] - found[1])[upper].mean())


def detector_auc(real: View, synthetic: View, rng: np.random.Generator) -> float:
    """How well CatBoost tells synthetic from real rows it has not seen: 0.5 not at all, 1 always.

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
        raise UserError(f"CatBoost cannot learn from these rows: {error}") from error
    return float(roc_auc_score(label[~train], model.predict_proba(frame[~train])[:, 1]))


def logistic_detector_auc(real: View, synthetic: View, rng: np.random.Generator) -> float:
    """The same with logistic regression, for comparison with papers that use it. Easily fooled."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import StandardScaler

    count = _enough(real, synthetic)
    parts = [view.take(rng.permutation(len(view))[:count]).matrix for view in (real, synthetic)]
    rows = StandardScaler().fit_transform(np.concatenate(parts))
    label = np.repeat([0, 1], count)
    train = rng.random(2 * count) < 0.5
    model = LogisticRegression(max_iter=300).fit(rows[train], label[train])
    return float(roc_auc_score(label[~train], model.predict_proba(rows[~train])[:, 1]))


def _enough(real: View, synthetic: View) -> int:
    count = min(len(real), len(synthetic))
    if count < LEAST_ROWS:
        raise UserError(f"{count} rows of each table are too few; {LEAST_ROWS} are needed")
    return count


def _detector_rows(real: View, synthetic: View, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    import pandas as pd

    count = _enough(real, synthetic)
    parts = [view.take(rng.permutation(len(view))[:count]).frame() for view in (real, synthetic)]
    frame = pd.concat(parts, ignore_index=True)
    train = np.zeros(2 * count, bool)
    for start in (0, count):
        train[start + rng.permutation(count)[: count // 2]] = True
    return frame, np.repeat([0, 1], count), train


def alpha_precision_beta_recall(real: View, synthetic: View) -> tuple[float, float]:
    """Alaa et al. (2022), integrated: 1 if the synthetic rows fill each quantile of the real
    ones as they should (precision), and real rows have synthetic ones near them (recall)."""
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
        raise UserError("This needs CatBoost: pip install 'tabmt[eval]'.") from error
    return catboost
