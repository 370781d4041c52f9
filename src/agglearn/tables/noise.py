"""The noise that was put on tables before they were given away.

Noise is drawn for each of the numbers that were released, and these are of two kinds (:data:`ADDED_TO`):

- ``numbers``: each count of records and each sum of a label, as they stand in the table;
- ``classes``: the negatives and the positives of each label. A record is one or the other, so it moves half
  as many numbers. What a table then holds is put together from them: with a⁻ₖ, a⁺ₖ the noisy negatives and
  positives of label k of K, the count is the mean over labels of a⁻ₖ + a⁺ₖ, and a sum is half of the count
  plus a⁺ₖ − a⁻ₖ. One label: count = a⁻ + a⁺, sum = a⁺.

:meth:`Noise.moments` says what either means for the numbers of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError

# Standard deviations in units of the scale. Random rounding to a multiple of B takes one of its neighbours by
# a draw: B² r(1 − r), which is B²/6 in the mean over remainders r. "mixed" is a sum of several laws.
_SIGMA = {
    "gaussian": 1.0,
    "laplace": 2**0.5,
    "rounding": 3**-0.5,
    "random-rounding": 6**-0.5,
    "mixed": 1.0,
}
NOISE_LAWS = tuple(_SIGMA)
ADDED_TO = ("numbers", "classes")


@dataclass(frozen=True)
class Moments:
    """Variances of the noise in one cell: of the count, of a sum, and the covariance of the two."""

    count: float
    sum: float
    covariance: float

    def of_rate(self, rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Variance of what noise adds to c − d·q, for cells with rates q."""
        return np.asarray(self.sum + self.count * rates**2 - 2 * self.covariance * rates)

    def times(self, cells: float) -> Moments:
        """The same of a sum of so many cells."""
        return Moments(cells * self.count, cells * self.sum, cells * self.covariance)


@dataclass(frozen=True)
class Noise:
    """The noise that was added to each number of a table.

    Attributes
    ----------
    law
        One of :data:`NOISE_LAWS`.
    scale
        The standard deviation of a Gaussian or of a mixed noise, the scale b of a Laplace law, the largest
        error of a rounding (2.5 where numbers are multiples of 5), the base of a random rounding.
    of
        What it was added to: ``numbers`` or ``classes``.
    """

    law: str
    scale: float
    of: str = "numbers"

    def __post_init__(self) -> None:
        if self.law not in NOISE_LAWS or not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(
                f"noise {self.law}:{self.scale:g} is not one of {', '.join(NOISE_LAWS)} with a scale "
                "above 0, such as gaussian:17"
            )
        if self.of not in ADDED_TO:
            raise InputError(f"noise can be of {' or '.join(ADDED_TO)}, and not of {self.of!r}")

    @classmethod
    def parse(cls, text: str) -> Noise:
        """Read ``LAW:SCALE`` or ``LAW:SCALE:classes``, such as ``gaussian:17``.

        ``rounding-to:5`` is ``rounding:2.5``.
        """
        law, _, rest = text.partition(":")
        written, _, of = rest.partition(":")
        try:
            scale = float(written)
        except ValueError:
            raise InputError(f"noise {text!r} is not LAW:SCALE, such as gaussian:17") from None
        if law == "rounding-to":
            return cls("rounding", scale / 2, of or "numbers")
        return cls(law, scale, of or "numbers")

    @property
    def sigma(self) -> float:
        """The standard deviation of each number that noise was drawn for."""
        return float(self.scale * _SIGMA[self.law])

    def moments(self, labels: int = 1) -> Moments:
        """What it does to the numbers of a table with so many labels."""
        variance = self.sigma**2
        if self.of == "numbers":
            return Moments(variance, variance, 0.0)
        return Moments(2 * variance / labels, variance * (1 + 1 / labels) / 2, variance / labels)

    def apart(self, counts: npt.NDArray[Any], sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """A table's numbers as as many others whose noises are independent, of the same variance σ² each.

        A leading axis: something of the count, then something of each label.
        """
        if self.of == "numbers":
            return np.concatenate([counts[None], sums]).astype(np.float64)
        of_counts = counts[None] * np.sqrt(len(sums) / 2)
        return np.concatenate([of_counts, (2 * sums - counts) / np.sqrt(2)])

    def __str__(self) -> str:
        return f"{self.law}:{self.scale:g}" + ("" if self.of == "numbers" else f":{self.of}")


def noise_of_sum(a: Noise, b: Noise) -> Noise | None:
    """The noise on the sum of two numbers that each have one; None where they cannot be told as one."""
    if a.of != b.of:
        return None
    if a.law == b.law == "gaussian":
        return Noise("gaussian", float(np.hypot(a.scale, b.scale)), a.of)
    return Noise("mixed", float(np.hypot(a.sigma, b.sigma)), a.of)
