"""What several seeds say together: the mean of their figures and its 95 % t interval."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t


def over_seeds(values: Sequence[float]) -> dict[str, float | int | list[float] | None]:
    """One seed has no interval."""
    mean, count = float(np.mean(values)), len(values)
    interval = None
    if count > 1:
        half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
        interval = [mean - half, mean + half]
    return {"mean": mean, "interval_95": interval, "seeds": count}
