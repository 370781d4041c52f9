# mypy: disallow-untyped-decorators=False
"""Sums that are the same in any order, so that values may be spread over machines.

A float64 is a whole number times a power of two. Two ways to keep additions of them exact:

- :func:`exact_sum` adds whole numbers, by exponent: nothing is lost, and one rounding at the end is all there
  is;
- where each cell of a table has a sum of its own, values are first rounded to multiples of one power of two
  (:func:`on_grid`), so large that no sum of so many of them outgrows the 53 bits of a float64. What that
  takes from a value is at most 2⁻⁵³ times their number of the largest one: 10⁻¹⁰ of it for a million.
"""

from __future__ import annotations

from fractions import Fraction
from math import frexp, ldexp

import numpy as np
import numpy.typing as npt

from agglearn.runtime.compiled import njit

Floats = npt.NDArray[np.float64]

_HALF = 26  # bits
_LEAST = -1074  # the exponent of the least float64


def exact_sum(values: Floats) -> Fraction:
    """The sum of finite values, exactly."""
    sums = np.zeros((2, 2047), np.int64)
    _add_by_exponent(np.ascontiguousarray(values).view(np.uint64), sums)
    total = 0
    for exponent in np.flatnonzero(sums.any(axis=0)).tolist():
        # Exponent 0 has no leading 1, and is worth what 1 is.
        low, high = sums[:, exponent].tolist()
        total += (low + (high << _HALF)) << max(exponent - 1, 0)
    return Fraction(total, 1 << -_LEAST)


@njit(nogil=True)
def _add_by_exponent(bits, sums):  # type: ignore[no-untyped-def]
    """Add up the lower and the upper halves of the mantissas, with their signs, by exponent."""
    for k in range(bits.size):
        exponent = (bits[k] >> np.uint64(52)) & np.uint64(0x7FF)
        mantissa = bits[k] & np.uint64(0xFFFFFFFFFFFFF)
        if exponent > 0:
            mantissa |= np.uint64(1) << np.uint64(52)
        sign = 1 - 2 * np.int64(bits[k] >> np.uint64(63))
        sums[0, exponent] += sign * np.int64(mantissa & np.uint64((1 << _HALF) - 1))
        sums[1, exponent] += sign * np.int64(mantissa >> np.uint64(_HALF))


def grid(largest: float, n: int) -> float:
    """A power of two such that sums of ``n`` multiples of it, none above ``largest``, are exact."""
    if not largest > 0:
        return 1.0
    return ldexp(1.0, max(frexp(largest)[1] + int(n - 1).bit_length() - 52, _LEAST + 1))


def on_grid(values: Floats, unit: float) -> Floats:
    """Values rounded to multiples of a power of two."""
    rounded: Floats = np.rint(values / unit) * unit
    return rounded
