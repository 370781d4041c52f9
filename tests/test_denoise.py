"""Noisy tables relieved of noise, and what fits make of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from agglearn import FitSettings, aggregate, fit
from agglearn.datasets import AdsLog
from agglearn.field.denoise import denoised
from agglearn.field.dependence import raked
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, TableNoise
from agglearn.field.shrink import shrunk
from agglearn.judge.scores import nllh
from agglearn.privacy.release import simulate
from tests.fields import pairs, random_field

Floats = npt.NDArray[np.float64]

LAYOUT = pairs((4, 3, 5, 3, 6))


def noisy(problem: Problem, sigma: float, seed: int = 0) -> Problem:
    """Noise on the negatives and on the positives of every cell."""
    rng = np.random.default_rng(seed)
    negatives, positives = (v + rng.normal(0, sigma, v.size) for v in (problem.d - problem.c, problem.c))
    each = np.full(problem.layout.n_tables, sigma)
    noise = TableNoise(np.sqrt(2) * each, each, each**2)
    return replace(problem, d=negatives + positives, c=positives, noise=noise)


@pytest.fixture(scope="module")
def exact() -> Problem:
    return random_field(3, LAYOUT, (0.4, 0.5), -1.0).problem(20_000, 5)


def test_exact_tables_are_left_alone(exact: Problem) -> None:
    assert denoised(exact) is exact


def test_as_the_noise_goes_to_nothing_the_tables_come_back(exact: Problem) -> None:
    clean = denoised(noisy(exact, 1e-3))
    # Raking to margins moves a cell by about the noise of a margin.
    np.testing.assert_allclose(clean.d, exact.d, atol=0.05)
    np.testing.assert_allclose(clean.c, exact.c, atol=0.05)
    assert clean.rows == pytest.approx(exact.rows, abs=0.05)
    assert clean.effects is not None
    assert (clean.effects.noisy < 1e-6).all()


def test_tables_agree_afterwards_and_hold_no_impossible_number(exact: Problem) -> None:
    clean = denoised(noisy(exact, 30.0))
    assert (clean.c >= 0).all()
    assert (clean.d >= clean.c).all()
    margins = [clean.layout.table(clean.c, t).sum(axis=1) for t in range(4)]  # of the first feature
    for margin in margins[1:]:
        np.testing.assert_allclose(margin, margins[0], rtol=1e-3, atol=0.5)


@pytest.mark.parametrize("sigma", [5.0, 30.0, 150.0])
def test_what_is_left_is_nearer_the_truth_than_the_noise(exact: Problem, sigma: float) -> None:
    given = noisy(exact, sigma)
    clean = denoised(given)

    def off(problem: Problem, which: str) -> float:
        return float(np.square(getattr(problem, which) - getattr(exact, which)).mean())

    # 0.2 to 0.6 of the squares were seen to be left.
    for which in ("d", "c"):
        assert off(clean, which) < 0.75 * off(given, which)


def test_differences_that_are_noise_vanish_and_others_stay() -> None:
    rng = np.random.default_rng(1)
    expected, variance = np.full(4000, 100.0), np.full(4000, 25.0)
    only = rng.normal(0, 5, 4000)
    assert np.square(shrunk(only, expected, variance)).mean() < 0.05 * np.square(only).mean()
    truth = np.where(rng.random(4000) < 0.1, rng.normal(0, 60, 4000), 0.0)
    seen = truth + rng.normal(0, 5, 4000)
    found = shrunk(seen, expected, variance)
    # A tenth of the differences is real: an oracle would leave about a tenth of the noise's squares.
    assert np.square(found - truth).mean() < 0.3 * np.square(seen - truth).mean()
    np.testing.assert_array_equal(shrunk(seen, expected, np.zeros(4000)), seen)


def test_raking_brings_a_table_to_its_margins_and_keeps_its_interaction() -> None:
    table = np.array([[4.0, 1.0], [2.0, 3.0]])
    new = raked(table, np.array([30.0, 10.0]), np.array([25.0, 15.0]))
    np.testing.assert_allclose(new.sum(axis=1), [30, 10])
    np.testing.assert_allclose(new.sum(axis=0), [25, 15])
    odds = [t[0, 0] * t[1, 1] / (t[0, 1] * t[1, 0]) for t in (table, new)]
    assert odds[1] == pytest.approx(odds[0])


def test_tables_that_are_not_plain_stay_as_they_are() -> None:
    layout = Layout.hashed((4, 5, 3), [(0, 1), (1, 2)], [7, 0])
    d = np.array([*[100.0] * 7, *[46.0] * 15])
    sigma = np.full(2, 3.0)
    problem = Problem(layout, d, d / 4, 700.0, 175.0, noise=TableNoise(sigma, sigma))
    np.testing.assert_array_equal(denoised(problem).d[:7], d[:7])


def test_a_default_fit_of_private_tables_is_well_above_a_constant() -> None:
    log = AdsLog(8, 12, click_rate=0.3, seed=1)
    tables = aggregate(log.to_table(*log.sample(30_000, 2)), "click", categorical=["*"])
    codes, y = log.sample(20_000, 3)
    coded = tables.schema.encode(log.to_table(codes, y))
    settings = FitSettings(chains=3000)
    scores = {
        epsilon: nllh(y == 1, fit(simulate(tables, epsilon, seed=4), settings).field.log_odds(coded))
        for epsilon in (1.0, 10.0)
    }
    whole = nllh(y == 1, fit(tables, settings).field.log_odds(coded))
    assert 0.3 * whole < scores[1.0] < scores[10.0] < whole + 0.01
