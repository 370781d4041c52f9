"""Intervals of predictions and weights: what they hold, what they are made of, and how to get them."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit
from scipy.stats import binom

import agglearn
from agglearn.errors import InputError, TooLargeError
from agglearn.field.information import Information
from agglearn.field.layout import Layout
from agglearn.field.population import Chains
from agglearn.field.problem import TableNoise
from agglearn.model.draw import population
from agglearn.runtime.random import Use
from agglearn.tables.data import AggregatedData
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.train.state import Iteration
from agglearn.trust.intervals import (
    Posterior,
    left_to_go,
    model_posterior,
    posterior,
    posterior_by_table,
)
from agglearn.trust.prior import Normals, learn_prior, mean_square
from tests.conftest import Cli
from tests.fields import KnownField, cells_of, columns, pairs, random_field, with_noise

CARDS = (4, 3, 5, 3)
LAYOUT = pairs(CARDS)
INTERCEPT = -1.0
SINGLE = TrainingSettings(prior="single")  # one penalty for all tables


class Drawn:
    """A random field, records of it, the fit to their tables, and draws of the fit to find intervals with."""

    def __init__(self, seed: int, strength: float, rows: int, sigma: float = 0.0, lam: float | None = None):
        self.field = random_field([7, seed], LAYOUT, (0.4, strength), INTERCEPT)
        self.theta = self.field.theta
        problem = self.field.problem(rows, 1000 + seed)
        if sigma:
            d, c = np.random.default_rng([8, seed]).normal([problem.d, problem.c], sigma)
            problem = replace(problem, d=d, c=c)
        # Stopped early on purpose: what training left undone is part of what intervals must hold.
        settings = FitSettings(lam, engine="exact", tolerance=0.05, seed=seed, training=SINGLE)
        self.fit = fit(problem, settings, threads=1)
        self.fitted = KnownField(LAYOUT, self.fit.field.mu, self.fit.field.theta, self.fit.field.intercept)
        chains, _ = self.fitted.draw(6000, seed)
        self.codes = np.ascontiguousarray(chains.T)
        self.sigma, self.rows, self.seed = sigma, rows, seed

    def posterior(self, **options: Any) -> Posterior:
        sigma = np.full(LAYOUT.n_tables, self.sigma)
        return posterior(
            Chains(LAYOUT, self.codes),
            self.fit.field,
            self.rows,
            self.fit.state.lambda_theta,
            **{
                "noise": TableNoise(sigma, sigma) if self.sigma else None,
                "left_to_go": left_to_go(self.fit.state.history),
                "draws": 32,
                "seed": self.seed,
                "threads": 1,
                **options,
            },
        )

    def fresh(self, n: int = 1000) -> np.ndarray:
        codes, _ = self.field.draw(n, 5000 + self.seed)
        return np.ascontiguousarray(codes.T)

    def log_odds(self, codes: np.ndarray) -> np.ndarray:
        return np.asarray(dense(codes) @ np.append(self.theta, INTERCEPT))

    def information(self) -> Information:
        return Information(Chains(LAYOUT, self.codes), self.fit.field, self.rows)


def dense(codes: np.ndarray) -> np.ndarray:
    """A row of 0 and 1 for each record, written down: its cells, and 1 for the intercept."""
    n = codes.shape[1]
    rows = np.zeros((n, LAYOUT.n_cells + 1))
    rows[:, -1] = 1
    for cells in cells_of(LAYOUT, codes.T):
        rows[np.arange(n), cells] = 1
    return rows


def spread(codes: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Mean square over the draws of each record's log-odds."""
    return mean_square(Chains(LAYOUT, codes), draws)


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return Drawn(seed=3, strength=0.5, rows=5000)


# --- what they hold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strength", "rows", "sigma", "lam"),
    [
        (0.5, 5000, 0.0, None),
        (0.15, 1000, 0.0, None),
        (1.0, 20_000, 0.0, None),
        (0.5, 5000, 0.0, 20.0),
        (0.5, 5000, 10.0, 8.0),
    ],
    ids=["middle", "weak", "strong", "far too much penalty", "noise"],
)
def test_intervals_of_ninety_percent_hold_about_that_share_of_true_log_odds(
    strength: float, rows: int, sigma: float, lam: float | None
) -> None:
    held, weights = [], []
    for seed in range(8):
        one = Drawn(seed, strength, rows, sigma, lam)
        found = one.posterior()
        fresh = one.fresh()
        lower, upper = found.log_odds(fresh, 0.9, 1)
        true = one.log_odds(fresh)
        held.append(np.mean((lower <= true) & (true <= upper)))
        lower, upper = found.weights(0.9)
        weights.append(np.mean((lower <= one.theta) & (one.theta <= upper)))
    # Records of one replicate share their weights: the share held was seen to vary by 0.03 (weak) to 0.12
    # (strong) over replicates, so two standard errors of a mean of eight are 0.02 to 0.08.
    slack = 0.08 if strength == 1.0 else 0.03
    assert 0.85 - slack < np.mean(held) < 0.95 + slack / 2
    # Weights are known less well than predictions: what can move from one table to another is left to the
    # prior, and to the penalty that was fitted with. 0.77 to 0.96 were seen.
    assert 0.7 < np.mean(weights) < 0.99


@pytest.mark.parametrize(
    ("strength", "rows", "sigma"),
    [(0.5, 5000, 0.0), (0.15, 1000, 0.0), (1.0, 20_000, 0.0), (0.5, 5000, 10.0)],
    ids=["middle", "weak", "strong", "noise"],
)
def test_intervals_of_a_fit_with_a_penalty_for_each_table_hold_about_as_many(
    strength: float, rows: int, sigma: float
) -> None:
    held = []
    for seed in range(8):
        known = random_field([7, seed], LAYOUT, (0.4, strength), INTERCEPT)
        problem = known.problem(rows, 1000 + seed)
        if sigma:
            d, c = np.random.default_rng([8, seed]).normal([problem.d, problem.c], sigma)
            sigmas = np.full(LAYOUT.n_tables, sigma)
            problem = replace(problem, d=d, c=c, noise=TableNoise(sigmas, sigmas))
        run = fit(problem, FitSettings(engine="exact", seed=seed), threads=1)
        fitted, layout = run.field, run.field.layout
        chains, _ = KnownField(layout, fitted.mu, fitted.theta, fitted.intercept).draw(6000, seed)
        found = posterior_by_table(
            Chains(layout, np.ascontiguousarray(chains.T)),
            fitted,
            rows,
            run.state.penalties,
            noise=run.problem.noise,
            left_to_go=left_to_go(run.state.history),
            draws=32,
            seed=seed,
            threads=1,
        )
        codes = np.ascontiguousarray(known.draw(1000, 5000 + seed)[0].T)
        lower, upper = found.log_odds(codes, 0.9, 1)
        true = dense(codes) @ np.append(known.theta, INTERCEPT)
        held.append(np.mean((lower <= true) & (true <= upper)))
    # Measured over these eight: 0.87, 0.85, 0.96 and 0.97, with standard errors of 0.01 to 0.02. With 500
    # records it is 0.74: tables tell too little of how large weights are, and that is not in the spread.
    assert 0.8 < np.mean(held) < 0.99


@pytest.mark.parametrize(
    ("strength", "sigma", "lam"),
    [(0.5, 3.0, None), (0.5, 20.0, None), (0.5, 60.0, None), (0.15, 20.0, None), (0.5, 20.0, 60.0)],
    ids=["little noise", "noise", "much noise", "weak", "far too much penalty"],
)
def test_intervals_of_a_fit_to_noisy_tables_hold_about_as_many(
    strength: float, sigma: float, lam: float | None
) -> None:
    held = []
    for seed in range(8):
        known = random_field([7, seed], LAYOUT, (0.4, strength), INTERCEPT)
        data = with_noise(known.tables(5000, 1000 + seed), "gaussian", sigma, sigma, seed)
        model = agglearn.fit(data, FitSettings(lam, engine="exact", seed=seed), threads=1)
        codes = np.ascontiguousarray(known.draw(1000, 5000 + seed)[0].T)
        lower, upper = model_posterior(model, draws=32, seed=seed, threads=1).log_odds(codes, 0.9, 1)
        true = dense(codes) @ np.append(known.theta, INTERCEPT)
        held.append(np.mean((lower <= true) & (true <= upper)))
    # Replicates vary by 0.02 to 0.07, so two standard errors of a mean of eight are at most 0.05. Intervals
    # by the penalties of the fit, which follow what noise left of the weights, held 0.5 to 0.6 at σ = 20, 60.
    assert 0.85 - 0.03 < np.mean(held) < 0.95 + 0.04


def test_a_level_is_a_level() -> None:
    levels = (0.5, 0.8, 0.95)
    held: dict[float, list[float]] = {level: [] for level in levels}
    for seed in range(8):
        one = Drawn(seed, 0.5, 5000)
        found, fresh = one.posterior(), one.fresh()
        true = one.log_odds(fresh)
        for level in levels:
            lower, upper = found.log_odds(fresh, level, 1)
            held[level].append(float(np.mean((lower <= true) & (true <= upper))))
    for level in levels:  # as above, the spread being largest in the middle
        assert abs(np.mean(held[level]) - level) < 0.12


def test_without_what_training_left_undone_a_fit_far_from_rest_is_too_sure() -> None:
    with_it: list[float] = []
    without: list[float] = []
    for seed in range(6):
        one = Drawn(seed, 1.0, 50_000)
        fresh = one.fresh()
        true = one.log_odds(fresh)
        for left, into in ((left_to_go(one.fit.state.history), with_it), (0.0, without)):
            lower, upper = one.posterior(left_to_go=left).log_odds(fresh, 0.9, 1)
            into.append(float(np.mean((lower <= true) & (true <= upper))))
    assert np.mean(without) < 0.87  # 0.81 was seen, ± 0.05
    assert 0.85 < np.mean(with_it) < 0.99  # 0.92 was seen, ± 0.06


def test_what_is_left_to_go_is_the_way_from_the_average_to_the_last_weights() -> None:
    # Weights that have been at rest at 1 since iteration 50, and their average, which began at 20 with 0.
    average, moves = 0.0, {}
    for t in range(21, 301):
        before = average
        average += 3 / (t - 20 + 2) * ((1.0 if t > 50 else 0.0) - average)
        moves[t] = average - before
    for last in (100, 300):
        moved = sum(moves[t] for t in range(last - 9, last + 1))
        left = left_to_go([_look(last, moved)], began=20)
        at_last = np.prod([1 - 3 / (t - 20 + 2) for t in range(51, last + 1)])
        # A move over ten iterations is a derivative to within 20/t or so of itself.
        assert left == pytest.approx(at_last, rel=40 / (last - 20))


def _look(iteration: int, moved: float) -> Iteration:
    """An iteration of which nothing is told but how far predictions had moved."""
    told: dict[str, Any] = {f.name: 0 for f in fields(Iteration) if f.default is MISSING}
    return Iteration(**{**told, "iteration": iteration, "moved": moved})


# --- what they are made of --------------------------------------------------------------------------------


def test_draws_have_the_covariance_of_a_dense_computation(drawn: Drawn) -> None:
    found = drawn.posterior(draws=2000, left_to_go=0.0)
    rows = dense(drawn.codes)
    p = expit(rows @ np.append(found.centre.theta, found.centre.intercept))
    information = (rows.T * (p * (1 - p) * drawn.rows / len(rows))) @ rows
    rho = found.precision
    h = np.diag(information)[:-1]
    penalty = np.append(np.full(LAYOUT.n_cells, rho), 0.0)
    inverse = np.linalg.inv(information + np.diag(penalty))
    # The law of weights is the one thing taken over: its variance in each cell is g^α/ρ for some α.
    prior = np.append(np.asarray(_variances(drawn, found, h)), 0.0)
    covariance = inverse @ (information + np.diag(penalty**2 * prior)) @ inverse
    fresh = drawn.fresh(300)
    expected = np.einsum("ij,jk,ik->i", dense(fresh), covariance, dense(fresh))
    measured = spread(fresh, found.draws)
    # A variance from 2,000 draws has a standard error of 3.2 %; the largest of 300 is within 4 of them.
    np.testing.assert_allclose(measured, expected, rtol=4 * 0.032 + 0.01)
    assert np.mean(measured / expected) == pytest.approx(1, abs=0.03)
    squares = np.mean(found.draws[:-1].astype(float) ** 2, axis=1)
    np.testing.assert_allclose(squares, np.diag(covariance)[:-1], rtol=4 * 0.032 + 0.01)


def _variances(drawn: Drawn, found: Posterior, h: np.ndarray) -> np.ndarray:
    normals = Normals(drawn.seed, Use.PRIOR, np.zeros(LAYOUT.n_cells))
    theta = drawn.fit.field.theta
    prior = learn_prior(drawn.information(), 2 * drawn.fit.state.lambda_theta, normals, theta)
    assert prior.precision == found.precision
    return np.asarray((h / (h + found.precision)) ** prior.decline / found.precision)


def test_intervals_by_enumeration_are_those_by_many_chains(drawn: Drawn) -> None:
    law = drawn.fit.engine.population(drawn.fit.field)
    chains = Chains(LAYOUT, np.ascontiguousarray(drawn.fitted.draw(60_000, 1)[0].T))
    fresh = drawn.fresh(300)
    exact, by_chains = (
        posterior(members, drawn.fit.field, drawn.rows, drawn.fit.state.lambda_theta, draws=500, threads=1)
        for members in (law, chains)
    )
    scores = [dense(fresh) @ np.append(p.centre.theta, p.centre.intercept) for p in (exact, by_chains)]
    spreads = [spread(fresh, p.draws) for p in (exact, by_chains)]
    # Each has normal numbers of its own. Over six fields the precisions were within 2.4 % of each other, the
    # mean spreads within 3 %, and the centres within 0.01 of the spread.
    assert exact.precision == pytest.approx(by_chains.precision, rel=0.07)
    assert spreads[0].mean() == pytest.approx(spreads[1].mean(), rel=0.09)
    assert np.sqrt(np.mean((scores[0] - scores[1]) ** 2)) < 0.03 * np.sqrt(spreads[0].mean())


def test_the_centre_is_the_mean_beside_a_fit_with_the_learnt_precision(drawn: Drawn) -> None:
    found = drawn.posterior(left_to_go=0.0)
    rows = dense(drawn.codes)
    scale = drawn.rows / len(rows)
    fitted = np.append(drawn.fit.field.theta, drawn.fit.field.intercept)
    told = scale * expit(rows @ fitted) @ rows
    told[:-1] += 2 * drawn.fit.state.lambda_theta * drawn.fit.field.theta
    weights = fitted.copy()
    penalty = np.append(np.full(LAYOUT.n_cells, found.precision), 0.0)
    for _ in range(20):  # Newton's method, written down
        p = expit(rows @ weights)
        gradient = scale * p @ rows - told + penalty * weights
        bend = scale * p * (1 - p)
        weights -= np.linalg.solve((rows.T * bend) @ rows + np.diag(penalty), gradient)
    added = 0.5 * bend * (1 - 2 * p) * spread(drawn.codes, found.draws) @ rows
    to_mean = np.linalg.solve((rows.T * bend) @ rows + np.diag(penalty), added)
    weights -= to_mean
    fresh = dense(drawn.fresh())
    deviation = np.sqrt(spread(drawn.fresh(), found.draws).mean())
    gap = fresh @ (np.append(found.centre.theta, found.centre.intercept) - weights)
    assert np.sqrt(np.mean(gap**2)) < 0.05 * deviation  # steps end when they are 0.01 of it
    assert np.sqrt(np.mean((fresh @ to_mean) ** 2)) > 0.05 * deviation


def test_main_effects_of_noisy_tables_are_taken_for_as_strong_as_the_fit_has_them() -> None:
    known = random_field([7, 1], LAYOUT, (0.4, 1.0), INTERCEPT)
    data = with_noise(known.tables(5000, 1001), "gaussian", 60.0, 60.0, 1)
    model = agglearn.fit(data, FitSettings(engine="exact", seed=1), threads=1)
    assert model.record.variances is not None
    weak = model.record.variances.copy()
    weak[LAYOUT.n_tables :] = 1e-4  # what was thought of them before the fit
    mains = slice(LAYOUT.n_cells, model.layout.n_cells)
    strength = np.sqrt(np.mean(model.field.theta[mains] ** 2))
    doubted = replace(model, record=replace(model.record, variances=weak))
    draws = model_posterior(doubted, draws=32, threads=1).draws[mains]
    # Draws of effects of variance 10⁻⁴ are at most 0.01 away.
    assert 0.2 * strength < np.sqrt(np.mean(draws**2)) < 2 * strength


def test_log_odds_of_a_rare_label_lie_lower_than_their_mode() -> None:
    away = []
    for seed in range(6):
        known = random_field([7, seed], LAYOUT, (0.4, 0.5), -4.0)
        data = known.tables(5000, 1000 + seed)
        model = agglearn.fit(data, FitSettings(engine="exact", seed=seed), threads=1)
        codes = np.ascontiguousarray(known.draw(1000, 5000 + seed)[0].T)
        true = dense(codes) @ np.append(known.theta, -4.0)
        centre = model_posterior(model, draws=32, seed=seed, threads=1).centre
        away.append([np.mean(field.log_odds(codes, 1) - true) for field in (model.field, centre)])
    fitted, centred = np.mean(away, axis=0)
    # Over the six 0.26 and 0.17 were seen, and in each the centre is lower by 0.07 to 0.12.
    assert 0 < centred < 0.8 * fitted


def test_the_learnt_precision_is_that_of_the_weights_that_were_drawn() -> None:
    learnt = [1 / Drawn(seed, 0.5, 20_000).posterior(left_to_go=0.0, draws=2).precision for seed in range(8)]
    # The variance of 83 normal weights, some 40 of which predictions depend on, has a standard error of 22 %,
    # that of eight such fields 8 %.
    assert np.mean(learnt) == pytest.approx(0.25, rel=0.16)


def test_a_bootstrap_of_the_tables_scatters_as_the_draws_say() -> None:
    """Refits to tables of records of the fit scatter by A⁻¹IA⁻¹, A = I + 2λ: less than intervals do."""
    one, refits, lam = Drawn(seed=5, strength=0.5, rows=5000, lam=4.0), 60, 4.0
    fresh = one.fresh(500)
    scores = []
    for k in range(refits):
        problem = one.fitted.problem(one.rows, 9000 + k)
        again = fit(problem, FitSettings(lam, engine="exact", tolerance=0.01), threads=1)
        scores.append(dense(fresh) @ np.append(again.field.theta, again.field.intercept))
    bootstrap = np.var(scores, axis=0, ddof=1)
    information = one.information()
    off = Normals(0, Use.POSTERIOR, np.zeros(LAYOUT.n_cells)).tables(information, range(400))
    expected = spread(fresh, information.solve(off, 2 * lam, 0.001))
    # Records share directions, so the mean ratio has about the standard error of some ten variances from 60
    # refits, 6 %; what the counts alone tell of θ is left out, which makes the expected up to a fifth larger.
    assert 0.8 - 0.12 < np.mean(bootstrap / expected) < 1 + 0.12
    # The logarithm of a variance from 60 refits errs by 0.18, and they vary by 0.9 among records.
    assert np.corrcoef(np.log(bootstrap), np.log(expected))[0, 1] > 0.95
    assert np.mean(spread(fresh, one.posterior().draws)) > np.mean(expected)


def test_more_records_narrow_and_noise_widens() -> None:
    def reach(rows: int, sigma: float) -> float:
        one = Drawn(seed=2, strength=0.5, rows=rows, sigma=sigma, lam=4.0)
        lower, upper = one.posterior(left_to_go=0.0).log_odds(one.fresh(), 0.9, 1)
        return float(np.mean(upper - lower))

    assert reach(20_000, 0.0) < 0.7 * reach(2000, 0.0)  # by a third, would weights not be penalised
    assert reach(5000, 30.0) > 1.3 * reach(5000, 0.0)


def test_a_value_that_is_unknown_widens_the_interval_by_the_prior_of_its_tables(drawn: Drawn) -> None:
    found = drawn.posterior()
    fresh = drawn.fresh(200)
    unknown = fresh.copy()
    unknown[2] = CARDS[2]  # one past the last
    known_tables = [t for t, scope in enumerate(LAYOUT.scopes) if 2 not in scope]
    lower, upper = found.log_odds(unknown, 0.9, 1)
    rest = np.zeros((200, 32))
    for t in known_tables:
        shape = [CARDS[f] for f in LAYOUT.scopes[t]]
        cells = np.ravel_multi_index(tuple(fresh[f].astype(int) for f in LAYOUT.scopes[t]), shape)
        rest += found.draws[LAYOUT.offsets[t] + cells]
    rest += found.draws[-1]
    variance = np.mean(rest**2, axis=1) + (LAYOUT.n_tables - len(known_tables)) / found.precision
    factor = found.quantile(0.9)
    held_fit = upper - lower >= 2 * factor * np.sqrt(variance) * 0.999
    assert held_fit.all()
    tight = upper - lower <= 2 * factor * np.sqrt(variance) * 1.001
    assert tight.mean() > 0.9  # the others reach further to hold the fit's own prediction


def test_an_interval_holds_the_prediction_it_is_for() -> None:
    one = Drawn(seed=1, strength=0.5, rows=5000, lam=100.0)  # a fit that predicts next to nothing
    fresh = one.fresh()
    lower, upper = one.posterior().log_odds(fresh, 0.5, 1)
    fitted = dense(fresh) @ np.append(one.fit.field.theta, one.fit.field.intercept)
    assert ((lower <= fitted + 1e-6) & (fitted <= upper + 1e-6)).all()


# --- the same bits ----------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_intervals_for_any_number_of_threads(drawn: Drawn) -> None:
    fresh = drawn.fresh()
    one, two = (drawn.posterior(threads=threads).log_odds(fresh, 0.9, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, two)
    other = drawn.posterior(seed=drawn.seed + 1).log_odds(fresh, 0.9, 1)
    assert not np.array_equal(one, other)


def test_draws_do_not_depend_on_how_many_are_made_at_a_time(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = drawn.posterior().draws
    monkeypatch.setattr("agglearn.trust.intervals._WIDTH", 4)
    np.testing.assert_array_equal(drawn.posterior().draws, wide)


# --- from a model -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    codes = np.array([rng.integers(0, card, 4000) for card in CARDS])
    score = np.array([-1.0, 0.0, 0.5, 1.0])[codes[0]] + 0.5 * (codes[2] == codes[1])
    return columns(codes.T, (rng.random(4000) < expit(score - 1)).astype(int))


@pytest.fixture(scope="module")
def tables(records: dict[str, Any]) -> AggregatedData:
    return agglearn.aggregate(records, "y")


@pytest.fixture(scope="module")
def classifier(tables: AggregatedData) -> agglearn.MaxEntClassifier:
    return agglearn.MaxEntClassifier(chains=4000).fit(tables)


def test_a_classifier_gives_intervals_of_probabilities(
    classifier: agglearn.MaxEntClassifier, records: dict[str, Any], tmp_path: Path
) -> None:
    ends = classifier.predict_interval(records)
    p = classifier.predict_proba(records)[:, 1]
    assert ends.shape == (4000, 2)
    assert ((ends[:, 0] <= p + 1e-9) & (p <= ends[:, 1] + 1e-9)).all()
    narrow = classifier.predict_interval(records, level=0.5)
    assert (np.diff(narrow) < np.diff(ends)).mean() > 0.99
    classifier.save(tmp_path / "a.model")
    loaded = agglearn.MaxEntClassifier.load(tmp_path / "a.model")
    np.testing.assert_array_equal(loaded.predict_interval(records), ends)


def test_weights_have_intervals_in_the_shape_of_their_tables(
    classifier: agglearn.MaxEntClassifier, tables: AggregatedData
) -> None:
    found = classifier.weight_intervals(level=0.9)
    assert list(found) == [*tables.tables, *((name,) for name in tables.schema.names)]  # and main effects
    for t, (scope, (lower, upper)) in enumerate(found.items()):
        assert lower.shape == upper.shape == tables.table(*scope).counts.shape
        theta = classifier.model_.layout.table(classifier.model_.field.theta, t)
        assert ((lower <= theta) & (theta <= upper)).all()


def test_noise_on_the_tables_reaches_the_intervals(tables: AggregatedData, tmp_path: Path) -> None:
    data = with_noise(tables, "gaussian", 20.0, 20.0)
    settings = FitSettings(8.0, chains=2000)
    model = agglearn.fit(data, settings)
    noise = model.record.noise
    assert noise is not None
    assert noise.counts.tolist() == noise.sums.tolist() == [20.0] * 6
    silent = replace(model, record=replace(model.record, noise=None))
    squares = [np.mean(model_posterior(m, draws=16).draws[:-1] ** 2) for m in (model, silent)]
    assert squares[0] > 1.2 * squares[1]
    assert agglearn.fit(tables, replace(settings, iterations=1)).record.noise is None


def test_the_command_line_adds_two_columns(
    classifier: agglearn.MaxEntClassifier, records: dict[str, Any], run_cli: Cli, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    classifier.save(tmp_path / "a.model")
    pacsv.write_csv(pa.table(records), tmp_path / "records.csv")
    out = tmp_path / "scores.parquet"
    done = run_cli("predict", tmp_path / "a.model", tmp_path / "records.csv", "--interval", 0.9, "-o", out)
    assert done.code == 0, done.err
    scores = pq.read_table(out)
    assert scores.column_names == ["probability", "lower", "upper"]
    expected = classifier.predict_interval(records)
    np.testing.assert_allclose(np.column_stack([scores["lower"], scores["upper"]]), expected)
    for level in (0, 1, 90):
        again = tmp_path / "no.csv"
        wrong = run_cli(
            "predict", tmp_path / "a.model", tmp_path / "records.csv", "--interval", level, "-o", again
        )
        assert wrong.code == 2
        assert "must be above 0 and below 1" in wrong.err
        assert not again.exists()


def test_what_cannot_have_intervals_says_so(
    classifier: agglearn.MaxEntClassifier, tables: AggregatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier.model_
    with pytest.raises(InputError, match="draws tell no interval"):
        model_posterior(model, draws=1)
    with pytest.raises(InputError, match="seed -1"):
        model_posterior(model, seed=-1)
    without = replace(model, chains=None)
    monkeypatch.setattr("agglearn.trust.intervals.MOST_STATES", 10)
    with pytest.raises(InputError, match="kept no chains"):
        model_posterior(without)
    none = np.zeros_like(model.record.penalties)
    unpenalised = replace(model, record=replace(model.record, lambda_theta=0.0, penalties=none))
    with pytest.raises(InputError, match="need a penalty"):
        model_posterior(unpenalised)
    short = agglearn.fit(tables, FitSettings(chains=1000, iterations=5))
    with pytest.raises(InputError, match="5 iterations are too few"):
        model_posterior(short)
    chains = population(model, members=1)
    monkeypatch.setenv("AGGLEARN_MEMORY", "100KB")
    with pytest.raises(TooLargeError, match="drawing from a field of 98 cells with 4,000 chains would need"):
        model_posterior(model)
    with pytest.raises(TooLargeError, match="64 draws of the weights of 98 cells would need"):
        posterior(chains, model.field, model.rows, model.record.lambda_theta)


def test_a_model_fitted_by_enumeration_has_intervals(tables: AggregatedData, records: dict[str, Any]) -> None:
    exact = agglearn.MaxEntClassifier(engine="exact").fit(tables)
    ends = exact.predict_interval(records)
    assert (ends[:, 0] < ends[:, 1]).all()
    assert json.dumps(ends[0].tolist())  # plain numbers


def test_the_number_of_draws_follows_from_the_cells_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from agglearn.trust.intervals import _affordable

    small, large = Layout.plain((10, 10), [(0, 1)]), Layout.plain((3000, 3000), [(0, 1)])
    found = []
    for memory in ("4GiB", "64GiB"):
        monkeypatch.setenv("AGGLEARN_MEMORY", memory)
        found.append([_affordable(layout, 10_000, None)[0] for layout in (small, large)])
    assert found == [[64, 16], [64, 16]]
    monkeypatch.setenv("AGGLEARN_MEMORY", "1GiB")
    with pytest.raises(TooLargeError, match="9,000,000 cells would need"):
        _affordable(large, 10_000, None)


def test_binomial_reference() -> None:
    """One table of one feature: the field is a rate per value, whose interval is that of a proportion."""
    rng = np.random.default_rng(0)
    x, true = rng.integers(0, 4, 4000), np.array([0.1, 0.3, 0.5, 0.8])
    y = (rng.random(4000) < true[x]).astype(int)
    data = agglearn.aggregate({"x": [f"v{v}" for v in x], "y": y}, "y", tables="singles")
    model = agglearn.MaxEntClassifier(lambda_theta=0.05, engine="exact", tolerance=0.0).fit(data)
    ends = model.predict_interval({"x": [f"v{v}" for v in range(4)]})
    for v in range(4):
        n, k = int((x == v).sum()), int(y[x == v].sum())
        low, high = binom.ppf([0.05, 0.95], n, k / n) / n
        # A normal law on the logit scale against exact tails, a prior of four weights, and the spread of a
        # standard deviation from 64 draws (9 %): within a quarter of the length.
        assert abs(ends[v, 0] - low) < 0.25 * (high - low)
        assert abs(ends[v, 1] - high) < 0.25 * (high - low)
