"""Fitting from tables beside a logistic regression on the records: time, and quality on held-out records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from agglearn.baselines import LogisticModel, logistic, one_hot
from agglearn.errors import InputError
from agglearn.field.problem import make_problem
from agglearn.field.settings import FitSettings
from agglearn.field.train import Fit, fit
from benchmarks.config import Config
from benchmarks.curves import Curve, learning_curve
from benchmarks.measure import THREADS, Result, at_least, at_most, not_measured, own_times, wall
from benchmarks.problems import Split, adult, bank

SUBJECT = "training"
_LAMBDA = 16.0  # the logistic's best of the powers of 4, chosen on validation records of both sets
FIELD, LOGISTIC = "field, from the tables", "logistic, from the records"


def run(config: Config) -> list[Result]:
    """Measure both data sets."""
    results = _compare([adult()], config, 0.003)
    try:
        splits = [bank(seed) for seed in config.bank_seeds]
    except InputError as error:
        return [*results, not_measured(SUBJECT, "Bank", str(error))]
    return results + _compare(splits, config, 0.002)


def _compare(splits: Sequence[Split], config: Config, tolerance: float) -> list[Result]:
    """Time, and NLLH within a tolerance of the logistic's, over the splits of one data set."""
    name, layout = splits[0].name, splits[0].layout
    rows = [_measure(split, config) for split in splits]
    ours, theirs, our_nllh, their_nllh = (fmean(column) for column in zip(*rows, strict=True))
    setting = f"{len(splits[0].y):,} records, {layout.n_tables} tables, {layout.n_cells:,} cells"
    if len(splits) > 1:
        setting += f", mean of {len(splits)} splits"
    what = f"{name}, time of fit / logistic's"
    speed = at_most(SUBJECT, what, ours / theirs, 1.0, setting=setting, ours_s=ours, logistic_s=theirs)
    what = f"{name}, NLLH on held-out records − logistic's"
    gap = our_nllh - their_nllh
    quality = at_least(
        SUBJECT, what, gap, -tolerance, "", setting=setting, ours=our_nllh, logistic=their_nllh
    )
    quality.curves = {
        FIELD: learning_curve(splits[0].data, FitSettings(), splits[0].test),
        LOGISTIC: _logistic_curve(splits[0], config.logistic_iterations),
    }
    return [speed, quality]


def _measure(split: Split, config: Config) -> tuple[float, float, float, float]:
    """Seconds of the field and of the logistic, and the NLLH of each."""
    design = one_hot(split.codes, split.layout)
    iterations = config.logistic_iterations[-1]
    fitted: list[Fit] = []
    skyline: list[LogisticModel] = []

    def ours() -> float:
        return wall(lambda: fitted.append(fit(make_problem(split.data), threads=THREADS)))

    def theirs() -> float:
        skyline.append(_logistic(split, design, iterations))
        return skyline[-1].seconds  # scikit-learn's fit alone

    seconds = own_times([ours, theirs], config.fit_repeat)
    model = partial(split.test.nllh, split.layout)
    return (
        seconds[0],
        seconds[1],
        model(fitted[-1].theta, fitted[-1].intercept),
        model(skyline[-1].theta, skyline[-1].intercept),
    )


def _logistic(split: Split, design: object, iterations: int) -> LogisticModel:
    return logistic(split.codes, split.y, split.layout, _LAMBDA, max_iter=iterations, design=design)


def _logistic_curve(split: Split, iterations: Sequence[int]) -> Curve:
    """NLLH on the held-out records when the logistic may do so many iterations, against seconds."""
    design = one_hot(split.codes, split.layout)
    models = [_logistic(split, design, n) for n in iterations]
    return [(m.seconds, split.test.nllh(m.layout, m.theta, m.intercept)) for m in models]
