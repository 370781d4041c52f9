"""What pairs cannot show: X₁ and X₂ are fair coins, X₃ = X₁ xor X₂, and P(Y=1|x) = 0.25 + 0.5·x₃. Any two of
the features are independent, so that pair tables cannot tell these records from ones with three independent
features; the paper works out that the field then says 0.9 and 0.1 where the truth is 0.75 and 0.25.

*Infinitely many records*: the exact optimum (every state enumerated) for tables that hold the expected counts
of a million records, with λ_θ = λ_μ = 0.001, which moves nothing that is shown. *Drawn records*: records of
this law and the defaults of `agglearn fit` (chains, λ_θ from the tables), mean and standard deviation over
seeds; beside it the logistic (all pairs, λ = 1) and Naive Bayes (λ = 1) on the same records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt
from scipy.special import expit

import agglearn
from agglearn.datasets import xor
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.kernels.score import tally
from agglearn.field.layout import Layout
from agglearn.field.optimum import exact_optimum
from agglearn.field.problem import make_problem
from agglearn.judge.baselines import logistic, naive_bayes
from agglearn.train.loop import fit
from evidence.page import spread, table
from evidence.paper.published import XOR, XOR_RATE
from evidence.runner import Cell, Results, Value
from evidence.splits import Predictor
from evidence.timing import THREADS

TITLE = "XOR: what pairs cannot show"

_STATES = [(a, b, a ^ b) for a, b in product((0, 1), repeat=2)]
_PAIRS: list[tuple[int, ...]] = [(0, 1), (0, 2), (1, 2)]
_SCOPES = {"pairs": _PAIRS, "triple": [*_PAIRS, (0, 1, 2)]}
_RECORDS, _PENALTY = 1_000_000, 1e-3


@dataclass(frozen=True)
class Sizes:
    """Records drawn, and how often."""

    rows: int
    seeds: int


FULL = Sizes(rows=100_000, seeds=5)
QUICK = Sizes(rows=20_000, seeds=2)


def cells(config: Sizes) -> list[Cell]:
    """The exact optimum of pairs and of pairs with the triple; then fits to drawn records."""
    exact = [
        Cell(f"exact-{name}", {"records": _RECORDS, "penalty": _PENALTY}, partial(_exact, name))
        for name in _SCOPES
    ]
    drawn = [
        Cell(f"drawn-{name}-seed{seed}", asdict(config), partial(_drawn, name, config.rows, seed))
        for name in _SCOPES
        for seed in range(config.seeds)
    ]
    return exact + drawn


def section(results: Results, images: Path) -> list[str]:
    """The table of predictions, and how far the field is from the law of X."""
    columns: dict[str, list[str]] = {
        "truth": [f"{XOR_RATE[x3]:.2f}" for _, _, x3 in _STATES],
        "paper, pairs": [f"{XOR[x3]:.1f}" for _, _, x3 in _STATES],
    }
    scores = {"truth": [_nllh(list(_truth()))], "paper, pairs": [_nllh([XOR[x3] for _, _, x3 in _STATES])]}
    told = {"pairs": "pairs", "triple": "pairs and triple"}
    for name, words in told.items():
        if f"exact-{name}" in results:
            found = results[f"exact-{name}"]["field"]
            columns[f"field, {words}"] = [f"{p:.4f}" for p in found]
            scores[f"field, {words}"] = [_nllh(found)]
    for name, words in told.items():
        runs = [run["predicted"] for run in results.starting(f"drawn-{name}-").values()]
        for model in runs[0] if runs else ():
            title = f"drawn records: {model}, {words}"
            columns[title] = [spread([run[model][k] for run in runs], 3) for k in range(len(_STATES))]
            scores[title] = [_nllh(run[model]) for run in runs]
    states = [f"x = {''.join(map(str, state))}" for state in _STATES]
    rows = [[title, *found, spread(scores[title], 3)] for title, found in columns.items()]
    lines = table(["P(Y=1 given x)", *states, "NLLH"], rows)
    if "exact-pairs" in results:
        lines += ["", _why(results)]
    return lines


def _why(results: Results) -> str:
    impossible = results["exact-pairs"]["impossible"]
    text = (
        f"The pair tables are met exactly, yet the field puts {impossible:.1%} of the records where x₃ is "
        "not x₁ xor x₂, which never happens. To it x₃ and u = x₁ xor x₂ are two independent witnesses of y, "
        "each of which multiplies the odds by 3: 9 to 1. Naive Bayes, from singles, knows nothing of u."
    )
    if "exact-triple" in results:
        impossible = results["exact-triple"]["impossible"]
        text += f" With the table of the three together that share is {impossible:.1%}, and the answer right."
    return text


def _exact(name: str) -> Value:
    layout = Layout.plain([2, 2, 2], _SCOPES[name])
    codes = np.ascontiguousarray(np.array(_STATES, np.uint16).T)
    d, c = (_RECORDS / 4 * counts for counts in tally(codes, _truth(), layout))
    engine = ExactEngine(layout, _RECORDS)
    start = np.zeros(layout.n_cells)
    best = exact_optimum(engine, d, c, _RECORDS / 2, _PENALTY, _PENALTY, start)
    law = engine.probabilities(best.field).sum(axis=1)
    x1, x2, x3 = engine.states.codes
    return {"field": _predict(best.field), "impossible": float(law[x3 != x1 ^ x2].sum())}


def _drawn(name: str, rows: int, seed: int) -> Value:
    records = xor(rows, seed)
    scopes = [[f"x{f + 1}" for f in scope] for scope in _SCOPES[name]]
    data = agglearn.aggregate(records, "y", categorical=["*"], tables=scopes)
    problem = make_problem(data)
    fitted = fit(problem, threads=THREADS)
    found = {"field": _predict(fitted.field)}
    if name == "pairs":
        codes, y = data.schema.encode(records), data.schema.encode_labels(records)[0]
        found["logistic"] = _predict(logistic(codes, y, problem.layout, 1.0))
        found["Naive Bayes"] = _predict(naive_bayes(problem, 1.0))
    return {"predicted": found, "lambda_theta": fitted.state.lambda_theta}


def _truth() -> npt.NDArray[np.float64]:
    return np.array([XOR_RATE[x3] for _, _, x3 in _STATES])


def _predict(model: Predictor) -> list[float]:
    """P(Y=1|x) of the four states that occur; a modality's code is its value."""
    codes = np.ascontiguousarray(np.array(_STATES, np.uint16).T)
    return [round(float(p), 6) for p in expit(model.log_odds(codes))]


def _nllh(predicted: list[float]) -> float:
    """1 − expected log loss / entropy, under the true law; the label is a fair coin."""
    pairs = zip(_truth(), predicted, strict=True)
    losses = [-(p * np.log(q) + (1 - p) * np.log(1 - q)) for p, q in pairs]
    return float(1 - fmean(losses) / np.log(2))
