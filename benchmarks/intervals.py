"""The mean of a score over several seeds, and its 95 % confidence interval (Student's t)."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t


def over_seeds(values: Sequence[float]) -> dict[str, float | int | list[float] | None]:
    """Mean, interval and number of seeds; the interval of a single seed is None."""
    mean, count = float(np.mean(values)), len(values)
    interval = None
    if count > 1:
        half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
        interval = [mean - half, mean + half]
    return {"mean": mean, "interval_95": interval, "seeds": count}
