"""The old ways: cells withheld, numbers rounded. They promise nothing, and the fit knows them as noise.

Negatives and positives are rounded apart, so that no cell has more positives than records. Withheld are cells
by their true counts, before anything is rounded; totals are those of the rounded tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agglearn.errors import InputError
from agglearn.privacy.classes import Ints
from agglearn.privacy.release import noisy_by, with_every_cell
from agglearn.runtime.options import at_least
from agglearn.runtime.speech import option
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise


@dataclass(frozen=True, kw_only=True)
class Coarsening:
    """How tables are made coarser.

    Attributes
    ----------
    min_count
        Cells with fewer records are withheld.
    round_to
        Each number becomes the nearest multiple of this.
    random_round
        Each number becomes one of the two multiples of this around it, by a draw that is right in the mean.
    """

    min_count: int | None = None
    round_to: int | None = None
    random_round: int | None = None

    def __post_init__(self) -> None:
        at_least(2, "small", round_to=self.round_to, random_round=self.random_round)
        at_least(1, "small", min_count=self.min_count)
        if self.round_to is not None and self.random_round is not None:
            raise InputError(f"{option('round_to')} and {option('random_round')} exclude one another")

    def __bool__(self) -> bool:
        return not (self.min_count is self.round_to is self.random_round is None)

    def refuse_beside_noise(self) -> None:
        """Withholding or rounding true counts tells of them, whatever noise comes on top."""
        for name in ("min_count", "round_to", "random_round"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"{option(name)} looks at the true counts, and would break what private tables promise: "
                    f"leave it out, or {option('epsilon')}"
                )


def coarsened(data: AggregatedData, how: Coarsening) -> AggregatedData:
    """Exact tables made coarser."""
    data = with_every_cell(data)
    true = {scope: table.counts for scope, table in data.tables.items()}
    if how.round_to is not None:
        base = how.round_to
        data = noisy_by(data, Noise("rounding", base / 2, "classes"), lambda numbers: _nearest(numbers, base))
    elif how.random_round is not None:
        base = how.random_round
        # Drawn afresh each time, from the system: nobody can draw them again.
        rng = np.random.default_rng()
        law = Noise("random-rounding", float(base), "classes")
        data = noisy_by(data, law, lambda numbers: _at_random(numbers, base, rng))
    if how.min_count is None:
        return data
    floor = how.min_count
    tables = {}
    for scope, table in data.tables.items():
        seen = true[scope] >= floor
        counts, sums = np.where(seen, table.counts, 0), np.where(seen, table.sums, 0)
        tables[scope] = replace(table, counts=counts, sums=sums, measured=None if seen.all() else seen)
    return replace(data, tables=tables, absent="suppressed", floor=float(floor))


def _nearest(numbers: Ints, base: int) -> Ints:
    """The nearest multiple; from the middle upward."""
    found: Ints = (2 * numbers + base) // (2 * base) * base
    return found


def _at_random(numbers: Ints, base: int, rng: np.random.Generator) -> Ints:
    low, rest = np.divmod(numbers, base)
    return (low + (rng.integers(0, base, numbers.shape) < rest)) * base
