"""Two ratios that bring an estimate to what was measured: of what every run takes, and of what grows with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 50.0
"""Bound of both ratios; its inverse is the lower bound."""
NEAREST = 16
"""Number of measurements that count: those of the most similar amount of work."""
_BUILT_IN = 0.1
"""Weight of the estimate itself, relative to a measurement: it decides where measurements do not."""


@dataclass(frozen=True)
class AffineEstimate:
    """An estimate in two parts of the same unit: what every run takes, and what grows with the data."""

    start: float
    work: float

    @property
    def sum(self) -> float:
        return self.start + self.work


def fitted(now: AffineEstimate, before: Sequence[tuple[AffineEstimate, float]]) -> float:
    """Calibrate an estimate by measurements.

    The ratios s of the start and r of the work have the least sum of |log((s start + r work) / measured)|: as with a
    median, single odd measurements do not move it. A measurement of twice or half the work counts half, and so on.

    Args:
        now: the estimate.
        before: estimates of other runs, with what was measured.
    """
    used = [(parts, measured) for parts, measured in before if measured > 0 and parts.sum > 0]
    used.sort(key=lambda each: _distance(each[0], now))
    used = used[:NEAREST]
    if not used:
        return now.sum
    start = np.array([parts.start for parts, _ in used])
    work = np.array([parts.work for parts, _ in used])
    measured = np.array([value for _, value in used])
    weight = np.array([1 / (1 + _distance(parts, now)) for parts, _ in used])
    ratios = _candidates(start, work, measured)
    errors = np.abs(np.log((ratios[:, :1] * start + ratios[:, 1:] * work) / measured))
    away = np.abs(np.log(ratios))
    drift = away.max(axis=1) + away.min(axis=1) / 4  # both by one factor, as of a slower machine, is likely
    best = ratios[np.argmin(errors @ weight + _BUILT_IN * drift)]
    return float(best[0] * now.start + best[1] * now.work)


def _distance(parts: AffineEstimate, other: AffineEstimate) -> float:
    """Doublings between two amounts of work."""
    return float(abs(np.log2((parts.sum + parts.start) / (other.sum + other.start)))) if other.sum > 0 else 0.0


def _candidates(
    start: NDArray[np.float64], work: NDArray[np.float64], measured: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Pairs of ratios `[n, 2]` among which the best is looked for: where two errors are nothing.

    An error is nothing on a line of the plane (s, r); s = 1, r = 1 and s = r are lines as well.
    """
    a, b = np.append(start, [1.0, 0.0, 1.0]), np.append(work, [0.0, 1.0, -1.0])
    c = np.append(measured, [1.0, 1.0, 0.0])
    first, second = np.triu_indices(len(c), 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        determinant = a[first] * b[second] - a[second] * b[first]
        s = (c[first] * b[second] - c[second] * b[first]) / determinant
        r = (a[first] * c[second] - a[second] * c[first]) / determinant
        ratios = np.stack([s, r], axis=1)
        inside = np.isfinite(ratios).all(axis=1) & (ratios >= 1 / MOST).all(axis=1) & (ratios <= MOST).all(axis=1)
    return np.concatenate([ratios[inside], [[1.0, 1.0]]])
