"""What every engine of the field offers to the training loop.

An engine keeps the chains (or, the exact one, the whole distribution) and answers one question at
given weights: how many examples, and how many positive ones, does the field expect in each cell?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout

Floats = npt.NDArray[np.float64]
State = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Expectation:
    """The field's expected aggregates, scaled to the number of rows of the data.

    Attributes
    ----------
    d
        Expected examples in each cell.
    c
        Expected sum of the label in each cell.
    positives
        Expected sum of the label over all rows.
    info
        Diagnostics of the move, such as ``moves`` (share of values that changed) and
        ``acceptance`` (share of Metropolis proposals accepted).
    """

    d: Floats
    c: Floats
    positives: float
    info: dict[str, float]


class Engine(Protocol):
    """Expectations of the field π(x,y) ∝ exp(Σ_k φ_k(x)(μ_k + yθ_k) + yθ₀)."""

    layout: Layout

    def expect(self, mu: Floats, theta: Floats, intercept: float, iteration: int) -> Expectation:
        """Move the chains one sweep at these weights, then tally them."""
        ...

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to go on bit for bit from here."""
        ...

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave."""
        ...
