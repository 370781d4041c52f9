"""An earlier model's weights and chains in the place of another's: to begin from, or to be pulled to.

Both are of the same features. A modality that is new begins at nothing (its μ at the mean of the others', so
that chains find it as often as the tables have it), one that has vanished is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.margins import holders, single
from agglearn.field.problem import Problem
from agglearn.model.model import Model
from agglearn.schema.features import Categorical, Feature
from agglearn.schema.growth import new_values, same_codes
from agglearn.schema.schema import Schema, some
from agglearn.tables.cells import Cells
from agglearn.train.state import Warm

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Carried:
    """An earlier model over another layout.

    Attributes
    ----------
    warm
        Its weights, penalties and chains there.
    new, gone
        Modalities of each feature that the earlier model does not have, and that only it has.
    """

    warm: Warm
    new: dict[str, tuple[str, ...]]
    gone: dict[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """What was new and what was dropped, as plain JSON values."""
        return {"new": self.new, "gone": self.gone}


def carry(model: Model, schema: Schema, label: str, problem: Problem, what: str) -> Carried:
    """A model's weights in the order of a problem's cells; ``what`` names the model in an error."""
    _require_same_features(model, schema, label, what)
    layout = problem.layout
    maps = [_old_codes(model.schema.feature(f.name), f) for f in schema.features]
    theta, mu = np.zeros(layout.n_cells), np.zeros(layout.n_cells)
    penalties = np.full(layout.n_tables, model.record.lambda_theta)
    levels: dict[tuple[int, int], float] = {}
    old_tables = {scope: t for t, scope in enumerate(model.scopes)}
    for t, scope in enumerate(layout.scopes):
        names = tuple(schema.names[f] for f in scope)
        old = old_tables.get(names)
        if old is None:
            continue
        penalties[t] = model.record.penalties[old]
        levels |= {(t, level): found for (of, level), found in model.record.levels.items() if of == old}
        part, before = layout.part(t), model.layout.part(old)
        if layout.cells[t].apart and model.layout.cells[old].apart:
            found = [maps[f] for f in scope]
            if not (layout.cells[t].dense and model.layout.cells[old].dense):
                theta[part], mu[part] = (
                    _looked_up(layout.cells[t], model.layout.cells[old], vector[before], found, fill)
                    for vector, fill in ((model.field.theta, 0.0), (model.field.mu, None))
                )
                continue
            theta[part] = _taken(model.layout.table(model.field.theta, old), found, 0.0).reshape(-1)
            mu[part] = _taken(model.layout.table(model.field.mu, old), found, None).reshape(-1)
        elif layout.cells[t] == model.layout.cells[old] and same_codes(model.schema, schema, names):
            theta[part], mu[part] = model.field.theta[before], model.field.mu[before]
    _place_new(problem, maps, mu)
    field = Field(layout, mu, theta, model.field.intercept)
    new = new_values(model.schema, schema)
    gone = new_values(schema, model.schema)
    return Carried(
        Warm(field, penalties, model.record.lambda_theta, _chains(model, problem, maps), levels), new, gone
    )


def _require_same_features(model: Model, schema: Schema, label: str, what: str) -> None:
    if model.schema.names != schema.names:
        odd = sorted(set(model.schema.names) ^ set(schema.names)) or list(schema.names)
        raise InputError(f"{what} is of other features than the tables: {some(odd)} is not the same in both")
    if model.label.name != label:
        raise InputError(f"{what} predicts {model.label.name!r}, and the tables are to predict {label!r}")
    for old, new in zip(model.schema.features, schema.features, strict=True):
        grown = isinstance(old, Categorical) and isinstance(new, Categorical)
        if old != new and not (grown and set(old.modalities) & set(new.modalities)):
            raise InputError(f"{what} has {new.name!r} in other values or bins than the tables have it")


def _old_codes(old: Feature, new: Feature) -> Ints:
    """For each code its code before, or -1."""
    return np.array([old.code_of.get(text, -1) for text in new.modalities], np.int64)


def _taken(table: npt.NDArray[Any], maps: list[Ints], fill: float | None) -> Floats:
    """A table's numbers at new positions; what is new gets the fill, or the mean along its axis."""
    found = np.asarray(table, np.float64)
    for axis, codes in enumerate(maps):
        known = codes >= 0
        taken = np.take(found, np.maximum(codes, 0), axis=axis)
        if not known.all():
            place = [slice(None)] * found.ndim
            place[axis] = np.flatnonzero(~known)  # type: ignore[call-overload]
            taken[tuple(place)] = found.mean(axis=axis, keepdims=True) if fill is None else fill
        found = taken
    return found


def _looked_up(new: Cells, old: Cells, numbers: Floats, maps: list[Ints], fill: float | None) -> Floats:
    """The same where a table lists its cells: what is new, or was never seen, has the number of all such."""
    usual = float(numbers[-1]) if old.tied else float(numbers.mean() if fill is None else fill)
    found = np.full(new.size, usual)
    given = np.arange(new.size - bool(new.tied))
    codes = np.stack([own[row] for own, row in zip(maps, new.all_codes(given), strict=True)])
    known = (codes >= 0).all(axis=0)
    found[given[known]] = numbers[old.find(codes[:, known])]
    return found


def _place_new(problem: Problem, maps: list[Ints], mu: Floats) -> None:
    """Make new modalities as rare as the tables have them, in one of the tables that hold them."""
    layout = problem.layout
    for f, codes in enumerate(maps):
        held = [t for t in holders(layout, f) if layout.cells[t].dense]
        if (codes >= 0).all() or not held:
            continue
        counts = np.maximum(_margin(problem, f), 0.5)
        usual = np.average(np.log(counts), weights=np.where(codes >= 0, counts, 0.0))
        lift = np.where(codes < 0, np.log(counts) - usual, 0.0)
        table = layout.table(mu, held[0])
        shape = [1] * table.ndim
        shape[layout.scopes[held[0]].index(f)] = len(lift)
        table += lift.reshape(shape)


def _chains(model: Model, problem: Problem, maps: list[Ints]) -> Codes | None:
    """The chains; those at a value that has vanished move to another, as often as the tables have it."""
    if model.chains is None or model.still:
        return None
    chains = np.empty_like(model.chains)
    for f, codes in enumerate(maps):
        back = np.full(model.layout.cards[f], -1, np.int64)
        back[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
        moved = back[model.chains[f]]
        lost = np.flatnonzero(moved < 0)
        if lost.size:
            upto = np.cumsum(np.maximum(_margin(problem, f), 0.0))
            evenly = (np.arange(lost.size) + 0.5) / lost.size * upto[-1]
            moved[lost] = np.searchsorted(upto, evenly)
        chains[f] = moved
    return chains


def _margin(problem: Problem, f: int) -> Floats:
    """Records with each value of a feature; all alike where no table tells."""
    total, weight = single(problem.layout, problem.d, f)
    return total / weight if weight else np.ones(problem.layout.cards[f])


def with_prior(problem: Problem, carried: Carried) -> Problem:
    """The problem with a penalty that pulls to the carried weights."""
    return replace(problem, prior=carried.warm.field.theta)
