"""Conjugate gradients whose every sum is taken in one order.

BLAS splits the dot product of two long vectors among as many threads as the machine has: the last bits change
with their number, and on a busy machine the threads wait for each other many times longer than they add.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def solve(
    product: Callable[[Floats], Floats], right: Floats, diagonal: Floats, *, steps: int, tolerance: float
) -> Floats:
    """Solve A·v = b for a symmetric positive A, from v = 0.

    Parameters
    ----------
    product
        Gives A·v in an array of its own.
    right
        b.
    diagonal
        About the diagonal of A, by which the steps are scaled.
    steps, tolerance
        Stop after so many steps, or where ‖b − A·v‖ is so small beside ‖b‖.
    """
    found, residual = np.zeros_like(right), right.copy()
    small = tolerance**2 * _dot(right, right)
    direction, along = np.zeros_like(right), 1.0
    for _ in range(steps):
        if _dot(residual, residual) <= small:
            break
        scaled = residual / diagonal
        before, along = along, _dot(residual, scaled)
        direction *= along / before
        direction += scaled
        image = product(direction)
        length = along / _dot(direction, image)
        found += length * direction
        residual -= length * image
    return found


def _dot(a: Floats, b: Floats) -> float:
    return float(np.einsum("i,i", a, b))
