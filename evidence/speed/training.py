"""Fitting from tables beside a logistic regression on the records: time, and quality on held-out records.

The field is fitted with its defaults, from tables to weights. The rival is scikit-learn's
`LogisticRegression(lbfgs, max_iter=200)` on the sparse one-hot of the same cells; its penalty is chosen on a
fifth of the training records, and neither that nor making the one-hot is counted in its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from agglearn.errors import InputError
from agglearn.field.problem import make_problem
from agglearn.judge.baselines import LogisticModel, logistic, one_hot
from agglearn.judge.contenders import climb
from agglearn.records.split import assign
from agglearn.train.loop import Fit, fit
from agglearn.train.settings import FitSettings
from evidence.speed.curves import Curve, learning_curve
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_least, at_most, not_measured
from evidence.splits import TITLES, HeldOut, Split, split
from evidence.timing import THREADS, own_times, wall

TITLE = "Training"
SECTION = "training"
_FIELD, _LOGISTIC = "field, from tables", "logistic, from records"
_PENALTIES = [2.0**k for k in range(11)]


def run(config: Sizes) -> list[Result]:
    """Measure both data sets."""
    results = _compare([split("adult", "quantile", 0)], config, 0.003)
    try:
        splits = [split("bank", "quantile", seed) for seed in config.bank_seeds]
    except InputError as error:
        return [*results, not_measured(SECTION, "Bank", str(error))]
    return results + _compare(splits, config, 0.002)


def _compare(splits: Sequence[Split], config: Sizes, tolerance: float) -> list[Result]:
    """Time, and NLLH within a tolerance of the logistic's, over the splits of one data set."""
    name, layout = TITLES[splits[0].name], splits[0].whole.layout
    rivals = [_Rival(parts, config.logistic_iterations[-1]) for parts in splits]
    rows = [_measure(parts, rival, config) for parts, rival in zip(splits, rivals, strict=True)]
    ours, theirs, our_nllh, their_nllh = (fmean(column) for column in zip(*rows, strict=True))
    setting = f"{len(splits[0].whole.y):,} records, {layout.n_tables} tables, {layout.n_cells:,} cells"
    if len(splits) > 1:
        setting += f", mean of {len(splits)} splits"
    speed = at_most(
        SECTION,
        f"{name}, time of fit / logistic's",
        ours / theirs,
        1.0,
        setting=setting,
        ours_s=ours,
        logistic_s=theirs,
    )
    quality = at_least(
        SECTION,
        f"{name}, NLLH on held-out records − logistic's",
        our_nllh - their_nllh,
        -tolerance,
        "",
        setting=setting,
        ours=f"{our_nllh:.4f}",
        logistic=f"{their_nllh:.4f}",
        logistic_penalty=", ".join(f"{rival.l2:g}" for rival in rivals),
    )
    quality.curves = {
        _FIELD: learning_curve(splits[0].whole.data, FitSettings(), splits[0].test.held_out),
        _LOGISTIC: rivals[0].curve(config.logistic_iterations),
    }
    return [speed, quality]


def _measure(parts: Split, rival: _Rival, config: Sizes) -> tuple[float, float, float, float]:
    """Seconds of the field and of the logistic, and the NLLH of each."""
    fitted: list[Fit] = []
    skyline: list[LogisticModel] = []

    def ours() -> float:
        return wall(lambda: fitted.append(fit(make_problem(parts.whole.data), threads=THREADS)))

    def theirs() -> float:
        skyline.append(rival.fit())
        return skyline[-1].seconds  # scikit-learn's fit alone

    seconds = own_times([ours, theirs], config.fit_repeat)
    scores = [parts.test.held_out.nllh(model) for model in (fitted[-1].field, skyline[-1])]
    return seconds[0], seconds[1], scores[0], scores[1]


class _Rival:
    """The logistic on one split."""

    def __init__(self, parts: Split, iterations: int) -> None:
        self._train, self._test, self._iterations = parts.whole, parts.test.held_out, iterations
        self._design = one_hot(self._train.codes, self._train.layout)
        self.l2 = self._best_penalty()

    def fit(self, iterations: int | None = None) -> LogisticModel:
        """Fit all training records, in as many iterations as are allowed."""
        train, most = self._train, iterations or self._iterations
        return logistic(train.codes, train.y, train.layout, self.l2, max_iter=most, design=self._design)

    def curve(self, iterations: Sequence[int]) -> Curve:
        """NLLH on the held-out records with so many iterations, against the seconds they take."""
        models = [self.fit(n) for n in iterations]
        return [(m.seconds, self._test.nllh(m)) for m in models]

    def _best_penalty(self) -> float:
        """The penalty of greatest NLLH on a fifth of the training records, fitted on the others."""
        train = self._train
        is_valid = assign(0, len(train.y), 0, {"valid": 0.2}) == 1
        codes, y, design = train.codes[:, ~is_valid], train.y[~is_valid], self._design[~is_valid]
        valid = HeldOut(train.codes[:, is_valid], train.y[is_valid] == 1)

        def score(l2: float) -> float:
            model = logistic(codes, y, train.layout, l2, max_iter=self._iterations, design=design)
            return valid.nllh(model)

        return climb(_PENALTIES, score, 16.0)
