"""How much privacy noisy answers spend: Renyi differential privacy, and its conversion.

An answer with Gaussian noise of `scale` standard deviations, whose exact value changes by at most 1
(in Euclidean norm) if one row is added or removed, spends rho = 1 / (2 scale^2), and so alpha * rho
at every order alpha (Bun and Steinke 2016). A choice among scores by the exponential mechanism
spends epsilon^2 / 8 (Cesar and Rogers 2021). A step of DP-SGD spends what Mironov, Talwar and Zhang
(2019) give for the subsampled Gaussian. Spent amounts add up at each order, and are converted to
epsilon and delta by the bound of Canonne, Kamath and Steinke (2020).
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, ndtri

# Fine below 10, where large budgets have their best order, and coarse above.
ORDERS = np.concatenate([1 + np.arange(1, 100) / 10, np.arange(11, 65), 2.0 ** np.arange(7, 15)])
WHOLE_ORDERS = np.concatenate([np.arange(2, 65), [128, 256, 512]]).astype(np.float64)
TERMS = 4096  # of the series for orders that are not whole: more than any of them needs
MOST_NOISE = 1e6


def epsilon_of_renyi(spent: np.ndarray, orders: np.ndarray, delta: float) -> float:
    """The epsilon that belongs to `delta`, given what is spent at each order."""
    bounds = spent + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(bounds.min()))


def epsilon_of_rho(rho: float, delta: float) -> float:
    """The same for answers with Gaussian noise alone: the best of all orders, whole or not."""
    if rho <= 0:
        return 0.0
    best = 1 + math.sqrt(math.log(1 / delta) / rho)  # near the minimum
    orders = 1 + (best - 1) * np.geomspace(0.2, 5.0, 2001)
    return epsilon_of_renyi(rho * orders, orders, delta)


def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """The largest rho whose epsilon is not above the given one."""
    low, high = 0.0, max(1.0, epsilon) ** 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_rho(middle, delta) <= epsilon else (low, middle)
    return low * (1 - 1e-9)  # so that a sum of parts is not above it


def scale_of_rho(rho: float) -> float:
    """The standard deviation of Gaussian noise that spends rho on a count."""
    return math.sqrt(1 / (2 * rho))


def threshold(scale: float, delta: float) -> float:
    """The noisy count that a value of a single row reaches with a probability of at most delta.

    A value that occurs in one table and not in its neighbour has one row. If its noisy count is not
    released below this, the two tables differ by the noise of counts that both have, except with
    this probability.
    """
    return 1 + scale * -float(ndtri(delta))


def epsilon_of_choice(rho: float) -> float:
    """The epsilon of an exponential mechanism that spends rho."""
    return math.sqrt(8 * rho)


# --- DP-SGD ----------------------------------------------------------------------------------


def renyi_of_sampled_gaussian(rate: float, noise: float, order: float) -> float:
    """What one step spends at an order, if each row is in its batch with probability `rate` and
    the noise has `noise` times the norm that a row's gradient may have."""
    if rate == 0:
        return 0.0
    if rate == 1:
        return order / (2 * noise**2)
    if float(order).is_integer():
        return _log_moment_of_whole_order(rate, noise, int(order)) / (order - 1)
    return _log_moment(rate, noise, order) / (order - 1)


def _log_moment_of_whole_order(rate: float, noise: float, order: int) -> float:
    """Mironov, Talwar and Zhang, section 3.3, by the binomial theorem."""
    k = np.arange(order + 1)
    terms = (
        _log_binomial(order, k)
        + k * math.log(rate)
        + (order - k) * math.log1p(-rate)
        + (k * k - k) / (2 * noise**2)
    )
    return float(np.logaddexp.reduce(terms))


def _log_moment(rate: float, noise: float, order: float) -> float:
    """The same for other orders: two series, of the two sides of the point where the densities with
    and without a row are equal. Their terms change their sign, but decrease fast."""
    middle = noise**2 * math.log(1 / rate - 1) + 0.5
    k = np.arange(TERMS)
    signs, log_binomial = _signed_log_binomial(order, k)
    rest = order - k
    half = math.log(0.5)
    left = (
        log_binomial + k * math.log(rate) + rest * math.log1p(-rate)
        + (k * k - k) / (2 * noise**2)
        + half + _log_erfc((k - middle) / (math.sqrt(2) * noise))
    )  # fmt: skip
    right = (
        log_binomial + rest * math.log(rate) + k * math.log1p(-rate)
        + (rest * rest - rest) / (2 * noise**2)
        + half + _log_erfc((middle - rest) / (math.sqrt(2) * noise))
    )  # fmt: skip
    largest = float(max(left.max(), right.max()))
    total = float((signs * (np.exp(left - largest) + np.exp(right - largest))).sum())
    return largest + math.log(total)


def _log_binomial(n: float, k: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _signed_log_binomial(n: float, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Signs and logarithms of the coefficients n over k, for an n that is not whole."""
    factors = (n - k[:-1]) / (k[:-1] + 1)
    signs = np.concatenate([[1.0], np.cumprod(np.sign(factors))])
    return signs, np.concatenate([[0.0], np.cumsum(np.log(np.abs(factors)))])


def _log_erfc(x: np.ndarray) -> np.ndarray:
    return np.asarray(math.log(2) + log_ndtr(-x * math.sqrt(2)))


def renyi_of_training(rate: float, noise: float, steps: int, orders: np.ndarray) -> np.ndarray:
    """What all steps of DP-SGD spend at each order."""
    return steps * np.array([renyi_of_sampled_gaussian(rate, noise, order) for order in orders])


def epsilon_of_training(
    rho: float, rate: float, noise: float, steps: int, delta: float, orders: np.ndarray = ORDERS
) -> float:
    """The epsilon of answers that spend rho and of steps of DP-SGD together."""
    spent = rho * orders + renyi_of_training(rate, noise, steps, orders)
    return epsilon_of_renyi(spent, orders, delta)


def noise_of_training(rho: float, rate: float, steps: int, epsilon: float, delta: float) -> float:
    """The least noise with which answers that spend rho and the steps keep to epsilon."""

    def excess(log_noise: float) -> float:
        spent = epsilon_of_training(rho, rate, math.exp(log_noise), steps, delta, WHOLE_ORDERS)
        return spent - epsilon

    low, high = math.log(0.3), math.log(MOST_NOISE)
    if excess(low) <= 0:
        return math.exp(low)
    found = math.exp(brentq(excess, low, high, xtol=1e-4))
    while epsilon_of_training(rho, rate, found, steps, delta, WHOLE_ORDERS) > epsilon:
        found *= 1.0005  # the root is found up to a tolerance, which must not be on the wrong side
    return float(found)
