"""What changed between two sets of tables: the records (X), and the rate of positives among them, apart.

Under no change both periods draw from one law. With n records, d in a cell, c of them positive, and p, q the
share and the rate of both periods together, the differences

    Δ = d_b/n_b − d_a/n_a,       variance  p(1 − p)(1/n_a + 1/n_b) + noise,
    Δ' = c_b/d_b − c_a/d_a,      variance  q(1 − q)(1/d_a + 1/d_b) + noise,

are told in standard errors. A table as a whole is judged by the sum of Δ²/variance (Pearson's, for X) over
its cells beside what chance gives it, as the normal deviate of that χ² (Wilson and Hilferty, 1931); cells
that hold next to nothing are put together first. Records of unequal weight count by the variance they carry.
A cell that was withheld in one period may have held anything below the floor: the least difference that
leaves is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.report.document import Block, Column, Document, Grid, Heading, Paragraph, number
from agglearn.report.finding import Finding
from agglearn.schema.growth import common_schema, new_values
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Table

Floats = npt.NDArray[np.float64]

_FEWEST = 5.0  # records expected in a cell, below which its χ² is far from one and it joins the others
_SHOWN = 10  # tables and cells that a person is shown
_KEPT = 50  # worst cells of either kind that are kept


@dataclass(frozen=True)
class TableDrift:
    """How a table changed.

    Attributes
    ----------
    features
        Of the table.
    records_z, label_z
        Of its records, and of its rates of positives: standard errors above what chance gives; None where
        no cell can be compared.
    moved
        Share of the records that would have to be in other cells.
    """

    features: tuple[str, ...]
    records_z: float | None
    label_z: float | None
    moved: float


@dataclass(frozen=True)
class CellDrift:
    """How a cell changed: a share of the records, or a rate of positives, in either period."""

    features: tuple[str, ...]
    values: tuple[str, ...]
    before: float
    after: float
    z: float


@dataclass(frozen=True)
class Drift(Finding):
    """What changed between two periods.

    Attributes
    ----------
    rows
        Records of either.
    label, rates, rate_z
        The label, its rate in either, and by how many standard errors that changed.
    tables
        Every table, the most changed first.
    records, labels
        The cells whose share of the records, and whose rate of positives, changed most.
    new
        Modalities that only the second has a code for.
    """

    rows: tuple[float, float]
    label: str
    rates: tuple[float, float]
    rate_z: float
    tables: tuple[TableDrift, ...]
    records: tuple[CellDrift, ...]
    labels: tuple[CellDrift, ...]
    new: dict[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return asdict(self)

    def document(self) -> Document:
        """What changed, in words and numbers."""
        return Document(
            title=f"{self.rows[0]:,.0f} records before, {self.rows[1]:,.0f} after",
            blocks=tuple(self._blocks()),
            data=self.to_json(),
        )

    def _blocks(self) -> Iterator[Block]:
        before, after = self.rates
        yield Paragraph(
            f"rate of {self.label}: {before:.4g} before, {after:.4g} after "
            f"({self.rate_z:+.1f} standard errors)"
        )
        if self.new:
            listed = "; ".join(f"{name}: {', '.join(values[:_SHOWN])}" for name, values in self.new.items())
            yield Paragraph(f"new values: {listed}")
        form = (number("records", "+.1f"), number("label", "+.1f"), number("moved", ".2%"))
        yield Grid(
            (Column("table"), *form),
            tuple((" × ".join(t.features), t.records_z, t.label_z, t.moved) for t in self.tables[:_SHOWN]),
            caption="tables, the most changed first, in standard errors beyond chance:",
        )
        for title, cells in (("share of the records", self.records), (f"rate of {self.label}", self.labels)):
            yield Heading(f"Where did the {title} change most?")
            columns = (
                Column("cell"),
                number("before", ".4g"),
                number("after", ".4g"),
                number("standard errors", "+.1f"),
            )
            rows = tuple((_title(c), c.before, c.after, c.z) for c in cells[:_SHOWN])
            yield Grid(columns, rows) if rows else Paragraph("no cell can be compared")


def _title(cell: CellDrift) -> str:
    return ", ".join(f"{f} = {v}" for f, v in zip(cell.features, cell.values, strict=True))


def drift(before: AggregatedData, after: AggregatedData, label: str | None = None) -> Drift:
    """Compare two aggregations of one lineage.

    Examples
    --------
    >>> import agglearn
    >>> a = agglearn.aggregate({"colour": ["red"] * 50 + ["blue"] * 50, "click": [0, 1] * 50}, "click")
    >>> b = agglearn.aggregate({"colour": ["red"] * 90 + ["blue"] * 10, "click": [0, 1] * 50}, "click",
    ...                        schema=a.schema)
    >>> found = agglearn.drift(a, b)
    >>> found.records[0].values, round(found.records[0].z, 1), found.rate_z
    (('red',), 6.2, 0.0)
    """
    schema = common_schema(before.schema, after.schema)
    new = new_values(before.schema, after.schema)
    k = before.label_index(label)
    a, b = before.aligned(schema), after.aligned(schema)
    shared = [scope for scope in a.tables if scope in b.tables]
    if not shared:
        raise TableError("the two aggregations have no table in common, so nothing can be compared")
    tables, records, labels = [], [], []
    for scope in shared:
        found = _Compared(a.tables[scope], b.tables[scope], k, (a.rows, b.rows), a.floor, b.floor)
        tables.append(found.table())
        records += found.cells(found.records, schema)
        labels += found.cells(found.labels, schema)
    rates = a.positives[k] / a.rows, b.positives[k] / b.rows
    rate = (a.positives[k] + b.positives[k]) / (a.rows + b.rows)
    error = np.sqrt(rate * (1 - rate) * (1 / a.rows + 1 / b.rows))
    return Drift(
        rows=(a.rows, b.rows),
        label=schema.label_names[k],
        rates=rates,
        rate_z=float((rates[1] - rates[0]) / error) if error > 0 else 0.0,
        tables=tuple(sorted(tables, key=lambda t: -max(t.records_z or -np.inf, t.label_z or -np.inf))),
        records=_worst(records),
        labels=_worst(labels),
        new=new,
    )


def _worst(cells: list[CellDrift]) -> tuple[CellDrift, ...]:
    return tuple(sorted(cells, key=lambda cell: -abs(cell.z))[:_KEPT])


@dataclass(frozen=True)
class _Change:
    """Values of cells in either period, the variance of their difference, and which can be compared."""

    before: Floats
    after: Floats
    gap: Floats
    variance: Floats
    told: npt.NDArray[np.bool_]

    @property
    def z(self) -> Floats:
        return np.divide(
            self.gap,
            np.sqrt(self.variance),
            out=np.zeros_like(self.gap),
            where=self.told & (self.variance > 0),
        )


class _Compared:
    """One table in two periods."""

    def __init__(
        self,
        a: Table,
        b: Table,
        k: int,
        rows: tuple[float, float],
        floor_a: float | None,
        floor_b: float | None,
    ) -> None:
        if a.cells.buckets != b.cells.buckets:
            raise TableError(f"table {a.title} is not hashed alike in both, so nothing can be compared")
        a, b = a.alike(b)
        self.features, self._cells = a.features, a.cells
        pair = (a, b)
        self._n = rows
        self._d = [t.counts.reshape(-1).astype(np.float64) for t in pair]
        self._c = [t.sums[k].reshape(-1).astype(np.float64) for t in pair]
        # Records of unequal weight vary by more or less than their count says.
        self._spread = [_spread(t) for t in pair]
        self._noise = [t.noise_moments for t in pair]
        self._seen = [
            np.ones(d.size, bool) if t.measured is None else t.measured.reshape(-1)
            for t, d in zip(pair, self._d, strict=True)
        ]
        self._floors = [0.0 if f is None else float(f) for f in (floor_a, floor_b)]
        self.records, self.labels = self._records(), self._labels()

    def _records(self) -> _Change:
        (na, nb), (da, db) = self._n, self._d
        sa, sb = self._seen
        p = np.clip((da + db) / (na + nb), 0.0, 1.0)
        sampling = p * (1 - p) * (self._spread[0] / na + self._spread[1] / nb)
        noise = self._noise[0].count / na**2 + self._noise[1].count / nb**2
        gap = db / nb - da / na
        # Withheld in one of the periods: what is certain is how far the other is above the floor.
        gap = np.where(sb & ~sa, np.maximum(db / nb - self._floors[0] / na, 0.0), gap)
        gap = np.where(sa & ~sb, -np.maximum(da / na - self._floors[1] / nb, 0.0), gap)
        return _Change(da / na, db / nb, gap, sampling + noise, (sa | sb) & (p > 0))

    def _labels(self) -> _Change:
        (da, db), (ca, cb) = self._d, self._c
        least = [max(_FEWEST, 3 * noise.count**0.5) for noise in self._noise]
        told = self._seen[0] & self._seen[1] & (da >= least[0]) & (db >= least[1])
        da, db = np.where(told, da, 1.0), np.where(told, db, 1.0)
        q = np.clip((ca + cb) / (da + db), 0.0, 1.0)
        before, after = ca / da, cb / db
        variance = q * (1 - q) * (self._spread[0] / da + self._spread[1] / db)
        for noise, d in zip(self._noise, (da, db), strict=True):
            variance = variance + noise.of_rate(q) / d**2
        told &= variance > 0
        return _Change(before, after, after - before, variance, told)

    def table(self) -> TableDrift:
        records, labels = self.records, self.labels
        expected = (self._d[0] + self._d[1]) * min(self._n) / sum(self._n)
        large = records.told & (expected >= _FEWEST)
        share = np.clip((self._d[0] + self._d[1]) / sum(self._n), 0.0, None)
        # Pearson's χ² divides by p, not p(1 − p): the cells of a table add up to one.
        pearson = records.variance + share**2 * (self._spread[0] / self._n[0] + self._spread[1] / self._n[1])
        squares = records.gap[large] ** 2 / pearson[large]
        rest = records.told & ~large
        chi2, cells = float(squares.sum()), int(large.sum())
        if rest.any() and pearson[rest].sum() > 0:
            chi2, cells = chi2 + float(records.gap[rest].sum() ** 2 / pearson[rest].sum()), cells + 1
        return TableDrift(
            features=self.features,
            records_z=deviate(chi2, cells - 1),
            label_z=deviate(float(np.square(labels.z[labels.told]).sum()), int(labels.told.sum())),
            moved=float(np.abs(records.gap).sum() / 2),
        )

    def cells(self, change: _Change, schema: Schema) -> list[CellDrift]:
        z = change.z
        worst = np.argsort(-np.abs(z), kind="stable")[:_KEPT]
        return [
            CellDrift(
                self.features,
                self._values(int(cell), schema),
                float(change.before[cell]),
                float(change.after[cell]),
                float(z[cell]),
            )
            for cell in worst
            if change.told[cell] and z[cell] != 0
        ]

    def _values(self, cell: int, schema: Schema) -> tuple[str, ...]:
        codes = self._cells.codes(cell)
        if codes is None:
            return (self._cells.nameless(cell),)
        return tuple(schema.feature(f).modalities[c] for f, c in zip(self.features, codes, strict=True))


def _spread(table: Table) -> Floats:
    """Variance of each count beside the count itself: 1 where records count once each."""
    counts = table.counts.reshape(-1).astype(np.float64)
    if table.variances is None:
        return np.ones(counts.size)
    return np.divide(table.sampling.reshape(-1), counts, out=np.ones(counts.size), where=counts > 0)


def deviate(chi2: float, degrees: int) -> float | None:
    """χ² as a normal deviate (Wilson and Hilferty, 1931)."""
    if degrees < 1:
        return None
    spread = 2 / (9 * degrees)
    return float(((chi2 / degrees) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))
