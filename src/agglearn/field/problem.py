"""From aggregated data to everything a fit needs of it, as flat vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.field.effects import Effects
from agglearn.field.layout import Layout
from agglearn.field.members import Members
from agglearn.runtime.speech import option
from agglearn.schema.schema import Schema
from agglearn.tables.cells import Cells, SparseCells
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Moments
from agglearn.tables.table import Scope, Table

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TableNoise:
    """Standard deviations of the noise on the numbers of each table.

    Attributes
    ----------
    counts, sums
        On each count of records, and on each sum of the label: a number for each table.
    shared
        Covariance of the two in a cell; None where there is none.
    """

    counts: Floats
    sums: Floats
    shared: Floats | None = None

    @property
    def covariances(self) -> Floats:
        """Of the noise on a count and that on a sum of the same cell."""
        return np.zeros_like(self.counts) if self.shared is None else self.shared

    def variance_of(self, cells: str, layout: Layout) -> Floats:
        """σ² of ``counts`` or ``sums``, for each cell; of the rest of a sparse table that of all its own."""
        variance = np.repeat(np.square(getattr(self, cells)), layout.sizes)
        variance[layout.tied] *= layout.ties
        return variance

    def covariance_of(self, layout: Layout) -> Floats:
        """Covariance of the noise on the count and on the sum of each cell."""
        covariance = np.repeat(self.covariances, layout.sizes)
        covariance[layout.tied] *= layout.ties
        return covariance

    def rate_variance(self, t: int | slice, rates: float | Floats) -> Floats:
        """Variance that noise adds to c − d·q in cells of a table (or of several) with rates q."""
        own = self.sums[t] ** 2 + self.counts[t] ** 2 * rates**2
        return np.asarray(own - 2 * self.covariances[t] * rates)


@dataclass(frozen=True, eq=False)
class Problem:
    """What a field is fitted to.

    Attributes
    ----------
    layout
        Features, tables and the order of the cells.
    d, c
        Records and positives in each cell, every table scaled to the same number of records.
    rows, positives
        Records, and positives, in all.
    free
        Which cells have a weight to learn; the others were withheld and keep the start's.
    noise
        The noise on the numbers of each table; None where all are exact.
    prior
        Where the penalty pulls each θ to; None for 0.
    records
        Members of X that are known, where some are: their law is a better one than the field's.
    effects
        Where noise was taken out of the tables (:mod:`.denoise`): what is known of main effects.
    ordered
        How many codes of each feature are bins of a number, in order: the first ones; none where it is empty.
    """

    layout: Layout
    d: Floats
    c: Floats
    rows: float
    positives: float
    free: npt.NDArray[np.bool_] | None = None
    noise: TableNoise | None = None
    prior: Floats | None = None
    records: Members | None = None
    effects: Effects | None = None
    ordered: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """The share of positives."""
        return self.positives / self.rows

    @property
    def entropy(self) -> float:
        """Entropy of the label, in nats."""
        return float(-(self.rate * np.log(self.rate) + (1 - self.rate) * np.log1p(-self.rate)))

    @property
    def base_log_odds(self) -> float:
        """Log-odds of the share of positives."""
        return float(np.log(self.positives) - np.log(self.rows - self.positives))

    def measured(self, t: int) -> npt.NDArray[np.bool_]:
        """Which cells of a table were measured, flat."""
        part = self.layout.part(t)
        return np.ones(part.stop - part.start, bool) if self.free is None else self.free[part]

    @cached_property
    def learnt(self) -> npt.NDArray[np.bool_] | None:
        """Which cells have a θ to learn: those that are free, and not tied. None where all have."""
        if not self.layout.tied.size:
            return self.free
        learnt = np.ones(self.layout.n_cells, bool) if self.free is None else self.free.copy()
        learnt[self.layout.tied] = False
        return learnt

    def over(self, layout: Layout) -> Problem:
        """The same problem counted in another layout's cells, of the same tables.

        Tables of other records have seen other cells: where this layout lists them not, they are in its rest.
        """
        if layout == self.layout:
            return self
        if layout.scopes != self.layout.scopes or layout.cards != self.layout.cards:
            raise TableError("tables over other features cannot be counted in these cells")
        d, c = np.zeros(layout.n_cells), np.zeros(layout.n_cells)
        free = np.ones(layout.n_cells, bool)
        for t, (mine, its) in enumerate(zip(self.layout.cells, layout.cells, strict=True)):
            to, given = _recounted(mine, its)
            for new, old in ((d, self.d), (c, self.c)):
                own = old[self.layout.part(t)]
                new[layout.part(t)] = np.bincount(to, own[given], minlength=its.size)
                if mine.tied and its.tied and own[-1]:
                    new[layout.part(t).stop - 1] += own[-1]
            if self.free is not None:
                measured = self.measured(t)
                part = np.full(its.size, measured[-1] if mine.tied else True)
                part[to] = measured[given]
                free[layout.part(t)] = part
        return replace(
            self,
            layout=layout,
            d=d,
            c=c,
            free=None if free.all() else free,
            prior=None,  # that of a field over other cells
            records=None if self.records is None else self.records.over(layout),
        )

    def noise_moments(self, t: int) -> Moments:
        """Variances of the noise on each count and on each sum of a table, and their covariance."""
        if self.noise is None:
            return Moments(0.0, 0.0, 0.0)
        shared = float(self.noise.covariances[t])
        return Moments(float(self.noise.counts[t]) ** 2, float(self.noise.sums[t]) ** 2, shared)

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of the tables, by which a run or a model knows its own."""
        layout = self.layout
        # The words are those of the first files: what they were fitted to is still known.
        shape = f"Layout(cards={layout.cards!r}, scopes={layout.scopes!r}, hash_sizes={layout.buckets!r})"
        digest = sha256(f"({shape}, {self.rows!r}, {self.positives!r})".encode())
        for cells in layout.cells:
            if isinstance(cells, SparseCells):
                digest.update(cells.digest.encode())
        for array in (self.d, self.c, self.free):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def identity(self) -> str:
        """A checksum of all that a fit follows from: the tables, and a prior and records if there are any."""
        beside: list[npt.NDArray[Any]] = [] if self.prior is None else [self.prior]
        if self.records is not None:
            beside += [self.records.codes, self.records.weights]
        if not beside:
            return self.fingerprint
        digest = sha256(self.fingerprint.encode())
        for array in beside:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _recounted(mine: Cells, its: Cells) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which of its cells each of mine is in (the rest apart), and which those are."""
    given = np.arange(mine.size - bool(mine.tied))
    if mine == its:
        return given, given
    if not (mine.apart and its.apart):
        raise TableError("hashed tables cannot be counted in other cells")
    return its.find(mine.all_codes(given)), given


def make_problem(data: AggregatedData, label: str | None = None) -> Problem:
    """The problem of predicting one label from aggregated data, or why there is none."""
    k = data.label_index(label)
    name = data.schema.label_names[k]
    rows, positives = float(data.rows), float(data.positives[k])
    if not data.tables:
        raise TableError("there is no table to learn from")
    if not 0 < positives < rows:
        word = "positive" if positives > 0 else "negative"
        raise TableError(f"label {name}: every record is {word}, so there is nothing to learn")
    layout = layout_of(data)
    d, c = np.empty(layout.n_cells), np.empty(layout.n_cells)
    free = np.ones(layout.n_cells, bool)
    for t, table in enumerate(data.tables.values()):
        part = layout.part(t)
        _refuse_impossible(table, k)
        d[part], c[part] = _scaled(table, k, data)
        if table.measured is not None:
            free[part] = table.measured.reshape(-1)
    return Problem(
        layout,
        d,
        c,
        rows,
        positives,
        None if free.all() else free,
        _noise(data),
        ordered=ordered_codes(data.schema),
    )


def ordered_codes(schema: Schema) -> tuple[int, ...]:
    """How many codes of each feature are bins of a number, in order."""
    return tuple(f.ordered for f in schema.features)


def _noise(data: AggregatedData) -> TableNoise | None:
    """The noise declared for each table."""
    moments = [table.noise_moments for table in data.tables.values()]
    counts, sums = (np.sqrt([getattr(m, which) for m in moments]) for which in ("count", "sum"))
    shared = np.array([m.covariance for m in moments])
    return TableNoise(counts, sums, shared) if counts.any() else None


def heldout_problem(heldout: AggregatedData, train: AggregatedData, label: str | None = None) -> Problem:
    """The same problem on tables of other records, or why the two do not go together."""
    return make_problem(matching(heldout, train.schema, list(train.tables)), label)


def matching(
    data: AggregatedData, schema: Schema, scopes: Sequence[Scope], what: str = "the held-out tables"
) -> AggregatedData:
    """The tables that a field over this schema and these scopes has; ``what`` names them in an error."""
    require_schema(data, schema, what)
    absent = [scope for scope in scopes if scope not in data.tables]
    if absent:
        raise TableError(
            f"{what} lack {' × '.join(absent[0])}, which the field has: aggregate them like the training "
            f"tables ({option('schema', 'TRAIN.agg')} has the same)"
        )
    return replace(data, tables={scope: data.tables[scope] for scope in scopes})


def require_schema(data: AggregatedData, schema: Schema, what: str) -> None:
    """Refuse tables over other features than a field's, or over the same with other values."""
    if data.schema.features != schema.features:
        raise TableError(
            f"{what} have another schema than the model: aggregate them with that of the training tables "
            f"({option('split')}, or {option('schema', 'TRAIN.agg')})"
        )


def layout_of(data: AggregatedData) -> Layout:
    """The layout of a field over these tables."""
    index = data.schema.index
    return Layout(
        cards=data.schema.cards,
        scopes=tuple(tuple(index[f] for f in scope) for scope in data.tables),
        cells=tuple(table.cells for table in data.tables.values()),
    )


def _refuse_impossible(table: Table, k: int) -> None:
    counts, sums = table.counts, table.sums[k]
    if not table.n_cells:
        raise TableError(f"table {table.title} has no cell")
    if not (np.isfinite(counts).all() and np.isfinite(sums).all()):
        raise TableError(f"table {table.title} holds numbers that are missing or infinite")
    if table.noise is None and ((counts < 0).any() or (sums < 0).any()):
        raise TableError(f"table {table.title} has negative counts: declare its noise if it is noisy")
    if table.noise is None and (sums > counts).any():
        raise TableError(f"table {table.title} has more positives than records in a cell")
    if table.noise is None and table.measured is None and not counts.sum() > 0:
        raise TableError(f"table {table.title} counts no record: leave it out")


def _scaled(table: Table, k: int, data: AggregatedData) -> tuple[Floats, Floats]:
    """A table's numbers, brought to the data's number of records.

    Records with an unknown value are in no cell: they are taken to be spread like the others. Cells
    that were withheld share evenly what is missing from the total, at most the floor.
    """
    d = table.counts.reshape(-1).astype(np.float64)
    c = table.sums[k].reshape(-1).astype(np.float64)
    known = table.total - float(table.unknown[0])
    if table.unknown[0] and known > 0:
        factor = table.total / known
        d, c = d * factor, c * factor
    if table.measured is not None and not table.measured.all():
        withheld = ~table.measured.reshape(-1)
        combinations = np.ones(table.n_cells)
        if table.cells.tied:
            combinations[-1] = table.cells.tied
        share = max(data.rows - d[~withheld].sum(), 0.0) / combinations[withheld].sum()
        rate = data.positives[k] / data.rows
        d[withheld] = combinations[withheld] * (min(share, data.floor) if data.floor else share)
        c[withheld] = d[withheld] * rate
    return d, c
