"""A penalty for each table, and main effects beside the tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

import agglearn
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, TableNoise
from agglearn.train.evidence import (
    first_penalties,
    overlap_of_tables,
    set_penalties,
    table_penalties,
    weigh,
)
from agglearn.train.loop import fit
from agglearn.train.mains import with_mains
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.train.state import Iterates
from tests.fields import pairs, problem_of, random_tables

Floats = npt.NDArray[np.float64]

CARDS = (3, 4, 2, 5)
PAIRS = pairs(CARDS)


def records(n: int, seed: int) -> npt.NDArray[np.uint16]:
    """Independent features, a row for each record."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, card, n) for card in CARDS], axis=1).astype(np.uint16)


def labels(n: int, seed: int, rate: float = 0.3) -> npt.NDArray[np.uint8]:
    return (np.random.default_rng(seed).random(n) < rate).astype(np.uint8)


def iterates(problem: Problem, theta: Floats, rate: float, penalty: float) -> Iterates:
    """Weights whose running means say the same rate in each cell."""
    layout = problem.layout
    weights = Iterates.at(Field(layout, np.zeros(layout.n_cells), theta, 0.0), penalty)
    weights.theta_mean[:] = theta
    weights.d_run[:], weights.c_run[:] = problem.d, rate * problem.d
    return weights


def test_main_tables_are_the_counts_of_single_features() -> None:
    codes, y = records(500, 0), labels(500, 1)
    singles = problem_of(Layout.plain(CARDS, [(f,) for f in range(4)]), codes, y)
    longer = with_mains(problem_of(PAIRS, codes, y))
    first = int(longer.layout.offsets[PAIRS.n_tables])
    assert longer.layout.scopes[PAIRS.n_tables :] == ((0,), (1,), (2,), (3,))
    np.testing.assert_allclose(longer.d[first:], singles.d)
    np.testing.assert_allclose(longer.c[first:], singles.c)


def test_a_feature_that_has_its_own_table_gets_no_second_one() -> None:
    layout = Layout.plain(CARDS, [(0,), (0, 1), (2, 3)])
    longer = with_mains(problem_of(layout, records(100, 0), labels(100, 1)))
    assert longer.layout.scopes == ((0,), (0, 1), (2, 3), (1,), (2,), (3,))


def test_a_table_with_a_feature_of_one_value_is_the_main_effect_of_the_other() -> None:
    layout = Layout.plain((3, 1), [(0, 1)])
    problem = Problem(layout, np.full(3, 10.0), np.full(3, 3.0), 30.0, 9.0)
    assert with_mains(problem) is problem
    single = replace(problem, layout=Layout.plain((3,), [(0,)]))
    assert first_penalties(problem).tolist() == first_penalties(single).tolist()


def test_the_first_penalty_leaves_three_events_for_each_weight_that_the_data_determine() -> None:
    codes, y = records(4000, 2), labels(4000, 3, 0.2)
    problem = with_mains(problem_of(PAIRS, codes, y))
    penalty = first_penalties(problem)[0]
    pairs = problem.d[: problem_of(PAIRS, codes, y).layout.n_cells]
    told = pairs * problem.rate * (1 - problem.rate)
    few = replace(problem, rows=300.0, positives=problem.positives * 300 / problem.rows, d=problem.d * 0.075)
    determined = (0.075 * told / (0.075 * told + 2 * first_penalties(few)[0])).sum()
    assert determined == pytest.approx(few.positives / 3, rel=1e-3)
    assert penalty < first_penalties(few)[0]


def test_features_in_hashed_tables_only_get_no_main_effects() -> None:
    layout = Layout.hashed(CARDS, [(0, 1), (2, 3)], [7, 0])
    problem = Problem(layout, np.full(17, 10.0), np.full(17, 3.0), 100.0, 30.0)
    assert with_mains(problem).layout.scopes == ((0, 1), (2, 3), (2,), (3,))


def test_margins_come_from_tables_without_withheld_cells_where_there_are_any() -> None:
    codes, y = records(300, 5), labels(300, 6, 0.4)
    problem = problem_of(Layout.plain(CARDS, [(0, 1), (0, 2), (1, 3)]), codes, y)
    free = np.ones(problem.layout.n_cells, bool)
    free[2] = False
    longer = with_mains(replace(problem, free=free, d=np.where(free, problem.d, 999.0)))
    of_first = longer.d[int(longer.layout.offsets[3]) :][:3]
    np.testing.assert_allclose(of_first, np.bincount(codes[:, 0], minlength=3))
    assert longer.free is not None
    assert longer.free[problem.layout.n_cells :].all()


def test_the_noise_of_a_margin_is_that_of_the_weighted_sums_it_is_the_mean_of() -> None:
    codes, y = records(300, 5), labels(300, 6)
    problem = problem_of(Layout.plain(CARDS, [(0, 1), (0, 2)]), codes, y)
    sigma = np.array([4.0, 6.0])
    longer = with_mains(replace(problem, noise=TableNoise(sigma, 2 * sigma)))
    assert longer.noise is not None
    # Feature 0 is summed over 4 cells of the first table and 2 of the second, and these weigh 1/4 and 1/2.
    weights = np.array([1 / 4, 1 / 2]) / (1 / 4 + 1 / 2)
    by_hand = np.sqrt(weights[0] ** 2 * 4 * 4.0**2 + weights[1] ** 2 * 2 * 6.0**2)
    assert longer.noise.counts[2] == pytest.approx(by_hand)
    assert longer.noise.sums[2] == pytest.approx(2 * by_hand)


@pytest.mark.parametrize("noisy", [False, True])
def test_the_variance_found_is_that_of_the_weights_drawn(noisy: bool) -> None:
    """One estimate r ~ N(hθ, h + ν) a cell, θ ~ N(0, s): fitted and set by turns, the prior comes to s."""
    rng = np.random.default_rng(7)
    layout = Layout.plain((60, 50, 40), [(0, 1), (0, 2), (1, 2)])
    variances = np.array([0.5, 0.1, 0.02])
    d = np.full(layout.n_cells, 200.0)
    h = d / 4
    noise = TableNoise(np.zeros(3), np.sqrt(np.full(3, 3 * h[0]))) if noisy else None
    nu = 3 * h if noisy else 0 * h
    problem = Problem(layout, d, d / 2, float(d[:3000].sum()), float(d[:3000].sum() / 2), noise=noise)
    theta = rng.normal(size=d.size) * np.sqrt(np.repeat(variances, layout.sizes))
    r = h * theta + np.sqrt(h + nu) * rng.normal(size=d.size)
    weights = iterates(problem, np.zeros(d.size), 0.5, 16.0)
    for _ in range(60):
        weights.theta_mean[:] = r / (h + weights.precision)
        penalties, _ = table_penalties(layout, weigh(problem, weights, 1.0))
        set_penalties(problem, weights, penalties)
    # With 2,000 cells s is known to √(2/2000)·(1 + f/hs), 3 % to 16 % here, f = 1 or 4.
    np.testing.assert_allclose(1 / (2 * penalties), variances, rtol=0.35)


def test_a_table_without_any_effect_has_its_determined_weights_times_the_usual_penalty() -> None:
    layout = Layout.plain((4, 5, 6), [(0, 1), (0, 2), (1, 2)])
    d = np.full(layout.n_cells, 40.0)
    problem = Problem(layout, d, d / 2, 800.0, 400.0)
    weights = iterates(problem, np.where(np.arange(layout.n_cells) < 20, 1.0, 0.0), 0.5, 4.0)
    found = weigh(problem, weights, 1.0)
    # By hand: h = 40/4 = 10 in each cell, x = 10/(10 + 8), cells 20, 24 and 30.
    np.testing.assert_allclose(found.gamma, np.array([20, 24, 30]) * 10 / 18)
    np.testing.assert_allclose(found.squares, [20, 0, 0])
    penalties, common = table_penalties(layout, found)
    np.testing.assert_allclose(penalties[1], common * (24 * 10 / 18 + 1), rtol=1e-6)
    np.testing.assert_allclose(penalties[2], common * (30 * 10 / 18 + 1), rtol=1e-6)
    # The usual penalty is the geometric mean of all, up to the turns that finding it takes.
    np.testing.assert_allclose(np.exp(np.log(penalties).mean()), common, rtol=1e-3)


def test_a_cell_tells_of_its_weight_by_what_all_other_cells_leave_of_the_label() -> None:
    layout = Layout.plain((4, 5), [(0, 1)])
    d = np.full(layout.n_cells, 40.0)
    problem = Problem(layout, d, d / 2, 800.0, 400.0)
    weights = iterates(problem, np.ones(layout.n_cells), 0.5, 4.0)
    # By hand: h = 0.3·40/4 = 3 in each of 20 cells, x = 3/(3 + 8), and with κ = 2 each counts x/(1 + x).
    assert weigh(problem, weights, 1.0, left=0.3).gamma[0] == pytest.approx(20 * 3 / 11)
    assert weigh(problem, weights, 2.0, left=0.3).gamma[0] == pytest.approx(20 * 3 / 14)


def test_a_heavier_penalty_moves_weights_to_where_their_own_cell_would_have_them() -> None:
    layout = Layout.plain((2, 2), [(0, 1)])
    problem = Problem(layout, np.full(4, 40.0), np.full(4, 20.0), 160.0, 80.0)
    weights = iterates(problem, np.ones(4), 0.5, 1.0)
    set_penalties(problem, weights, np.array([5.0]))
    # h = 10 and ρ from 2 to 10: r/(10 + 10) where r/(10 + 2) was 1.
    np.testing.assert_allclose(weights.theta, 12 / 20)
    set_penalties(problem, weights, np.array([1.0]))
    np.testing.assert_allclose(weights.theta, 12 / 20)  # a lighter one is left to training


def test_with_one_interaction_among_many_idle_tables_a_penalty_by_table_is_nearer_the_truth() -> None:
    codes, fresh = records(3000, 8), records(20_000, 9)
    effect = 1.5 * np.random.default_rng(10).normal(size=(3, 4))

    def true_scores(x: npt.NDArray[np.uint16]) -> Floats:
        return np.asarray(effect[x[:, 0], x[:, 1]] + 0.5 * (x[:, 3] == 2) - 0.3)

    y = (np.random.default_rng(11).random(3000) < expit(true_scores(codes))).astype(np.uint8)
    problem = problem_of(PAIRS, codes, y)

    def error(prior: str) -> float:
        settings = FitSettings(chains=4000, training=TrainingSettings(prior=prior))
        scores = fit(problem, settings, threads=1).field.log_odds(np.ascontiguousarray(fresh.T))
        return float(np.mean((scores - true_scores(fresh)) ** 2))

    assert error("tables") < 0.8 * error("single")


def test_more_tables_stand_in_for_one_another_more() -> None:
    assert overlap_of_tables(PAIRS) == 1.0
    many = pairs((2,) * 20)
    assert overlap_of_tables(many) == pytest.approx(np.sqrt(190 / 30))
    assert overlap_of_tables(with_mains(_even(many)).layout) == overlap_of_tables(many)


def _even(layout: Layout) -> Problem:
    d = np.full(layout.n_cells, 5.0)
    return Problem(layout, d, d / 2, 20.0, 10.0)


def test_a_model_knows_its_main_effects_and_is_judged_on_the_tables_it_was_given() -> None:
    train, valid = random_tables(0), random_tables(1)
    model = agglearn.fit(train, FitSettings(chains=500, iterations=30))
    assert model.tables == tuple(train.tables)
    assert model.scopes == (*train.tables, ("f0",), ("f1",), ("f2",))
    assert len(model.record.penalties) == 6
    assert agglearn.score_tables(model, valid).rows == 500
    found = agglearn.diagnose(model, train)
    assert found.own_tables
    assert {m.features for m in found.misfit} == set(train.tables)


def test_an_unknown_value_leaves_the_main_effects_of_the_others() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 4000))
    y = rng.random(4000) < np.where(a == 1, 0.8, 0.2)
    tables = agglearn.aggregate({"a": a, "b": b, "y": y.astype(int)}, "y", categorical=["*"])
    classifier = agglearn.MaxEntClassifier(chains=2000).fit(tables)
    with pytest.warns(agglearn.classifier.UnknownValuesWarning):
        p = classifier.predict_proba({"a": [0, 1], "b": [7, 7]})[:, 1]
    # Without main effects of its own, `a` would tell nothing here and both would be one half.
    assert p[1] - p[0] > 0.3
    assert p[0] < 0.5 < p[1]
