"""Runs in mbi's own environment: estimate the model of a problem file, and print what it took.

``python mbi_worker.py PROBLEM.npz ITERATIONS``
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy as np

jax.config.update("jax_enable_compilation_cache", False)  # as mbi asks for

import mbi  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

_LABEL = "label"


def main(path: str, iterations: int) -> None:
    """Estimate twice, so that the first time compiles, and print one JSON object."""
    problem = np.load(path)
    rows = float(problem["rows"])
    scopes = [name for name in problem.files if "-" in name]
    sizes = {str(f): int(card) for f, card in enumerate(problem["cards"])}
    domain = mbi.Domain.fromdict({**sizes, _LABEL: 2})
    tables = [
        mbi.LinearMeasurement(problem[scope].astype(float).reshape(-1), (*scope.split("-"), _LABEL))
        for scope in scopes
    ]
    estimator = mbi.estimation.MirrorDescent()

    def estimate(n: int) -> tuple[Any, float]:
        began = time.perf_counter()
        model = estimator.estimate(domain, tables, rows, iters=n)
        jax.block_until_ready((model.potentials, model.marginals))
        return model, time.perf_counter() - began

    _, first = estimate(50)  # it goes by 50 at least
    model, seconds = estimate(iterations)
    answer = {
        "iterations": iterations,
        "seconds": seconds,
        "first_seconds": first,
        "nllh": _nllh(model, problem["test"], problem["positive"]),
        "misfit": _misfit(model, tables, rows),
    }
    print(json.dumps(answer))


def _nllh(model: Any, codes: Any, positive: Any) -> float:
    """1 − log loss / entropy of log-odds that are the differences of the potentials of y = 1 and y = 0."""
    z = np.zeros(len(positive))
    for clique in model.potentials.cliques:
        *features, label = clique
        assert label == _LABEL
        values = np.asarray(model.potentials[clique].values, np.float64)
        at = tuple(codes[int(f)] for f in features)
        z += values[(*at, 1)] - values[(*at, 0)]
    loss = np.logaddexp(0.0, np.where(positive, -z, z)).mean()
    rate = positive.mean()
    return float(1 + loss / (rate * np.log(rate) + (1 - rate) * np.log1p(-rate)))


def _misfit(model: Any, tables: list[Any], rows: float) -> float:
    """Half the summed differences from the tables, as a share of the records, averaged over tables."""
    gaps = [
        np.abs(np.asarray(model.project(t.clique).datavector()) - t.noisy_measurement).sum() for t in tables
    ]
    return float(np.mean(gaps) / (2 * rows))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
