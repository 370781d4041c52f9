"""The log-odds of a field, parted into what single features say and what only features together say.

The log-odds are s(x) = θ₀ + Σ_t θ_t[x_t], a sum over tables, and the effect of one feature is spread over
all tables that hold it. Each table's θ is parted, by least squares under the field's own counts,

    θ_t[x] = a_t + Σ_{f∈t} m_{t,f}[x_f] + z_t[x],

into its mean, an effect of each of its features, and a rest that no single feature explains. With m_f the
effects of a feature summed over its tables,

    s(x) = (θ₀ + Σ_t a_t) + Σ_f m_f[x_f] + Σ_t z_t[x_t].

Every part has mean 0 over the records, so this tells the same of a field however its weights are spread over
tables. A hashed table has no features to part it by: all of it but its mean is rest. A sparse table is parted
by the cells it lists; in all the others, which share one weight θ_∞, z_t[x] = θ_∞ − a_t − Σ_f m_{t,f}[x_f].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.tables.cells import Cells, SparseCells

Floats = npt.NDArray[np.float64]

_TURNS = 200  # of least squares by turns; most tables need a few
_SETTLED = 1e-9  # of a table's variance that a turn may still move


@dataclass(frozen=True, eq=False)
class Parts:
    """A field in parts.

    Attributes
    ----------
    layout
        Features and tables.
    base
        θ₀ + Σ_t a_t: the log-odds of a record of which nothing is known but that it is one.
    means
        a_t of each table.
    effects
        For each table m_{t,f} of each of its features; none where it is hashed.
    rests
        z_t of each table, in its shape; of a sparse one the last is θ_∞ − a_t (see :meth:`rest_of`).
    """

    layout: Layout
    base: float
    means: tuple[float, ...]
    effects: tuple[tuple[Floats, ...], ...]
    rests: tuple[Floats, ...]

    def effect(self, f: int) -> Floats:
        """m_f: what each value of a feature adds by itself."""
        total = np.zeros(self.layout.cards[f])
        for scope, effects in zip(self.layout.scopes, self.effects, strict=True):
            for g, effect in zip(scope, effects, strict=False):
                if g == f:
                    total += effect
        return total

    @property
    def joint(self) -> list[int]:
        """The tables that have a rest: those of several features, and hashed ones."""
        return [t for t, effects in enumerate(self.effects) if len(effects) != 1]

    def rest_of(self, t: int, codes: npt.NDArray[np.int64]) -> Floats:
        """z_t of combinations of a table's values: ``codes`` has a row for each feature, every one known."""
        own = self.layout.cells[t]
        cells = own.find(codes)
        rest: Floats = self.rests[t].reshape(-1)[cells]
        if own.tied:
            unseen = cells == own.size - 1
            for effect, row in zip(self.effects[t], codes, strict=True):
                rest[unseen] -= effect[row[unseen]]
        return rest

    def contributions(self, codes: Codes) -> tuple[Floats, Floats]:
        """What each feature and each of :attr:`joint` adds to the log-odds of coded records.

        A row for each record. They and :attr:`base` add up to the log-odds. A value that the field does not
        know silences the tables that hold it: what these are taken to say of a record, on average and by
        their other features, is taken back, and stands with the unknown value.
        """
        layout, n = self.layout, codes.shape[1]
        known = codes < np.array(layout.cards, codes.dtype)[:, None]
        alone = np.zeros((n, layout.n_features))
        for f in range(layout.n_features):
            alone[:, f] = _at(self.effect(f), codes[f], known[f])
        joint = np.zeros((n, len(self.joint)))
        column = {t: k for k, t in enumerate(self.joint)}
        for t, scope in enumerate(layout.scopes):
            features = list(scope)
            heard = np.asarray(known[features].all(axis=0))
            if t in column:
                joint[heard, column[t]] = self.rest_of(t, codes[features][:, heard].astype(np.int64))
            if not heard.all():
                alone -= self._unheard(t, codes, known, heard)
        return alone, joint

    def _unheard(
        self, t: int, codes: Codes, known: npt.NDArray[np.bool_], heard: npt.NDArray[np.bool_]
    ) -> Floats:
        """What a silenced table would have added, shared among the unknown values that silenced it."""
        features = list(self.layout.scopes[t])
        said = np.where(heard, 0.0, self.means[t])
        for f, effect in zip(features, self.effects[t], strict=False):
            said += np.where(heard, 0.0, _at(effect, codes[f], known[f]))
        unknown = ~known[features]
        shares = np.zeros((codes.shape[1], self.layout.n_features))
        shares[:, features] = (said / np.maximum(unknown.sum(axis=0), 1) * unknown).T
        return shares


def _at(values: Floats, codes: Codes, known: npt.NDArray[np.bool_]) -> Floats:
    """Values by code, 0 where the code is unknown."""
    return np.append(values, 0.0)[np.where(known, codes, len(values)).astype(np.int64)]


def part_field(field: Field, counts: Floats) -> Parts:
    """A field in parts, by how many records (or which share of them) each cell counts."""
    layout = field.layout
    means, effects, rests = [], [], []
    for t, own in enumerate(layout.cells):
        theta, d = (np.asarray(layout.table(v, t), float) for v in (field.theta, counts))
        parted, rest = part_table(own, theta, d)
        means.append(table_mean(theta, d))
        effects.append(tuple(parted))
        rests.append(rest)
    base = field.intercept + float(np.sum(means))
    return Parts(layout, base, tuple(means), tuple(effects), tuple(rests))


def table_mean(theta: Floats, d: Floats) -> float:
    """The mean of a table's weights over its records."""
    return float((d * theta).sum() / max(float(d.sum()), 1e-300))


def part_table(cells: Cells, theta: Floats, d: Floats) -> tuple[list[Floats], Floats]:
    """The effect of each feature of a table with these cells (none where it is hashed), and what is left.

    ``theta`` may have one axis more than ``d``, for several sets of weights.
    """
    if isinstance(cells, SparseCells):
        return part_listed(theta, d, cells.listed_codes, cells.cards)
    return part(theta, d, len(cells.shape) if cells.apart else 0)


def part(theta: Floats, d: Floats, axes: int) -> tuple[list[Floats], Floats]:
    """The effect of each of the first ``axes`` axes of a table, and what is left, by least squares.

    ``theta`` may have one axis more than ``d``, for several sets of weights.
    """
    sets = theta.ndim > d.ndim
    weights = d[..., None] if sets else d
    cells = tuple(range(d.ndim))
    rest = theta - (weights * theta).sum(axis=cells) / max(float(d.sum()), 1e-300)
    if axes == d.ndim == 1:  # all of it, in values without a record as well
        return [rest], np.zeros_like(rest)
    tail = theta.shape[d.ndim :]
    effects = [np.zeros((theta.shape[axis], *tail)) for axis in range(axes)]
    total = float((weights * rest**2).sum())
    for _ in range(_TURNS if axes > 1 else axes):
        moved = 0.0
        for axis in range(axes):
            others = tuple(i for i in cells if i != axis)
            weight = weights.sum(axis=others)
            sums = (weights * rest).sum(axis=others)
            mean = np.divide(sums, weight, out=np.zeros_like(sums), where=weight > 0)
            effects[axis] += mean
            rest = rest - mean.reshape([*(-1 if i == axis else 1 for i in cells), *tail])
            moved += float((weight * mean**2).sum())
        if moved <= _SETTLED * total:
            break
    return effects, rest


def part_listed(
    theta: Floats, d: Floats, codes: npt.NDArray[np.int32], cards: Sequence[int]
) -> tuple[list[Floats], Floats]:
    """The same of a sparse table whose cells have these codes: its rest, the last, is in no effect."""
    sets = theta.reshape(theta.shape[0], -1)
    rest = sets - (d @ sets) / max(float(d.sum()), 1e-300)
    effects = [np.zeros((card, sets.shape[1])) for card in cards]
    weights = [np.bincount(own, d[:-1], minlength=card) for own, card in zip(codes, cards, strict=True)]
    total = float((d @ rest**2).sum())
    for _ in range(_TURNS):
        moved = 0.0
        for own, weight, effect in zip(codes, weights, effects, strict=True):
            sums = np.column_stack(
                [np.bincount(own, d[:-1] * column[:-1], minlength=weight.size) for column in rest.T]
            )
            mean = np.divide(sums, weight[:, None], out=np.zeros_like(sums), where=weight[:, None] > 0)
            effect += mean
            rest[:-1] -= mean[own]
            moved += float((weight @ mean**2).sum())
        if moved <= _SETTLED * total:
            break
    tail = theta.shape[1:]
    return [effect.reshape(-1, *tail) for effect in effects], rest.reshape(theta.shape)
