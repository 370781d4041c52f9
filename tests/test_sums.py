"""Sums do not depend on the order of what is summed."""

from __future__ import annotations

from fractions import Fraction
from math import fsum

import numpy as np
import pytest

from agglearn.field.sums import exact_sum, grid, on_grid


def _values(kind: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    if kind == "normal":
        return rng.normal(size=100_003)
    if kind == "of all sizes":
        return rng.normal(size=3000) * 10.0 ** rng.integers(-307, 307, 3000)
    if kind == "next to nothing":
        return np.array([5e-324, 5e-324, -5e-324, 2.3e-308, 0.0, -0.0])
    return np.array([1e308, 1.0, -1e308, 2.0**-60])


@pytest.mark.parametrize("kind", ["normal", "of all sizes", "next to nothing", "that cancel"])
def test_a_sum_is_that_of_the_fractions_and_of_any_parts(kind: str) -> None:
    values = _values(kind)
    found = exact_sum(values)
    assert float(found) == fsum(values)
    assert found == sum(Fraction(v) for v in values.tolist())
    assert found == sum(exact_sum(part) for part in np.array_split(values[::-1], 7) if part.size)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_sums_of_values_on_a_grid_are_exact_and_near_the_values(scale: float) -> None:
    values = _values("normal") * scale
    largest = float(np.abs(values).max())
    rounded = on_grid(values, grid(largest, values.size))
    assert np.cumsum(rounded)[-1] == np.cumsum(rounded[::-1])[-1] == float(exact_sum(rounded))
    # half a unit: 2⁻⁵³ of what the sum could be at most, doubled twice by rounding up to powers of two
    assert np.abs(rounded - values).max() <= largest * values.size * 2.0**-51


def test_nothing_but_zeros_stays_zero() -> None:
    assert on_grid(np.zeros(3), grid(0.0, 3)).tolist() == [0.0, 0.0, 0.0]
    assert exact_sum(np.zeros(0)) == 0
