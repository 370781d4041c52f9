"""What every model of the zoo is judged by, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import numpy.typing as npt

from agglearn.judge.scores import score_predictions
from evidence.page import spread
from evidence.runner import Results, Value
from evidence.zoo.sets import SETS


def judged(positive: npt.NDArray[np.bool_], log_odds: npt.NDArray[np.float64]) -> Value:
    """NLLH, AUC and calibration on the test records.

    ``ece`` is the expected calibration error: the mean distance of the observed from the predicted rate over
    tenths of the records, by rising prediction. ``slope`` is that of the label on the predicted log-odds: 1
    where they are as far apart as they should be, below 1 where they are too far.
    """
    score = score_predictions(positive, log_odds)
    off = [b.count * abs(b.predicted - b.observed) for b in score.calibration]
    return {
        "nllh": round(score.nllh, 5),
        "auc": round(score.auc, 5),
        "ece": round(sum(off) / score.rows, 5),
        "slope": _slope(positive, log_odds),
    }


def _slope(positive: npt.NDArray[np.bool_], log_odds: npt.NDArray[np.float64]) -> float | None:
    """The slope b of log-odds a + b·z fitted to the labels; None where z is constant."""
    from sklearn.linear_model import LogisticRegression

    if np.ptp(log_odds) < 1e-9:
        return None
    fitted = LogisticRegression(C=np.inf).fit(np.clip(log_odds, -30, 30)[:, None], positive)
    return round(float(fitted.coef_[0, 0]), 4)


def by_set(results: Results) -> dict[str, list[Value]]:
    """What is stored, split by split, for each data set that has some."""
    found = {name: list(results.starting(f"{name}-seed").values()) for name in SETS}
    return {name: some for name, some in found.items() if some}


def column(found: Sequence[Value], key: str, digits: int) -> str:
    """The mean of a finding over splits, with its spread; a dash where it is not there."""
    values = [one[key] for one in found if one.get(key) is not None]
    return spread(values, digits) if values else "–"


def mean(found: Sequence[Value], key: str) -> float:
    """The mean of a finding over splits."""
    return fmean(one[key] for one in found)
