"""How a field is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from agglearn.errors import InputError

Penalty = float | Literal["auto"] | None

_GRADIENTS = ("rescaled", "plain")
_STARTS = ("tree", "independent")
_ENGINES = ("local", "exact")
_LAMBDA_MU = 0.1


@dataclass(frozen=True)
class FitSettings:
    """How a field is fitted. The defaults need no tuning on real data.

    Attributes
    ----------
    lambda_theta, lambda_mu
        Penalties on θ, and on how far μ goes from its start. ``"auto"`` chooses on held-out tables
        (:mod:`.choose`), where there are some. None, or ``"auto"`` without such tables, finds λ_θ by a rule
        while training (:mod:`.penalty`), and takes 0.1 for λ_μ; where λ_θ is chosen, λ_μ is chosen with it
        unless it is a number.
    iterations
        The most iterations.
    chains
        Number of chains of the local engine; None chooses by the number of records.
    growth
        The chains start as one ``growth``-th of their number and double every few iterations.
    step_mu
        Length of a step on μ, in units of 1/tables.
    first_step_theta, step_theta
        The same on θ: it starts at the first and shrinks like 1/iteration down to the second.
    rate_memory
        How much the past counts, iteration by iteration, in the rates p̂ that the rescaled gradient
        compares; 0 takes those of the last sweep alone.
    gradient
        ``rescaled`` compares rates of positives, ``plain`` is the likelihood's own gradient.
    preconditioned
        Whether each weight's step is divided by its own curvature.
    marginal_label
        Whether ĉ sums the label out of each chain, rather than use the drawn label.
    start
        ``tree`` or ``independent``.
    averaging
        Whether the weights kept are an average over iterations, rather than the last ones.
    engine
        ``local`` or ``exact``.
    exact_up_to, proposals
        Features with more modalities than this are drawn by so many Metropolis proposals.
    tolerance
        Training stops when the predicted log-odds move by less than this (root mean square over the
        chains) between two looks, ten iterations apart.
    seed
        Seed of the chains.
    """

    lambda_theta: Penalty = None
    lambda_mu: Penalty = None
    iterations: int = 500
    chains: int | None = None
    growth: int = 4
    step_mu: float = 8.0
    step_theta: float = 0.5
    first_step_theta: float = 8.0
    rate_memory: float = 0.8
    gradient: str = "rescaled"
    preconditioned: bool = True
    marginal_label: bool = True
    start: str = "tree"
    averaging: bool = True
    engine: str = "local"
    exact_up_to: int = 100
    proposals: int = 2
    tolerance: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("gradient", _GRADIENTS), ("start", _STARTS), ("engine", _ENGINES)):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} {getattr(self, name)!r} is not one of {', '.join(allowed)}")
        least: dict[str, float] = {
            "lambda_theta": 0,
            "lambda_mu": 0,
            "iterations": 1,
            "growth": 1,
            "exact_up_to": 1,
            "proposals": 1,
            "tolerance": 0,
            "seed": 0,
        }
        for name, bound in least.items():
            value = getattr(self, name)
            if name.startswith("lambda") and (value is None or value == "auto"):
                continue
            if isinstance(value, str):
                raise InputError(f"{name.replace('_', '-')} {value!r} is neither a number nor auto")
            if not (np.isfinite(value) and value >= bound):
                raise InputError(f"{name.replace('_', '-')} {value} must be at least {bound:g}")
        for name in ("step_mu", "step_theta", "first_step_theta"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name.replace('_', '-')} {getattr(self, name)} must be above 0")
        if not 0 <= self.rate_memory < 1:
            raise InputError(f"rate-memory {self.rate_memory} must be at least 0 and below 1")
        if self.chains is not None and self.chains < 2:
            raise InputError(f"chains {self.chains} must be at least 2")

    @property
    def to_choose(self) -> tuple[str, ...]:
        """The penalties to be chosen on held-out tables."""
        theta = self.lambda_theta == "auto"
        mu = self.lambda_mu == "auto" or (theta and self.lambda_mu is None)
        return ("lambda_theta",) * theta + ("lambda_mu",) * mu

    @property
    def fixed_theta(self) -> float | None:
        """λ_θ where it is given, None where the rule is to find it."""
        return self.lambda_theta if isinstance(self.lambda_theta, float | int) else None

    @property
    def fixed_mu(self) -> float:
        """λ_μ: as given, or the usual one."""
        return self.lambda_mu if isinstance(self.lambda_mu, float | int) else _LAMBDA_MU

    def n_chains(self, rows: float) -> int:
        """The number of chains for so many records."""
        if self.chains is not None:
            return self.chains
        return int(np.clip(rows / 3, 10_000, 1_000_000))
