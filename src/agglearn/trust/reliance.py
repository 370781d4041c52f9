"""What the predictions rest on: single features, and features taken together.

The log-odds are parted into effects m_f of single features and rests z_t that only table t can tell
(:mod:`agglearn.field.parts`). The share of a part in the spread of the log-odds is its covariance with them,

    Cov(z_t, s)/Var(s)   and   Cov(m_f, s)/Var(s),

which needs one tally of s over the chains, and adds up to 1 over all features and tables. Parts that tell
the same thing share what they tell, so a share is not what would be lost without the part, and can be
negative where a part takes back what others say. A hashed table has no features to part it by: all of it is
joint.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.parts import part, part_listed
from agglearn.model.model import Model
from agglearn.tables.cells import SparseCells

Floats = npt.NDArray[np.float64]

_NO_SPREAD = 1e-12  # variance of log-odds that are all the same, but for rounding


@dataclass(frozen=True)
class Reliance:
    """How much of the log-odds' variance rests on a feature alone, or on a table's features together."""

    name: str
    share: float

    def to_json(self) -> dict[str, Any]:
        """The share as plain JSON values."""
        return asdict(self)


def reliance(
    model: Model, cells: Floats, scores: Floats, score_variance: float
) -> tuple[tuple[Reliance, ...], tuple[Reliance, ...]]:
    """The tables' shares and the features' shares, the largest first; all 0 where log-odds do not vary.

    Parameters
    ----------
    model
        The model.
    cells, scores
        How many chains are in each cell, and the sum of their log-odds less the mean.
    score_variance
        Variance of the log-odds over the chains.
    """
    layout, names = model.layout, model.schema.names
    alone = dict.fromkeys(names, 0.0)
    joint = []
    for t, scope in enumerate(layout.scopes):
        theta, d, s = (layout.table(v, t).astype(float) for v in (model.field.theta, cells, scores))
        worth = 1 / (float(d.sum()) * score_variance) if score_variance > _NO_SPREAD else 0.0
        own = layout.cells[t]
        if isinstance(own, SparseCells):
            codes = own.listed_codes
            of_each, left = part_listed(theta, d, codes, own.cards)
            for axis, effect in enumerate(of_each):
                summed = np.bincount(codes[axis], s[:-1], minlength=effect.size)
                alone[names[scope[axis]]] += worth * float(effect @ summed)
            joint.append(Reliance(" × ".join(names[f] for f in scope), worth * float(left @ s)))
            continue
        axes = list(range(len(scope))) if own.apart else []
        effects, rest = part(theta, d, len(axes))
        for axis, effect in zip(axes, effects, strict=True):
            others = tuple(i for i in axes if i != axis)
            alone[names[scope[axis]]] += worth * float(effect @ s.sum(axis=others))
        if len(axes) != 1:
            joint.append(Reliance(" × ".join(names[f] for f in scope), worth * float((rest * s).sum())))
    single = [Reliance(name, share) for name, share in alone.items()]
    return _largest_first(joint), _largest_first(single)


def _largest_first(shares: list[Reliance]) -> tuple[Reliance, ...]:
    return tuple(sorted(shares, key=lambda r: -r.share))
