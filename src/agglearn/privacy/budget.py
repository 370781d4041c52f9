"""What may be spent on a release, and how: every default and bound, in one place."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agglearn.errors import InputError
from agglearn.runtime.options import at_least
from agglearn.runtime.speech import option

if TYPE_CHECKING:
    from agglearn.schema.schema import Schema

MECHANISMS = ("gaussian", "laplace")
CELLS = ("all", "common")
_LEAST, _MOST, _LEAST_DELTA = 1e-4, 1000.0, 1e-18  # what can be reckoned, and means something
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
        for name, value, least in (("epsilon", self.epsilon, _LEAST), ("rho", self.rho, _LEAST**2)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{option(name, f'{value:g}')} must be a number above 0")
            if value is not None and not least <= value <= _MOST:
                raise InputError(
                    f"{option(name, f'{value:g}')} is not between {least:g} and {_MOST:g}: less drowns "
                    "everything in noise, more protects nobody"
                )
        if self.rho is not None and self.mechanism != "gaussian":
            raise InputError(f"{option('rho')} is a budget for Gaussian noise only")
        if self.delta is not None and not 0 <= self.delta < 1:
            raise InputError(f"{option('delta', f'{self.delta:g}')} must be at least 0 and below 1")
        if self.delta and self.delta < _LEAST_DELTA:
            raise InputError(
                f"{option('delta', f'{self.delta:g}')} is too small: {_LEAST_DELTA:g} is the least"
            )
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


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions(Budget):
    """How a release is made private; what may be spent stands in :class:`Budget`.

    Attributes
    ----------
    epsilon, delta, rho, mechanism, max_records
        What may be spent.
    person
        The column that says whose a record is; without it the promise is for one record.
    public
        A public schema, or the path of one: what is known of the columns without the records.
    assume_public_schema
        Whether to take a schema that was learnt from the records for public; the file then says so.
    bounds
        Public bounds of numeric columns.
    schema_share
        The share of the budget for bins and vocabularies, where they are to be paid for.
    cells
        ``all`` cells get noise and are released, or only ``common`` ones: those of a noisy count above a
        threshold that takes a tenth of δ. For tables with far more cells than records.
    total_epsilon
        The most that all releases of the same records may spend together.
    ledger
        The file where that is written down; by default beside the records, where they are a file.
    processes
        How many draw noise side by side; one for each core by default.
    """

    person: str | None = None
    public: Schema | str | os.PathLike[str] | None = None
    assume_public_schema: bool = False
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    schema_share: float = 0.1
    cells: str = CELLS[0]
    total_epsilon: float | None = None
    ledger: str | os.PathLike[str] | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", dict(self.bounds or {}))
        if self.public is not None and self.assume_public_schema:
            told = option("assume_public_schema")
            raise InputError(f"{option('public')} says what is public, so that {told} has nothing to assume")
        if not 0 < self.schema_share < 1:
            told = option("schema_share", f"{self.schema_share:g}")
            raise InputError(f"{told} must be between 0 and 1")
        at_least(1, processes=self.processes)
        if self.bounds and self.assume_public_schema:
            told = option("assume_public_schema")
            raise InputError(f"{option('bounds')} are for columns that are paid for: {told} learns them")
        if self.cells not in CELLS:
            raise InputError(f"{option('cells', repr(self.cells))} is not {' or '.join(CELLS)}")
        if self.cells == "common" and self.mechanism != "gaussian":
            raise InputError(f"{option('cells', 'common')} is for Gaussian noise only")
        if self.total_epsilon is not None and not self.total_epsilon > 0:
            raise InputError(f"{option('total_epsilon', f'{self.total_epsilon:g}')} must be above 0")

    @property
    def unit(self) -> str:
        """Whose privacy it is."""
        return "record" if self.person is None else "person"
