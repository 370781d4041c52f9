# mypy: disallow-untyped-decorators=False
"""Weights as chains see them: multiples of 2⁻¹⁶, which 32 bits hold and few bytes carry.

On its way between machines a weight is its number of such steps, folded so that small ones of either sign are
small numbers (0, −1, 1, −2, 2 … are 0, 1, 2, 3, 4 …): their upper bytes are zeros, and left out
(:mod:`.packed`).
"""

from __future__ import annotations

from math import floor

import numpy as np
import numpy.typing as npt

from agglearn.runtime.compiled import njit

Singles = npt.NDArray[np.float32]

STEP = 2.0**-16
LARGEST = 2.0**13
"""A weight of which e to the power is 0 or beyond all numbers, whatever else a score adds up."""


def rounded(weights: npt.NDArray[np.floating]) -> Singles:
    """The nearest multiples of :data:`STEP`."""
    found = np.empty(weights.size, np.float32)
    _round(weights, found)
    return found


def folded(weights: Singles) -> npt.NDArray[np.uint32]:
    """Rounded weights as numbers of steps."""
    found = np.empty(weights.size, np.uint32)
    _fold(weights, found)
    return found


def unfolded(steps: npt.NDArray[np.uint32]) -> Singles:
    """The weights again."""
    found = np.empty(steps.size, np.float32)
    _unfold(steps, found)
    return found


@njit(nogil=True)
def _round(weights, found):  # type: ignore[no-untyped-def]
    for k in range(weights.size):
        near = min(max(weights[k], -LARGEST), LARGEST)
        found[k] = floor(near / STEP + 0.5) * STEP


@njit(nogil=True)
def _fold(weights, found):  # type: ignore[no-untyped-def]
    for k in range(weights.size):
        steps = np.int32(weights[k] / STEP)
        found[k] = np.uint32((steps << np.int32(1)) ^ (steps >> np.int32(31)))


@njit(nogil=True)
def _unfold(steps, found):  # type: ignore[no-untyped-def]
    for k in range(steps.size):
        sign = -np.int32(steps[k] & np.uint32(1))
        found[k] = (np.int32(steps[k] >> np.uint32(1)) ^ sign) * STEP
