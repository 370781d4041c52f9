"""Chains of a fitted model, set in motion again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.local import LocalEngine
from agglearn.field.problem import Problem
from agglearn.field.proposals import build_proposals
from agglearn.model.model import Model


def set_moving(
    model: Model, chains: npt.NDArray[np.uint16], tables: Problem, seed: int, threads: int
) -> LocalEngine:
    """Chains that move as the model's did in training, with Metropolis proposals from the tables given."""
    exact_up_to = int(model.settings["exact_up_to"])
    proposals = None
    if max(model.layout.cards) > exact_up_to:
        proposals = build_proposals(model.layout, tables.d, exact_up_to)
    return LocalEngine(
        model.layout,
        chains,
        model.rows,
        seed,
        threads,
        proposals=proposals,
        exact_up_to=exact_up_to,
        proposals_per_feature=int(model.settings["proposals"]),
    )
