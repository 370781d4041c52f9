"""What whoever made the tables says of their numbers, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agglearn.aggregation.groups import Groups
from agglearn.errors import InputError
from agglearn.records.learn import ColumnNote
from agglearn.runtime.options import check_bounds
from agglearn.runtime.speech import option
from agglearn.schema.schema import Schema
from agglearn.tables.data import ABSENT, AggregatedData
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table


@dataclass(frozen=True)
class Received:
    """What files gave.

    Attributes
    ----------
    data
        The tables.
    notes
        What was decided about each feature, where no schema was given.
    unknown
        For each feature with values it has no modality for, how many records had one.
    """

    data: AggregatedData
    notes: list[ColumnNote]
    unknown: dict[str, float]


@dataclass(frozen=True)
class Release:
    """What whoever made the tables says of them.

    Attributes
    ----------
    noise
        The law of the noise on each number, if any.
    floor
        Cells with fewer records than this were withheld.
    absent
        What a cell without a row means: ``zero``, ``suppressed`` or ``unmeasured``. By default
        suppressed where there is a floor, else zero.
    rows, positives
        How many records there are, and how many positive ones for each label; made out from the tables
        by default.
    """

    noise: Noise | None = None
    floor: float | None = None
    absent: str | None = None
    rows: float | None = None
    positives: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name, value in (("floor", self.floor), ("rows", self.rows)):
            if value is not None and not (np.isfinite(value) and value > 0):
                raise InputError(f"{name} {value:g} must be above 0")
        check_bounds(floor=self.floor, rows=self.rows)
        if self.absent is not None and self.absent not in ABSENT:
            raise InputError(f"{option('absent', repr(self.absent))} is not one of {', '.join(ABSENT)}")
        if self.absent == "zero" and self.floor is not None:
            raise InputError("a cell without a row cannot mean zero where there is a floor")

    @property
    def meaning(self) -> str:
        """What a cell without a row means."""
        return self.absent or ("zero" if self.floor is None else "suppressed")

    def assemble(self, schema: Schema, groups: Iterable[Groups]) -> AggregatedData:
        """The tables as one collection."""
        zero = self.meaning == "zero"
        tables = {g.scope: g.table(self.noise, absent_is_zero=zero) for g in groups}
        totals = self._totals(list(tables.values()))
        positives = tuple(totals[1:]) if self.positives is None else tuple(self.positives)
        if len(positives) != len(schema.labels):
            raise InputError(
                f"{len(positives)} numbers of positives were given for {len(schema.labels)} labels"
            )
        return AggregatedData(
            schema=schema,
            tables=tables,
            rows=totals[0] if self.rows is None else self.rows,
            positives=positives,
            absent=self.meaning,
            floor=self.floor,
        )

    def _totals(self, tables: Sequence[Table]) -> list[float]:
        """Records, then positives of each label.

        Tables of the lowest order have the fewest cells, so the least noise and the least withheld: their
        median, or their greatest where suppression only ever takes away.
        """
        order = min(len(t.features) for t in tables)
        lowest = [t for t in tables if len(t.features) == order]
        totals = [
            [float(t.counts.sum() + t.unknown[0]) for t in lowest],
            *(
                [float(t.sums[k].sum() + t.unknown[1 + k]) for t in lowest]
                for k in range(len(tables[0].sums))
            ),
        ]
        takes_away = self.noise is None and self.meaning != "zero"
        found = [max(values) if takes_away else float(np.median(values)) for values in totals]
        exact = all(t.exact for t in tables)
        return [round(value) for value in found] if exact else found
