"""Conjugate gradients whose every sum is taken in one order.

BLAS splits the dot product of two long vectors among as many threads as the machine has: the last bits change
with their number, and on a busy machine the threads wait for each other many times longer than they add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def solve(
    product: Callable[[Array], Array],
    right: Array,
    diagonal: Array | Callable[[Array], Array],
    *,
    steps: int,
    tolerance: float,
    dot: Callable[[Array, Array], Any] | None = None,
) -> Array:
    """Solve A·v = b for a symmetric positive A, from v = 0.

    Parameters
    ----------
    product
        Gives A·v in an array of its own.
    right
        b; or several of them, a column each, that are solved side by side and stop each on its own.
    diagonal
        About the diagonal of A, by which the steps are scaled; or what gives about A⁻¹ times a residual.
    steps, tolerance
        Stop after so many steps, or where ‖b − A·v‖ is so small beside ‖b‖, both measured by the diagonal.
    dot
        Inner products of columns; by default a sum in order.
    """
    inner = dot or _dot
    kind = right.dtype.type
    scale = diagonal if callable(diagonal) else lambda residual: residual / diagonal
    found, residual = np.zeros_like(right), right.copy()
    direction = scale(residual)
    along = inner(residual, direction)
    enough = tolerance**2 * along
    for _ in range(steps):
        going = along > enough
        if not np.any(going):
            break
        image = product(direction)
        bend = inner(direction, image)
        going = going & (bend > 0)  # rounding may bend a singular A the wrong way: there it ends
        if not np.any(going):
            break
        length = np.divide(along, bend, out=np.zeros_like(along), where=going)
        found += length.astype(kind) * direction
        residual -= length.astype(kind) * image
        scaled = scale(residual)
        before, along = along, np.where(going, inner(residual, scaled), 0.0)
        direction *= np.divide(along, before, out=np.zeros_like(along), where=going).astype(kind)
        direction += scaled
    return found


def _dot(a: Array, b: Array) -> Any:
    """A sum for each column, in the order of the rows."""
    return np.asarray(np.einsum("i...,i...->...", a, b, dtype=np.float64))
