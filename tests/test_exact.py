"""The exact engine against brute force, and its optimum against what theory says it must be."""

from __future__ import annotations

from itertools import combinations, product
from math import exp, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from agglearn.errors import TooLargeError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.protocol import Engine
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.optimum import Optimum, exact_optimum, objective_and_gradient
from tests.fields import cells_of, count, random_field

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


class Tables(NamedTuple):
    d: Floats
    c: Floats
    positives: float


def tabulate(layout: Layout, x: Codes, y: Codes) -> Tables:
    return Tables(*count(layout, x, y), float(y.sum()))


def records(seed: int, cards: tuple[int, ...], n: int) -> tuple[Codes, Codes]:
    """Records in which no feature is independent of another, nor the label."""
    x, y = random_field(seed, cards).draw(n, seed)
    return x.astype(np.int64), y.astype(np.int64)


def every_cell_seen(cards: tuple[int, ...], x: Codes, y: Codes) -> tuple[Codes, Codes]:
    """The records, and one more of each (x, y): no count is 0, so the optimum is finite."""
    grid = np.array(list(product(*map(range, cards))))
    return np.concatenate([x, grid, grid]), np.concatenate(
        [y, np.zeros(len(grid), np.int64), np.ones(len(grid), np.int64)]
    )


def p_positive(engine: ExactEngine, optimum: Optimum) -> Floats:
    joint = engine.probabilities(optimum.field)
    return np.asarray(joint[:, 1] / joint.sum(axis=1))


@st.composite
def layouts(draw: st.DrawFn, *, hashed: bool = True, max_states: int = 400) -> Layout:
    cards = tuple(draw(st.lists(st.integers(2, 5), min_size=2, max_size=5)))
    assume(prod(cards) <= max_states)
    features = range(len(cards))
    scopes = [scope for order in (1, 2, 3) for scope in combinations(features, order)]
    chosen = tuple(draw(st.lists(st.sampled_from(scopes), min_size=1, max_size=5, unique=True)))
    sizes = st.sampled_from([0, 0, 3, 7]) if hashed else st.just(0)
    return Layout.hashed(cards, chosen, tuple(draw(sizes) for _ in chosen))


seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)


# --- the engine -------------------------------------------------------------------------------


@few
@given(layouts(), seeds)
def test_probabilities_and_expectations_equal_a_sum_over_states_one_by_one(layout: Layout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mu, theta = rng.normal(size=(2, layout.n_cells))
    intercept, rows = rng.normal(), 1000.0
    weights = {
        (x, y): exp(sum(mu[k] + y * theta[k] for k in cells_of(layout, np.array([x]))[:, 0]) + y * intercept)
        for x in product(*map(range, layout.cards))
        for y in (0, 1)
    }
    total = sum(weights.values())
    d, c, positives = np.zeros(layout.n_cells), np.zeros(layout.n_cells), 0.0
    for (x, y), weight in weights.items():
        for k in cells_of(layout, np.array([x]))[:, 0]:
            d[k] += rows * weight / total
            c[k] += rows * weight / total * y
        positives += rows * weight / total * y

    engine = ExactEngine(layout, rows)
    field = Field(layout, mu, theta, intercept)
    joint = engine.probabilities(field)
    expected = engine.expect(field, 0)

    # Rounding of a few hundred float64 additions.
    np.testing.assert_allclose(joint.ravel(), np.array(list(weights.values())) / total, rtol=1e-10)
    np.testing.assert_allclose(expected.d, d, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(expected.c, c, rtol=1e-10, atol=1e-10)
    assert expected.positives == pytest.approx(positives, rel=1e-10)
    assert expected.info["log_partition"] == pytest.approx(np.log(total), rel=1e-10)


def test_codes_list_every_state_with_the_last_feature_fastest() -> None:
    engine = ExactEngine(Layout.plain([2, 1, 3], [(0, 2)]), 10)
    assert engine.states.codes.dtype == np.uint16
    assert engine.states.codes.T.tolist() == [[a, 0, b] for a in range(2) for b in range(3)]


def test_features_of_one_modality_and_features_in_no_table_are_summed_over() -> None:
    # 40 constant features are more axes than an array may have in numpy 1.
    layout = Layout.plain([3] + [1] * 40 + [2], [(0,), (5,), (5, 6)])
    mu = np.log(np.array([1.0, 2.0, 5.0, 3.0, 7.0]))
    expected = ExactEngine(layout, 80).expect(Field(layout, mu, np.zeros(5), 0.0), 0)
    np.testing.assert_allclose(expected.d, [10, 20, 50, 80, 80], rtol=1e-12)
    np.testing.assert_allclose(expected.c, expected.d / 2, rtol=1e-12)


def test_float32_weights_are_summed_in_double_precision() -> None:
    layout = Layout.plain([2, 2], [(0, 1)])
    weights: Any = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    single, double = (
        ExactEngine(layout, 1).expect(Field(layout, w, w, 0.0), 0)
        for w in (weights, weights.astype(np.float64))
    )
    assert single.d.dtype == np.float64
    np.testing.assert_array_equal(single.d, double.d)


def test_very_large_weights_do_not_overflow() -> None:
    layout = Layout.plain([2], [(0,)])
    field = Field(layout, np.array([0.0, 5000.0]), np.zeros(2), 0.0)
    expected = ExactEngine(layout, 1).expect(field, 0)
    np.testing.assert_allclose(expected.d, [0, 1], atol=1e-12)


@pytest.mark.parametrize("n_features", [25, 2000])
def test_too_many_states_are_refused_with_their_number_and_a_way_out(n_features: int) -> None:
    layout = Layout.plain([2] * n_features, [(0, 1)])
    with pytest.raises(TooLargeError, match=r"33,554,432|10\^602") as refusal:
        ExactEngine(layout, 100)
    assert "local engine" in str(refusal.value)
    assert "MB" in str(refusal.value)


def test_samples_follow_the_field() -> None:
    rng = np.random.default_rng(1)
    layout = Layout.plain([2, 3, 2], [(0, 1), (1, 2)])
    engine = ExactEngine(layout, 1)
    mu, theta = rng.normal(size=(2, layout.n_cells))
    field = Field(layout, mu, theta, 0.3)
    n = 50_000
    x, y = engine.sample(n, field, seed=2)
    again = engine.sample(n, field, seed=2)
    assert x.dtype == np.uint16
    np.testing.assert_array_equal(x, again[0])
    np.testing.assert_array_equal(y, again[1])

    states = np.ravel_multi_index((*x.astype(int), y.astype(int)), (2, 3, 2, 2))
    expected = n * engine.probabilities(field).ravel()
    seen = np.bincount(states, minlength=24)
    # Fixed seed; a right sampler fails once in 10,000 seeds.
    assert ((seen - expected) ** 2 / expected).sum() < chi2.ppf(0.9999, df=23)


def test_the_engine_has_no_state_to_keep() -> None:
    engine: Engine = ExactEngine(Layout.plain([2], [(0,)]), 1)
    assert engine.get_state() == {}
    engine.set_state({})


# --- the objective ----------------------------------------------------------------------------


@few
@given(layouts(), seeds, st.floats(0, 10), st.floats(0, 10))
def test_gradient_equals_finite_differences(
    layout: Layout, seed: int, lambda_mu: float, lambda_theta: float
) -> None:
    rng = np.random.default_rng(seed)
    tables = tabulate(layout, *records(seed, layout.cards, 200))
    engine = ExactEngine(layout, 200)
    mu0 = rng.normal(size=layout.n_cells)
    point, direction = rng.normal(size=(2, 2 * layout.n_cells + 1))
    direction /= np.linalg.norm(direction)

    def value(at: Floats) -> tuple[float, Floats]:
        return objective_and_gradient(engine, at, *tables, lambda_mu, lambda_theta, mu0)

    step = 1e-4
    slope = (value(point + step * direction)[0] - value(point - step * direction)[0]) / (2 * step)
    # Central differences err by step²·|F'''|/6, under 1e-8·n·(tables)³ here, and by rounding of F
    # (1e-16·1e4) over the step.
    assert slope == pytest.approx(float(value(point)[1] @ direction), abs=1e-4)


# --- the optimum ------------------------------------------------------------------------------


@few
@given(layouts(), seeds)
def test_without_penalty_the_optimum_reproduces_the_tables(layout: Layout, seed: int) -> None:
    """The paper's lemma: E(D) = d and E(C) = c. Tables here are small, so many cells are empty."""
    n = 300
    tables = tabulate(layout, *records(seed, layout.cards, n))
    engine = ExactEngine(layout, n)
    optimum = exact_optimum(engine, *tables, 0.0, 0.0, np.zeros(layout.n_cells), tolerance=1e-7)
    expected = engine.expect(optimum.field, 0)
    assert optimum.converged
    np.testing.assert_allclose(expected.d, tables.d, atol=1e-6 * n)
    np.testing.assert_allclose(expected.c, tables.c, atol=1e-6 * n)
    assert expected.positives == pytest.approx(tables.positives, abs=1e-6 * n)


@settings(max_examples=10, deadline=None)
@given(layouts(hashed=False, max_states=100), seeds)
def test_without_penalty_the_optimum_is_what_proportional_fitting_finds(layout: Layout, seed: int) -> None:
    """Iterative proportional fitting from the uniform law converges to the maximum entropy."""
    x, y = every_cell_seen(layout.cards, *records(seed, layout.cards, 100))
    n, n_features = len(y), len(layout.cards)
    data = np.zeros((*layout.cards, 2))
    np.add.at(data, (*x.T, y), 1 / n)
    fitted = np.full(data.shape, 1 / data.size)
    for _ in range(2000):
        before = fitted
        for scope in layout.scopes:
            others = tuple(f for f in range(n_features) if f not in scope)
            fitted = fitted * (data.sum(others, keepdims=True) / fitted.sum(others, keepdims=True))
        if np.abs(fitted - before).max() < 1e-13:
            break

    engine = ExactEngine(layout, n)
    optimum = exact_optimum(
        engine, *tabulate(layout, x, y), 0.0, 0.0, np.zeros(layout.n_cells), tolerance=1e-10
    )
    joint = engine.probabilities(optimum.field)
    # The gradient tolerance over the least curvature met, about 1e-3 of the rows.
    np.testing.assert_allclose(joint, fitted.reshape(-1, 2), atol=1e-7)


@few
@given(layouts(), seeds, st.floats(0.01, 100), st.floats(0.01, 100))
def test_with_penalties_every_other_point_is_worse(
    layout: Layout, seed: int, lambda_mu: float, lambda_theta: float
) -> None:
    rng = np.random.default_rng(seed)
    tables = tabulate(layout, *records(seed, layout.cards, 200))
    engine = ExactEngine(layout, 200)
    mu0 = rng.normal(size=layout.n_cells)
    optimum = exact_optimum(engine, *tables, lambda_mu, lambda_theta, mu0)
    assert optimum.converged
    best = np.concatenate([optimum.field.mu, optimum.field.theta, [optimum.field.intercept]])
    for size in (1e-2, 1.0):
        shift = rng.normal(scale=size, size=best.size)
        value, _ = objective_and_gradient(engine, best + shift, *tables, lambda_mu, lambda_theta, mu0)
        # Strong convexity: at least λ·‖shift‖² higher, but for the intercept, which has no penalty.
        least = min(lambda_mu, lambda_theta) * float(shift[:-1] @ shift[:-1])
        assert value >= optimum.objective + least - 1e-6


def test_a_heavy_penalty_leaves_the_start_and_the_base_rate() -> None:
    layout = Layout.plain([3, 2], [(0, 1)])
    x, y = records(0, layout.cards, 100)
    mu0 = np.arange(6.0)
    optimum = exact_optimum(ExactEngine(layout, 100), *tabulate(layout, x, y), 1e9, 1e9, mu0)
    # A weight moves by at most (gradient ≤ n) / 2λ = 5e-8.
    np.testing.assert_allclose(optimum.field.mu, mu0, atol=1e-6)
    np.testing.assert_allclose(optimum.field.theta, 0, atol=1e-6)
    assert optimum.field.intercept == pytest.approx(np.log(y.mean() / (1 - y.mean())), abs=1e-6)


def test_single_tables_give_naive_bayes() -> None:
    cards = (3, 4, 2, 5)
    x, y = every_cell_seen(cards, *records(3, cards, 2000))
    layout = Layout.plain(cards, [(f,) for f in range(4)])
    engine = ExactEngine(layout, len(y))
    optimum = exact_optimum(
        engine, *tabulate(layout, x, y), 0.0, 0.0, np.zeros(layout.n_cells), tolerance=1e-12
    )

    joint = np.ones((prod(cards), 2))
    for label in (0, 1):
        joint[:, label] = np.mean(y == label)
        for f, card in enumerate(cards):
            given_label = np.bincount(x[y == label, f], minlength=card) / np.sum(y == label)
            joint[:, label] *= given_label[engine.states.codes[f]]
    # Numerical precision: tolerance 1e-12 of the rows over curvatures of at least 1e-3.
    np.testing.assert_allclose(p_positive(engine, optimum), joint[:, 1] / joint.sum(1), atol=1e-8)


def test_a_table_over_all_features_gives_the_empirical_conditional() -> None:
    cards = (3, 2, 4)
    x, y = every_cell_seen(cards, *records(4, cards, 500))
    layout = Layout.plain(cards, [(0, 1, 2)])
    engine = ExactEngine(layout, len(y))
    tables = tabulate(layout, x, y)
    optimum = exact_optimum(engine, *tables, 0.0, 0.0, np.zeros(24), tolerance=1e-12)
    # As for Naive Bayes.
    np.testing.assert_allclose(p_positive(engine, optimum), tables.c / tables.d, atol=1e-8)


def test_xor_is_beyond_pairs_and_comes_out_as_the_paper_says() -> None:
    """x₃ = x₁ xor x₂ and P(Y=1|x) = ¼ + ½x₃, yet pairs of infinitely many records say 0.9 and 0.1."""
    n = 1_000_000
    layout = Layout.plain([2, 2, 2], [(0, 1), (0, 2), (1, 2)])
    d, c = np.zeros(12), np.zeros(12)
    for a, b in product((0, 1), repeat=2):
        cells = cells_of(layout, np.array([(a, b, a ^ b)]))[:, 0]
        d[cells] += n / 4
        c[cells] += n / 4 * (0.25 + 0.5 * (a ^ b))
    engine = ExactEngine(layout, n)
    optimum = exact_optimum(engine, d, c, n / 2, 1e-3, 1e-3, np.zeros(12))
    predicted = p_positive(engine, optimum)
    for (a, b, x3), p in zip(engine.states.codes.T.tolist(), predicted, strict=True):
        if x3 == a ^ b:
            # The penalty moves it by far less; 0.01 is the paper's rounding.
            assert p == pytest.approx(0.9 if x3 else 0.1, abs=0.01)


def test_an_empty_cell_without_penalty_ends_with_a_negligible_count_and_a_finite_weight() -> None:
    layout = Layout.plain([2, 2], [(0, 1)])
    d = np.array([40.0, 30.0, 30.0, 0.0])
    c = np.array([10.0, 0.0, 30.0, 0.0])
    engine = ExactEngine(layout, 100)
    optimum = exact_optimum(engine, d, c, 40.0, 0.0, 0.0, np.zeros(4), tolerance=1e-9)
    expected = engine.expect(optimum.field, 0)
    assert optimum.converged
    assert np.isfinite(optimum.field.mu).all()
    assert np.isfinite(optimum.field.theta).all()
    np.testing.assert_allclose(expected.d, d, atol=1e-7)
    np.testing.assert_allclose(expected.c, c, atol=1e-7)


def test_tables_that_contradict_one_another_do_not_converge_without_penalty() -> None:
    layout = Layout.plain([2, 2], [(0,), (0, 1)])
    d = np.array([60.0, 40.0, 25.0, 25.0, 25.0, 25.0])
    engine = ExactEngine(layout, 100)
    assert not exact_optimum(engine, d, d / 2, 50.0, 0.0, 0.0, np.zeros(6)).converged
    assert exact_optimum(engine, d, d / 2, 50.0, 0.1, 0.1, np.zeros(6)).converged
