"""How far the tables of a field are from given ones, cell by cell, in standard errors.

With m of the N chains tallied in a cell, e = n·m/N records are expected there of n. If the field is right,
the given count d is a draw around it, and

    z = (d − e) / √( max(e, 1)(1 − e/n) + φ·(n/N)·max(e, n/N) + σ² )

has a mean square of 1: the first term is the sampling of the records, the second the chains', σ the noise
that was declared for the table. φ is how many times noisier than independent draws the chains are, measured
on their two halves, table by table (with a few cells' worth of the mean over all tables, as a small table
tells little).

The positives are judged given the records, as training does: with q̂ the mean of p over the chains of the
cell,

    z = (c − d·q̂) / √( d·q̂(1 − q̂) + d²·ψ/m + ν ),

ν being the noise on c − d·q̂ (σ²(1 + q̂²) where each number has its own) and ψ the variance that the two
halves show for one chain's p. A fit that has converged leaves c − d·q̂ = 2λ_θ·θ behind: the penalty holds θ
back on purpose, and 2λ_θ·θ over the same standard error tells how much of the misfit is its doing.

Cells are judged from one record expected (or five given) for d, and from one positive and one negative
expected for c. :mod:`.distance` has measures that do not grow with the number of records.

**What is new.** A table that the field does not have may be off only because its margins are: those that the
field does have are held back by the penalty, and were learnt from other records. So the differences r, with
variances v, are regressed on these margins (:mod:`.margins`, u = r/v with weights v), and what is left is
new to the field. Σv·rest² is then about χ²; its degrees are found by doing the same to random numbers. Where
no margin is taken out, z itself is put to the test: if the tables are of other records than the field's,
Σz²/(1 + n/n_field) is at most about χ², as both have the error of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from agglearn.field.layout import Layout
from agglearn.field.margins import Margin, unexplained
from agglearn.field.problem import Problem
from agglearn.schema.schema import Schema
from agglearn.tables.cells import SparseCells
from agglearn.tables.noise import Moments
from agglearn.trust.distance import gain_of_rates, hellinger
from agglearn.trust.mixing import HalfTallies

Floats = npt.NDArray[np.float64]

_NAMED = 3  # cells of a table that are named, of records and of positives
_SHARED_CELLS = 20  # cells' worth of the mean over all tables in the chains' noise of one
_LEAST_EXPECTED = 1.0  # records in a cell, from which z has about the spread it should
_SURPRISING = 5.0  # records in a cell where less than one was expected: chance gives that 1 in 300 cells
_LEAST_DEGREES = 0.5  # below which margins leave nothing that could be new


@dataclass(frozen=True)
class CellMisfit:
    """One cell that is far off.

    Attributes
    ----------
    cell
        In words: ``age=[30, 40), sex=F``.
    what
        ``records`` or ``positives``.
    given, expected
        The table's number, and the field's.
    z
        The difference in standard errors.
    """

    cell: str
    what: str
    given: float
    expected: float
    z: float


@dataclass(frozen=True)
class TableMisfit:
    """How far a field is from one table.

    Attributes
    ----------
    table, features
        The table.
    cells
        Cells that were judged.
    z_records, z_positives
        Root mean square of z over the cells: about 1 where the field differs from the table no more than a
        sample of records does, less on the tables it was fitted to.
    z_penalty
        The part of ``z_positives`` that the penalty on θ asks for; 0 for a table the field does not have.
    new_records, new_positives
        The same of what is left once the margins that the field has tables of are put right: about 1 where
        nothing is new to the field. For a table that it has, 0.
    p_value
        The chance of so great a misfit (of what is new, for a table that the field does not have) if the
        field is right.
    hellinger
        Distance between the two laws of the records, beyond sampling: 0 for the same, 1 for disjoint ones.
    gain, gain_se
        NLLH that the field would gain if each cell's rate of positives were put right, beyond chance; and the
        standard error of that.
    worst
        The cells farthest off, of records and of positives.
    """

    table: str
    features: tuple[str, ...]
    cells: int
    z_records: float
    z_positives: float
    z_penalty: float
    new_records: float
    new_positives: float
    p_value: float
    hellinger: float
    gain: float
    gain_se: float
    worst: tuple[CellMisfit, ...]

    def to_json(self) -> dict[str, Any]:
        """The misfit as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Cells:
    """One table: what is given and what the chains say, a flat vector each (a row for each half)."""

    d: Floats
    c: Floats
    chains: Floats
    p: Floats
    judged: npt.NDArray[np.bool_]  # was measured at all
    noise: Moments  # on each count and on each sum


def misfits(
    given: Problem,
    seen: HalfTallies,
    schema: Schema,
    pull: Floats | None = None,
    margins: Sequence[Sequence[Margin]] | None = None,
    inflation: float = 1.0,
) -> tuple[TableMisfit, ...]:
    """Compare given tables with those of a field's chains.

    Parameters
    ----------
    given
        The tables, with the noise on them.
    seen
        The chains tallied over the same layout.
    schema
        To name the cells.
    pull
        2λ_θ·θ of each cell, where the field has these tables.
    margins
        Of each table those that the field has, where it does not have the tables themselves.
    inflation
        How many times greater than one sample's the variance between table and field may be.
    """
    layout, n = given.layout, given.rows
    tables = []
    for t in range(layout.n_tables):
        part = layout.part(t)
        numbers = (given.d[part], given.c[part], seen.chains[:, part], seen.p[:, part])
        tables.append(_Cells(*numbers, given.measured(t), given.noise_moments(t)))
    noises = np.array([_noise(cells, n, seen.records) for cells in tables])  # rows: Σφ, cells, Σψ, cells
    whole = noises.sum(axis=0)
    phi = _shared(noises[:, 0], noises[:, 1], whole[0] / max(whole[1], 1.0))
    psi = _shared(noises[:, 2], noises[:, 3], whole[2] / max(whole[3], 1.0))
    found = []
    for t, cells in enumerate(tables):
        part = layout.part(t)
        judged = _judge(cells, n, seen.records, phi[t], psi[t])
        held = None if pull is None else pull[part]
        sides = (judged.records, judged.positives)
        if margins is None:
            tested = [(float(side.z @ side.z) / inflation, float(side.judged.sum())) for side in sides]
        else:
            tested = [_left(side, layout, t, margins[t]) for side in sides]
        found.append(_table(given, t, judged, schema, held, tested, margins is not None))
    return tuple(found)


def _noise(cells: _Cells, n: float, records: int) -> tuple[float, float, float, float]:
    """What the halves tell of the chains' noise: sums of φ and of ψ over cells, each with how many."""
    m = cells.chains.sum(axis=0)
    often = m >= 2
    # Each half has a share of about one half of the chains, and the gap of their shares this variance.
    share = m / records
    halves = cells.chains / np.maximum(cells.chains.sum(axis=1, keepdims=True), 1.0)
    independent = 4 * share * (1 - share) / records
    ratio = np.divide(
        (halves[0] - halves[1]) ** 2, independent, out=np.zeros_like(m), where=often & (share < 1)
    )
    both = (cells.chains > 0).all(axis=0)
    rates = np.divide(cells.p, cells.chains, out=np.zeros_like(cells.p), where=cells.chains > 0)
    weight = np.divide(cells.chains[0] * cells.chains[1], m, out=np.zeros_like(m), where=m > 0)
    squares = weight * (rates[0] - rates[1]) ** 2
    return (
        float(ratio[often].sum()),
        float(often.sum()),
        float(squares[both].sum()),
        float(both.sum()),
    )


def _shared(sums: Floats, cells: Floats, mean: float) -> Floats:
    return (sums + _SHARED_CELLS * mean) / (cells + _SHARED_CELLS)


@dataclass(frozen=True, eq=False)
class _Side:
    """The records or the positives of a table's cells: what came, what was expected, and its variance."""

    given: Floats
    expected: Floats
    variance: Floats
    judged: npt.NDArray[np.bool_]

    @property
    def error(self) -> Floats:
        """The standard error; 1 in cells that are not judged."""
        return np.sqrt(np.where(self.judged, self.variance, 1.0))

    @property
    def z(self) -> Floats:
        return np.where(self.judged, self.given - self.expected, 0.0) / self.error

    def root_mean_square(self, z: Floats) -> float:
        """Over the cells that are judged."""
        return float(np.sqrt(np.square(z[self.judged]).sum() / max(int(self.judged.sum()), 1)))


@dataclass(frozen=True, eq=False)
class _Judged:
    """A table's cells from both sides, with the field's rates of positives."""

    cells: _Cells
    records: _Side
    positives: _Side
    rates: Floats


def _judge(cells: _Cells, n: float, chains: int, phi: float, psi: float) -> _Judged:
    d, c = cells.d, cells.c
    m, p = cells.chains.sum(axis=0), cells.p.sum(axis=0)
    a_chain = n / chains
    e = a_chain * m
    variance = np.maximum(e, 1.0) * (1 - e / n) + phi * a_chain * np.maximum(e, a_chain) + cells.noise.count
    judged = cells.judged & ((e >= _LEAST_EXPECTED) | (d >= _SURPRISING))
    q = np.divide(p, m, out=np.zeros_like(m), where=m > 0)
    positives = d * q
    labelled = cells.judged & (np.minimum(positives, d - positives) >= _LEAST_EXPECTED)
    spread = positives * (1 - q) + d**2 * psi / np.maximum(m, 1.0) + cells.noise.of_rate(q)
    return _Judged(cells, _Side(d, e, variance, judged), _Side(c, positives, spread, labelled), q)


def _table(
    given: Problem,
    t: int,
    judged: _Judged,
    schema: Schema,
    pull: Floats | None,
    tested: Sequence[tuple[float, float]],
    new: bool,
) -> TableMisfit:
    records, positives = judged.records, judged.positives
    worth = given.rows * given.entropy
    z_d, z_c = records.z, positives.z
    sides = (("records", records, z_d), ("positives", positives, z_c))
    worst = [
        _named(given, t, schema, what, k, side.given[k], side.expected[k], z[k])
        for what, side, z in sides
        for k in _farthest(z)
    ]
    of_new = [_root(*squares) for squares in tested] if new else [0.0, 0.0]
    names = tuple(schema.names[f] for f in given.layout.scopes[t])
    labelled, measured = positives.judged, judged.cells.judged
    numbers = (records.given, positives.given, judged.rates, positives.variance)
    gain, gain_error = gain_of_rates(*(v[labelled] for v in numbers))
    return TableMisfit(
        table=" × ".join(names),
        features=names,
        cells=int(records.judged.sum()),
        z_records=records.root_mean_square(z_d),
        z_positives=positives.root_mean_square(z_c),
        z_penalty=0.0 if pull is None else positives.root_mean_square(pull / positives.error),
        new_records=of_new[0],
        new_positives=of_new[1],
        p_value=min(1.0, 2 * min(_tail(*squares) for squares in tested)),
        hellinger=hellinger(records.given[measured], records.expected[measured]),
        gain=gain / worth,
        gain_se=gain_error / worth,
        worst=tuple(worst),
    )


def _left(side: _Side, layout: Layout, t: int, margins: Sequence[Margin]) -> tuple[float, float]:
    cells, variance = layout.cells[t], np.where(side.judged, side.variance, 0.0)
    listed = cells if isinstance(cells, SparseCells) else None
    return unexplained(side.z.reshape(cells.shape), variance.reshape(cells.shape), margins, t, listed)


def _root(squares: float, degrees: float) -> float:
    """√(Σz²/degrees), 0 where there are none."""
    return float(np.sqrt(squares / degrees)) if degrees >= _LEAST_DEGREES else 0.0


def _tail(squares: float, degrees: float) -> float:
    """The chance of a greater Σz²."""
    return float(chdtrc(degrees, squares)) if degrees >= _LEAST_DEGREES else 1.0


def _farthest(z: Floats) -> list[int]:
    few = np.argpartition(-np.abs(z), min(_NAMED, z.size) - 1)[:_NAMED]
    return [int(k) for k in few[np.argsort(-np.abs(z[few]), kind="stable")] if z[k]]


def _named(
    given: Problem, t: int, schema: Schema, what: str, k: int, value: float, expected: float, z: float
) -> CellMisfit:
    scope = given.layout.scopes[t]
    features = [schema.features[f] for f in scope]
    at = given.layout.cells[t].codes(k)
    if at is None:
        cell = f"{' × '.join(f.name for f in features)}: {given.layout.cells[t].nameless(k)}"
    else:
        cell = ", ".join(f"{f.name}={f.modalities[v]}" for f, v in zip(features, at, strict=True))
    return CellMisfit(cell, what, float(value), float(expected), float(z))
