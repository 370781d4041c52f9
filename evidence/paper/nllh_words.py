"""What the cells of :mod:`evidence.paper.nllh_reasons` found, told in words and small tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from evidence.page import spread, table
from evidence.paper import published
from evidence.runner import Results, Value
from evidence.splits import DATA_SETS, TITLES


def explanation(results: Results, beyond: Mapping[str, str]) -> list[str]:
    """Why our figures differ from the paper's, one reason at a time."""
    lines = ["### Where ours differ from the paper's, and why", ""]
    for text in beyond.values():
        lines += [text, ""] if text else []
    tellers = {"bins": _bins, "optimiser": _optimiser, "training": _training, "penalties": _penalties}
    told = []
    for what, tell in tellers.items():
        for name in DATA_SETS:
            if f"why-{name}-{what}" in results:
                told += [*tell(name, results[f"why-{name}-{what}"]), ""]
    return [*lines, *told] if told or any(beyond.values()) else []


def _bins(name: str, found: Value) -> list[str]:
    gains = {column: score - found["width"] for column, score in found["columns"].items()}
    order = sorted(gains, key=lambda column: -gains[column])
    first = order[0]
    text = (
        f"**Bins ({TITLES[name]}).** The logistic with λ = {found['lambda']:g} has {found['width']:.4f} in "
        f"the authors' bins, {found['plain width']:.4f} if their edges are not rounded, and "
        f"{found['quantile']:.4f} in quantile bins. Most of it is `{first}`, worth {gains[first]:+.4f} "
        f"alone: {found['fullest'][first]:.0%} of the records are in one of its bins of equal width. One "
        f"column at a time in quantile bins:"
    )
    rows = [
        [f"`{c}`", f"{found['fullest'][c]:.0%}", f"{found['columns'][c]:.4f}", f"{gains[c]:+.4f}"]
        for c in order
    ]
    return [text, "", *table(["column", "records in its fullest bin of equal width", "NLLH", "gain"], rows)]


def _optimiser(name: str, found: Value) -> list[str]:
    text = (
        f"**The logistic's optimiser ({TITLES[name]}).** Where the paper says L-BFGS, the published code "
        f"takes {published.NOTEBOOK_ITERATIONS} steps of {published.NOTEBOOK_STEP} of a preconditioned "
        f"gradient descent. NLLH on training / test records of that descent in the authors' bins, with the "
        f"tables of single features beside those of pairs as they have them, after so many steps, and of the "
        f"optimum it goes to:"
    )
    steps = list(next(iter(found.values()))["steps"])
    rows = []
    for l2, runs in found.items():
        cells = [_two(runs["steps"][step]) for step in steps]
        cells += [_two(runs["optimum"]), _two(runs["optimum of pairs alone"])]
        rows.append([f"λ = {float(l2):g}", *cells, *([_notebook(float(l2))] if name == "adult" else [])])
    header = ["", *(f"{step} steps" for step in steps), "optimum", "optimum, pairs alone"]
    lines = [text, "", *table([*header, *(["authors' notebook"] if name == "adult" else [])], rows)]
    if name == "adult":
        lines += ["", *_not_converged(found)]
    return lines


def _two(scores: list[float]) -> str:
    return " / ".join(f"{score:.4f}" for score in scores)


def _notebook(l2: float) -> str:
    train = published.NOTEBOOK_ADULT_LOGISTIC_TRAIN[int(l2)]
    return f"{train:.4f} / {published.NOTEBOOK_ADULT['logistic'][int(l2)]:.4f}"


def _not_converged(found: Value) -> list[str]:
    """Where along the descent the authors' figures lie."""
    places = []
    for l2, runs in found.items():
        theirs = published.NOTEBOOK_ADULT_LOGISTIC_TRAIN[int(float(l2))]
        curve = {step: scores[0] for step, scores in runs["steps"].items()}
        places.append(f"for λ = {float(l2):g} {_between(curve, theirs, '{} steps')}")
    theirs, optimum = published.NOTEBOOK_ADULT["logistic"][10], found["10.0"]["optimum"][1]
    return [
        f"The paper's {published.NLLH['adult']['logistic']} is the notebook's {theirs:.4f} with λ = 10. By "
        f"its NLLH on the training records the notebook's logistic lies {'; '.join(places)} of the descent. "
        f"The optimum, which is one whatever the optimiser, has {optimum - theirs:+.4f} against it on the "
        f"test records."
    ]


def _training(name: str, found: Value) -> list[str]:
    lambdas = sorted(found["authors"], key=float)
    rows = [
        ["trained as the authors' code does", *(f"{found['authors'][l2]:.4f}" for l2 in lambdas)],
        ["trained as agglearn does", *(f"{found['ours'][l2]:.4f}" for l2 in lambdas)],
    ]
    if name == "adult":
        notebook = published.NOTEBOOK_ADULT["field"]
        rows.append(["authors' notebook", *(f"{notebook[int(float(l2))]:.4f}" for l2 in lambdas)])
    text = (
        f"**Training the field ({TITLES[name]}).** In the authors' bins and tables, by λ_θ; theirs is "
        f"{published.NOTEBOOK_ITERATIONS} iterations of 10,000 chains from an independent start, with steps "
        f"of {published.NOTEBOOK_STEP} and λ_μ = 1 (toward the start; theirs toward 0). The paper has "
        f"{published.NLLH[name]['field']}. With other seeds of the chains and nothing else changed, "
        f"agglearn's field of the pairs has {spread(found['seeds'])}."
    )
    return [text, "", *table(["", *(f"λ_θ = {float(l2):g}" for l2 in lambdas)], rows)]


def _penalties(name: str, found: Value) -> list[str]:
    paper = published.NLLH[name]
    bayes = _between(found["naive_bayes"], paper["naive_bayes"], "λ = {}")
    pair = _between(found["best_pair"], paper["best_pair"], "λ = {}")
    return [
        f"**Penalties of the baselines ({TITLES[name]}).** In the authors' bins, by their L2 penalty, on the "
        f"test records: the best pair has up to {max(found['best_pair'].values()):.4f}, and the paper's "
        f"{paper['best_pair']} {pair}. Naive Bayes without early stopping has up to "
        f"{max(found['naive_bayes'].values()):.4f}, and the paper's {paper['naive_bayes']} {bayes}; what "
        f"early stopping gives stands in the table above."
    ]


def _between(curve: Mapping[str, float], target: float, words: str) -> str:
    """Where a curve first passes a value, in words."""
    points = sorted((float(at), score) for at, score in curve.items())
    for (a, low), (b, high) in pairwise(points):
        if min(low, high) <= target <= max(low, high):
            first, second = (words.format(f"{x:g}") for x in (a, b))
            return f"between {first} ({low:.4f}) and {second} ({high:.4f})"
    nearest = min(points, key=lambda point: abs(point[1] - target))
    return f"nowhere on the way, nearest at {words.format(f'{nearest[0]:g}')} ({nearest[1]:.4f})"
