"""Scores of predictions against scikit-learn, and at the edges where a naive formula breaks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from agglearn.errors import InputError
from agglearn.judge.scores import RecordScore, score_predictions

Floats = npt.NDArray[np.float64]


def simulated(seed: int, n: int = 5000) -> tuple[npt.NDArray[np.uint8], Floats]:
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.0, 1.5, n)
    return (rng.random(n) < expit(z)).astype(np.uint8), z


def test_scores_are_those_of_scikit_learn() -> None:
    y, z = simulated(0)
    score = score_predictions(y, z)
    p, rate = expit(z), y.mean()
    assert score.log_loss == pytest.approx(log_loss(y, p))
    assert score.auc == pytest.approx(roc_auc_score(y, z))
    assert score.brier == pytest.approx(brier_score_loss(y, p))
    assert score.nllh == pytest.approx(1 - log_loss(y, p) / log_loss(y, np.full(len(y), rate)))
    assert (score.rows, score.positives) == (5000, int(y.sum()))


def test_ties_count_one_half_in_the_auc() -> None:
    y, z = simulated(1)
    assert score_predictions(y, z.round()).auc == pytest.approx(roc_auc_score(y, z.round()))
    assert score_predictions(y, np.zeros(len(y))).auc == 0.5


def test_the_base_rate_scores_zero_and_an_oracle_one() -> None:
    y = np.array([0, 0, 0, 1])
    assert score_predictions(y, np.full(4, np.log(1 / 3))).nllh == pytest.approx(0.0, abs=1e-15)
    oracle = score_predictions(y, [-np.inf, -np.inf, -np.inf, np.inf])
    assert (oracle.nllh, oracle.log_loss, oracle.auc, oracle.brier) == (1.0, 0.0, 1.0, 0.0)


def test_large_log_odds_lose_their_own_size_and_do_not_overflow() -> None:
    assert score_predictions([1, 0], [-800.0, 900.0]).log_loss == pytest.approx(850.0)


def test_calibration_bins_hold_all_records_in_tenths() -> None:
    y, z = simulated(2)
    bins = score_predictions(y, z).calibration
    assert [b.count for b in bins] == [500] * 10
    ordered = np.argsort(z)
    for k, b in enumerate(bins):
        rows = ordered[500 * k : 500 * (k + 1)]
        assert b.predicted == pytest.approx(expit(z[rows]).mean())
        assert b.observed == pytest.approx(y[rows].mean())


def test_right_predictions_are_within_the_standard_errors() -> None:
    """Σ((observed − predicted)/se)² of 100 seeds × 10 bins is χ² of 1000 degrees: 1000 ± 5·√2000."""
    bins = [b for seed in range(100) for b in score_predictions(*simulated(seed, 2000)).calibration]
    chi2 = sum(((b.observed - b.predicted) / b.standard_error) ** 2 for b in bins)
    assert len(bins) == 1000
    assert abs(chi2 - 1000) < 5 * np.sqrt(2000)


def test_equal_predictions_share_a_calibration_bin() -> None:
    y = np.array([0, 1] * 50)
    z = np.array([0.0] * 73 + [1.0] * 27)
    assert [b.count for b in score_predictions(y, z).calibration] == [73, 27]
    assert [b.count for b in score_predictions([0, 1, 1], [1.0, 2.0, 3.0]).calibration] == [1, 1, 1]


def test_the_json_holds_every_number() -> None:
    document = score_predictions(*simulated(3)).to_json()
    assert document.keys() == set(RecordScore.__dataclass_fields__)
    assert document["calibration"][0].keys() == {"count", "predicted", "observed", "standard_error"}


@pytest.mark.parametrize(
    ("y", "z", "why"),
    [
        ([1, 1], [0.0, 1.0], "every label is positive"),
        ([0, 0], [0.0, 1.0], "every label is negative"),
        ([], [], "no record"),
        ([0, 2], [0.0, 1.0], "0 or 1"),
        ([0, 1], [0.0], "1 predictions were given for 2 labels"),
        ([0, 1], [0.0, np.nan], "prediction 2 is not a number"),
    ],
)
def test_what_cannot_be_scored_is_refused(y: list[int], z: list[float], why: str) -> None:
    with pytest.raises(InputError, match=why):
        score_predictions(y, z)
