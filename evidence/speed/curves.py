"""What a fit is worth after so many seconds."""

from __future__ import annotations

import time
from math import inf

from agglearn.field.problem import make_problem
from agglearn.tables.data import AggregatedData
from agglearn.train.loop import begin, iterate
from agglearn.train.settings import FitSettings
from evidence.splits import HeldOut
from evidence.timing import THREADS

Curve = list[tuple[float, float]]


def learning_curve(
    data: AggregatedData, settings: FitSettings, held_out: HeldOut, goal: float = inf
) -> Curve:
    """NLLH on held-out records after each iteration against seconds since the tables were at hand.

    The time of the scoring itself is left out. Ends with the fit, or where the goal is reached.
    """
    curve: Curve = []
    spent, resumed = 0.0, time.perf_counter()
    problem = make_problem(data)
    engine, mu0, state = begin(problem, settings, THREADS)
    for _ in iterate(engine, mu0, problem, settings, state, THREADS):
        spent += time.perf_counter() - resumed
        score = held_out.nllh(state.weights.mean)
        curve.append((spent, score))
        if score >= goal:
            break
        resumed = time.perf_counter()
    return curve
