"""The field itself: π(x,y) ∝ exp(Σ_k φ_k(x)(μ_k + yθ_k) + yθ₀), as one value.

Where the tables of X show nothing of the label (:mod:`agglearn.train.law`) it is apart: π(x) ∝ exp(φ(x)·μ).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.rounding import Singles, rounded
from agglearn.field.kernels.score import Codes, score_codes
from agglearn.field.layout import Layout

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Field:
    """Weights over a layout.

    Attributes
    ----------
    layout
        Features, tables and the order of the cells.
    mu, theta
        Of each cell its weight in the law of X, and what a positive label adds to it.
    intercept
        θ₀: the log-odds of a record that no table says anything of.
    apart
        Whether X follows exp(φ(x)·μ) alone and the label follows X, instead of both following one law
        π(x, y). P(Y|x) is the same function of θ either way.
    """

    layout: Layout
    mu: Floats
    theta: Floats
    intercept: float
    apart: bool = False

    def log_odds(self, codes: Codes, threads: int = 1) -> Floats:
        """φ(x)·θ + θ₀ of coded records (a row per feature); unknown values add nothing."""
        return score_codes(codes, self.layout, self.theta, self.intercept, threads)

    def rounded(self, mu: Singles | None = None) -> Rounded:
        """The same field as chains see it; with its μ, where that has been rounded already."""
        mu = rounded(self.mu) if mu is None else mu
        return Rounded(self.layout, mu, rounded(self.theta), self.intercept, self.apart)


@dataclass(frozen=True, eq=False)
class Rounded:
    """A field whose weights are rounded: what chains move by and are labelled by.

    The rounding (:mod:`.kernels.rounding`) moves a log-odds of hundreds of tables by 10⁻⁴, nothing beside
    the noise of any number of chains; a sweep reads half the bytes, and a cluster is sent a quarter of them.
    The weights that a fit steps on and that a model keeps have all their bits.
    """

    layout: Layout
    mu: Singles
    theta: Singles
    intercept: float
    apart: bool = False

    def log_odds(self, codes: Codes, threads: int = 1) -> Floats:
        """φ(x)·θ + θ₀ of coded records, summed in 64 bits."""
        return score_codes(codes, self.layout, self.theta, self.intercept, threads)

    def rounded(self, mu: Singles | None = None) -> Rounded:
        """This field."""
        return self
