"""What is said of private tables, whose noise moves counts and sums together, is as loud as it should be."""

from __future__ import annotations

import numpy as np
import pytest

import agglearn
from agglearn import Model
from agglearn.privacy.release import noisy_by
from agglearn.tables.data import AggregatedData
from agglearn.tables.drift import drift
from agglearn.tables.noise import Noise
from agglearn.train.settings import FitSettings
from agglearn.trust.diagnosis import diagnose
from agglearn.trust.score import score_tables
from tests.fields import KnownField, random_field

CARDS = (4, 3, 5, 3)
SIGMA = 60.0  # far more than sampling: a cell of 10,000 records in 12 has 29


@pytest.fixture(scope="module")
def field() -> KnownField:
    return random_field(1, CARDS, 0.4)


@pytest.fixture(scope="module")
def model(field: KnownField) -> Model:
    """So near the truth that noise is all there is to be seen."""
    return agglearn.fit(field.tables(400_000, 1), FitSettings(chains=10_000, seed=1))


def private(field: KnownField, seed: int) -> AggregatedData:
    rng = np.random.default_rng(seed)
    exact = field.tables(10_000, 100 + seed)
    noise = Noise("gaussian", SIGMA, "classes")
    return noisy_by(exact, noise, lambda n: n + np.rint(rng.normal(0, SIGMA, n.shape)).astype(np.int64))


@pytest.mark.parametrize(("labels", "sigma"), [(1, 5.0), (3, 5.0)])
def test_the_noise_of_a_rate_is_that_of_drawn_noise(labels: int, sigma: float) -> None:
    rng = np.random.default_rng(0)
    negatives, positives = rng.normal(0, sigma, (2, labels, 200_000))
    count = (negatives + positives).mean(axis=0)  # as a table is put together from its classes
    total = (count + positives[0] - negatives[0]) / 2
    moments = Noise("gaussian", sigma, "classes").moments(labels)
    for q in (0.1, 0.5, 0.9):
        drawn = float(np.var(total - q * count))
        assert moments.of_rate(np.array(q)) == pytest.approx(
            drawn, rel=0.02
        )  # 6 standard errors of a variance


def test_two_releases_of_the_same_law_show_no_drift(field: KnownField) -> None:
    found = [t for k in range(8) for t in drift(private(field, k), private(field, 50 + k)).tables]
    for z in ([t.records_z for t in found], [t.label_z for t in found]):
        told = np.array([one for one in z if one is not None])
        assert len(told) > 30
        # Tables of a release share margins: over 48 of them a mean of ± 0.3 is two standard errors.
        assert abs(told.mean()) < 0.6
        assert 0.5 < told.std() < 1.6


def test_a_right_model_is_as_far_from_private_tables_as_their_noise(field: KnownField, model: Model) -> None:
    squares = {"records": [], "positives": [], "score": []}  # type: dict[str, list[float]]
    for seed in range(4):
        data = private(field, seed)
        for one in diagnose(model, data).misfit:
            squares["records"].append(one.z_records**2)
            squares["positives"].append(one.z_positives**2)
        score = score_tables(model, data)
        assert score.calibration is not None
        squares["score"] += [
            t.chi2 / t.cells for t in score.calibration.tables if len(t.name.split(" × ")) == 2
        ]
    for name, found in squares.items():
        # Over 24 tables of about 12 cells: a standard deviation of √(2/12/24) = 0.08, and more, as they share
        # margins.
        assert 0.75 < np.mean(found) < 1.25, name
