"""What may be spent on a release, and how: every default and bound, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agglearn.errors import InputError
from agglearn.runtime.options import at_least
from agglearn.runtime.speech import option

MECHANISMS = ("gaussian", "laplace")
_USUAL_DELTA = 1e-6  # what a promise in ρ is told for, where nobody says


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one release may tell about anyone.

    Attributes
    ----------
    epsilon, delta
        The promise: with or without one record (or person) the probability of anything that can be seen
        changes by a factor of at most exp(ε), but for δ.
    rho
        Instead of ε: ρ of zero-concentrated privacy, by OpenDP's own accounting; Gaussian noise only.
    mechanism
        ``gaussian`` or ``laplace``. A Laplace law can do without δ, and costs more noise with many tables.
    max_records
        The most records that anyone has among those released.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mechanism: str = "gaussian"
    max_records: int = 1

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            told = option("mechanism", repr(self.mechanism))
            raise InputError(f"{told} is not {' or '.join(MECHANISMS)}")
        if (self.epsilon is None) == (self.rho is None):
            raise InputError(f"say how much may be spent: {option('epsilon')}, or {option('rho')}, not both")
        for name, value in (("epsilon", self.epsilon), ("rho", self.rho)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{option(name, f'{value:g}')} must be a number above 0")
        if self.rho is not None and self.mechanism != "gaussian":
            raise InputError(f"{option('rho')} is a budget for Gaussian noise only")
        if self.delta is not None and not 0 <= self.delta < 1:
            raise InputError(f"{option('delta', f'{self.delta:g}')} must be at least 0 and below 1")
        if self.epsilon is not None and self.mechanism == "gaussian" and not self.delta:
            raise InputError(
                f"Gaussian noise needs {option('delta')} above 0, far below one in the number of records, "
                f"such as 1e-6 (a Laplace law does without: {option('mechanism', 'laplace')})"
            )
        at_least(1, max_records=self.max_records)

    @property
    def told_delta(self) -> float:
        """The δ that the promise is told for."""
        if self.delta is not None:
            return self.delta
        return 0.0 if self.rho is None else _USUAL_DELTA

    def check_records(self, rows: float) -> None:
        """Refuse a δ that would allow to publish a few records as they are."""
        if rows > 0 and self.told_delta >= 1 / rows:
            raise InputError(
                f"{option('delta', f'{self.told_delta:g}')} is not below one in the number of records "
                f"(1/n = {1 / rows:.2g}): it would allow to give some of them away; choose a hundredth of it"
            )
