"""How good predictions are, judged on records.

The normalised log-likelihood is NLLH = 1 − log loss / entropy, with the entropy of the labels that are
scored: 0 for a constant that knows their rate, 1 for an oracle, below 0 for worse than the constant.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from scipy.stats import rankdata

from agglearn.errors import InputError
from agglearn.report.document import Column, Document, Figure, Grid, Measured, number
from agglearn.report.finding import Finding

Floats = npt.NDArray[np.float64]

_BINS = 10  # of a calibration: deciles, as people read them


@dataclass(frozen=True)
class CalibrationBin:
    """Records with predictions of like size: what was predicted, and what came.

    ``standard_error`` is that of the observed rate if the predictions were right: √Σp(1−p) / count.
    """

    count: int
    predicted: float
    observed: float
    standard_error: float


@dataclass(frozen=True)
class RecordScore(Finding):
    """What records say of predictions.

    Attributes
    ----------
    nllh
        Normalised log-likelihood, 1 − log loss / entropy of the labels.
    log_loss
        Mean of −log of the probability given to the label that came, in nats.
    auc
        Share of (positive, negative) pairs that are in the right order, ties counting one half.
    brier
        Mean square of probability minus label.
    rows, positives
        Records scored, and the positive ones among them.
    calibration
        About ten bins of equal count, by rising prediction; equal predictions share a bin.
    """

    nllh: float
    log_loss: float
    auc: float
    brier: float
    rows: int
    positives: int
    calibration: tuple[CalibrationBin, ...]

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON values."""
        return {**asdict(self), "calibration": [asdict(b) for b in self.calibration]}

    def document(self) -> Document:
        """The score, in words and numbers."""
        scores = (
            ("NLLH", self.nllh, "1 − log loss / entropy of the label"),
            ("log loss", self.log_loss, None),
            ("AUC", self.auc, None),
            ("Brier", self.brier, None),
        )
        bins = tuple((b.count, b.predicted, Measured(b.observed, b.standard_error)) for b in self.calibration)
        return Document(
            title=f"{self.rows:,} records, {self.positives / self.rows:.2%} positive",
            blocks=(
                Grid((Column(""), Column("", ".4f"), Column("")), scores),
                Grid(
                    (number("records"), number("predicted", ".2%"), number("observed", ".2%")),
                    bins,
                    caption="calibration, by rising prediction:",
                ),
                Figure(
                    "calibration",
                    x=tuple(b.predicted for b in self.calibration),
                    y=tuple(b.observed for b in self.calibration),
                    kind="diagonal",
                    error=tuple(b.standard_error for b in self.calibration),
                    x_name="predicted rate",
                    y_name="observed rate",
                ),
            ),
            data=self.to_json(),
        )


def score_predictions(y: npt.ArrayLike, log_odds: npt.ArrayLike) -> RecordScore:
    """Judge predicted log-odds by the labels that came.

    Parameters
    ----------
    y
        Labels, 0 or 1.
    log_odds
        The predicted log-odds of each record.

    Raises
    ------
    InputError
        There is no record, or all labels are equal, which leaves NLLH and AUC undefined.
    """
    positive = check_labels(y, "the records to score")
    z = np.asarray(log_odds, np.float64)
    if z.shape != positive.shape:
        raise InputError(f"{z.size:,} predictions were given for {positive.size:,} labels")
    if np.isnan(z).any():
        raise InputError(f"prediction {int(np.isnan(z).argmax()) + 1} is not a number")
    p = expit(z)
    loss = mean_log_loss(positive, z)
    return RecordScore(
        nllh=1.0 - loss / entropy(positive),
        log_loss=loss,
        auc=_auc(positive, z),
        brier=float(np.mean((p - positive) ** 2)),
        rows=int(positive.size),
        positives=int(positive.sum()),
        calibration=_calibration(positive, z, p),
    )


def check_labels(y: npt.ArrayLike, where: str) -> npt.NDArray[np.bool_]:
    """Labels as booleans, or why nothing can be scored by them; ``where`` names the records."""
    labels = np.asarray(y)
    if labels.ndim != 1 or not labels.size:
        raise InputError(f"{where}: there is no record")
    positive: npt.NDArray[np.bool_] = labels == 1
    if not (positive | (labels == 0)).all():
        raise InputError(f"{where}: labels must be 0 or 1")
    if positive.all() or not positive.any():
        word = "positive" if positive[0] else "negative"
        raise InputError(
            f"{where}: every label is {word}, so NLLH is not defined; records of both are needed"
        )
    return positive


def mean_log_loss(positive: npt.NDArray[np.bool_], log_odds: Floats) -> float:
    """Mean of log(1 + e^−z) over positives and log(1 + e^z) over negatives, at any size of z."""
    return float(np.logaddexp(0.0, np.where(positive, -log_odds, log_odds)).mean())


def entropy(positive: npt.NDArray[np.bool_]) -> float:
    """Entropy of the labels in nats: the log loss of a constant that knows their rate."""
    rate = positive.mean()
    return float(-rate * np.log(rate) - (1 - rate) * np.log1p(-rate))


def nllh(positive: npt.NDArray[np.bool_], log_odds: Floats) -> float:
    """Normalised log-likelihood alone, for a search that needs nothing else."""
    return 1.0 - mean_log_loss(positive, log_odds) / entropy(positive)


def _auc(positive: npt.NDArray[np.bool_], z: Floats) -> float:
    """The Mann-Whitney statistic: mean ranks give ties one half."""
    n1 = int(positive.sum())
    n0 = positive.size - n1
    ranks = rankdata(z)[positive].sum()
    return float((ranks - n1 * (n1 + 1) / 2) / (n1 * n0))


def _calibration(positive: npt.NDArray[np.bool_], z: Floats, p: Floats) -> tuple[CalibrationBin, ...]:
    order = np.argsort(z, kind="stable")
    ranked = z[order]
    wanted = ranked[np.arange(1, _BINS) * z.size // _BINS]
    # A bin begins at the first record of its value, so that equal predictions are never parted.
    starts = np.unique([0, *np.searchsorted(ranked, wanted)])
    return tuple(
        CalibrationBin(
            count=len(rows),
            predicted=float(p[rows].mean()),
            observed=float(positive[rows].mean()),
            standard_error=float(np.sqrt((p[rows] * (1 - p[rows])).sum()) / len(rows)),
        )
        for rows in np.split(order, starts[1:])
    )
