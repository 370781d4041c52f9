"""The skyline by Newton's method: the logistic regression with the field's cells, at its optimum.

The same model as :func:`.baselines.logistic`, without a matrix: its cells are found from the codes as they
are needed, by the kernels that score a field, and what tables share is looked after
(:mod:`agglearn.field.shared`). It ends at the optimum, before which L-BFGS stops: on Adult with a penalty of
16 the objective was 0.278844 a record after 8 steps, and 0.278905 after the 57 of scikit-learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes, tally
from agglearn.field.layout import Layout
from agglearn.field.members import Members
from agglearn.field.newton import LOGISTIC, Objective, newton_step
from agglearn.judge.baselines import LogisticModel, LogOddsModel, check_l2, logistic

_REST = 1e-3  # root mean square by which the log-odds may be off
_MOST_STEPS = 50  # a safeguard: ten are usual
_LOOSE, _TIGHT = 0.3, 0.03  # how well the equations of a step are solved, far from the end and near it


def skyline(
    codes: Codes,
    y: npt.NDArray[np.uint8],
    layout: Layout,
    l2: float,
    *,
    warm: LogOddsModel | None = None,
    rest: float = _REST,
    threads: int = 1,
    on_step: Callable[[float], None] = lambda left: None,
) -> LogisticModel:
    """The logistic regression that minimises Σ log loss + l2·‖θ‖², the intercept free.

    Parameters
    ----------
    codes, y
        Records as ``codes[feature, record]``, and their labels, of both kinds.
    layout
        The tables.
    l2
        Penalty on the weights.
    warm
        A model of the same layout to begin from.
    rest
        It ends when a step leaves the log-odds off by less than this (root mean square).
    threads
        Threads to use; they change the time, never the result.
    on_step
        Called after each step with about how far off it leaves the log-odds.
    """
    check_l2(l2)
    if (codes >= np.array(layout.cards)[:, None]).any():  # values that no table counts
        return logistic(codes, y, layout, l2, warm=warm)
    began = time.perf_counter()
    members = Members.evenly(layout, np.ascontiguousarray(codes), threads)
    free = None
    if layout.tied.size:  # what stands for all cells that no record is in
        free = np.ones(layout.n_cells, bool)
        free[layout.tied] = False
    none, positives = np.zeros(layout.n_cells), float(y.sum())
    counts, target = tally(members.codes, y.astype(np.float64), layout, threads)
    goal = Objective(
        population=members,
        rows=len(y),
        link=LOGISTIC,
        target=target,
        total=positives,
        precision=np.full(layout.n_cells, 2 * l2),
        prior=none,
        free=free,
    )
    at = Field(layout, none, none, float(np.log(positives / (len(y) - positives))))
    if warm is not None:
        at = Field(layout, none, warm.theta, warm.intercept)
    moved, left, steps = np.inf, np.inf, 0
    while left > rest and steps < _MOST_STEPS:
        done = newton_step(at, goal, float(np.clip(moved, _TIGHT, _LOOSE)), threads)
        at, moved, left, steps = done.field, done.moved, done.left, steps + 1
        on_step(left)
        if done.length == 0.0:
            break
    theta = np.where(counts > 0, at.theta, 0.0)  # which a cell without a record has at the optimum
    return LogisticModel(layout, theta, at.intercept, steps, time.perf_counter() - began)
