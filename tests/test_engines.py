"""What every engine promises those who train with it: one test body for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from scipy.special import expit

from agglearn.field.engines.exact import open_exact
from agglearn.field.engines.local import open_local
from agglearn.field.engines.protocol import Engine, EngineOptions, Expectation, Opener
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem
from agglearn.field.start import tree_start
from agglearn.runtime.random import Numbers, Use
from tests.fields import Floats, cells_of, random_field

LAYOUT = Layout.hashed((3, 4, 2), ((0,), (0, 1), (1, 2), (0, 2), (0, 1, 2)), (0, 0, 0, 0, 7))
FIELD = random_field(3, LAYOUT, 0.5, -0.4)
ELSEWHERE = random_field(4, LAYOUT, 0.5, 0.3)
ROWS = 2000
SETTLED = 30  # sweeps

OPENERS: Mapping[str, Opener] = {"exact": open_exact, "local": open_local}
Open = Callable[..., Engine]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return ELSEWHERE.problem(ROWS, 1)


@pytest.fixture(params=OPENERS)
def engine_of(request: pytest.FixtureRequest, problem: Problem) -> Open:
    """Open one kind of engine, with a seed and a number of chains."""

    def open_it(seed: int = 0, chains: int = 20_000) -> Engine:
        options = EngineOptions(chains=chains, first_chains=chains, numbers=Numbers(seed), threads=1)
        return OPENERS[request.param](problem, tree_start, options)[0]

    return open_it


def shares_by_hand() -> Floats:
    """Of the enumerated field: the shares of records and of positives in each cell, and of all positives."""
    d, c = np.zeros(LAYOUT.n_cells), np.zeros(LAYOUT.n_cells)
    for cells in cells_of(LAYOUT, FIELD.states):
        np.add.at(d, cells, FIELD.law.sum(axis=1))
        np.add.at(c, cells, FIELD.law[:, 1])
    return np.concatenate([d, c, [FIELD.law[:, 1].sum()]])


def same_bits(a: Expectation, b: Expectation) -> bool:
    arrays = a.d.tobytes() == b.d.tobytes() and a.c.tobytes() == b.c.tobytes()
    return arrays and (a.positives, a.info) == (b.positives, b.info)


def test_expectations_are_those_of_the_enumerated_field(engine_of: Open) -> None:
    engine = engine_of()
    engine.settle(FIELD, SETTLED, Numbers(1))
    got = engine.expect(FIELD, 0)
    found, share = np.concatenate([got.d, got.c, [got.positives]]) / ROWS, shares_by_hand()
    # Five standard deviations of so many independent records; rounding where there is no chance.
    n = engine.n_chains
    allowed = 5 * np.sqrt(share * (1 - share) / n) if n else np.full(share.size, 1e-12)
    assert (np.abs(found - share) <= allowed).all()


def test_the_population_is_what_the_expectation_counted(engine_of: Open) -> None:
    engine = engine_of(chains=500)
    engine.settle(FIELD, 3, Numbers(1))
    got = engine.expect(FIELD, 0)
    population = engine.population(FIELD)
    p = population.map(expit, population.scores(FIELD.theta, FIELD.intercept))
    np.testing.assert_allclose(ROWS * population.shares(), got.d, rtol=1e-12)
    # chains round probabilities to multiples of 2⁻³⁰
    np.testing.assert_allclose(ROWS * population.cells(p), got.c, rtol=1e-12, atol=ROWS * 2.0**-30)
    assert ROWS * population.mean(p) == pytest.approx(got.positives, abs=ROWS * 2.0**-30)


def test_a_population_stays_when_the_engine_moves_on(engine_of: Open) -> None:
    engine = engine_of(chains=500)
    population = engine.population(FIELD)
    before = population.scores(FIELD.theta).copy()
    for iteration in range(3):
        engine.expect(ELSEWHERE, iteration)
    np.testing.assert_array_equal(population.scores(FIELD.theta), before)


@pytest.mark.parametrize("before", [0, 2])
def test_going_on_from_a_state_is_bit_for_bit_as_never_having_stopped(engine_of: Open, before: int) -> None:
    engine = engine_of(chains=500)
    for iteration in range(before):
        engine.expect(FIELD, iteration)
    state = engine.get_state()
    went_on = [engine.expect(FIELD, before + k) for k in range(3)]
    again = engine_of(chains=60)
    for other in (engine, again):
        other.set_state(state)
        for k in range(3):
            assert same_bits(other.expect(FIELD, before + k), went_on[k])


def test_chains_are_as_many_as_the_engine_says_and_grow_only(engine_of: Open) -> None:
    engine = engine_of(chains=50)
    alone = engine.n_chains == 0
    for wanted, there in ((50, 50), (120, 120), (10, 120), (120, 120)):
        engine.grow(wanted, 0)
        engine.expect(FIELD, 0)
        assert engine.n_chains == (0 if alone else there)
        chains = engine.chains
        assert (chains is None) == alone
        if chains is not None:
            assert chains.shape == (LAYOUT.n_features, there)
            assert (chains < np.array(LAYOUT.cards)[:, None]).all()


def test_after_growing_expectations_are_still_scaled_to_the_records(engine_of: Open) -> None:
    engine = engine_of(chains=50)
    engine.grow(170, 0)
    got = engine.expect(FIELD, 0)
    for t in range(LAYOUT.n_tables):
        assert got.d[LAYOUT.part(t)].sum() == pytest.approx(ROWS, rel=1e-12)
    assert 0 < got.positives < ROWS
    assert (got.c <= got.d).all()


def test_the_numbers_in_use_decide_what_comes_whatever_the_seed_was(engine_of: Open) -> None:
    first, second = engine_of(seed=1, chains=500), engine_of(seed=2, chains=500)
    second.set_state(first.get_state())
    for engine in (first, second):
        engine.use(Numbers(9, Use.WALK, 3))
    for iteration in range(2):
        assert same_bits(first.expect(FIELD, iteration), second.expect(FIELD, iteration))


def test_settling_is_by_numbers_of_its_own(engine_of: Open) -> None:
    first, second = engine_of(seed=1, chains=500), engine_of(seed=2, chains=500)
    second.set_state(first.get_state())
    for engine in (first, second):
        engine.settle(FIELD, 4, Numbers(9, Use.WALK, 3))
    np.testing.assert_equal(first.get_state(), second.get_state())
    assert same_bits(first.expect(FIELD, 0), second.expect(FIELD, 0))


def test_other_numbers_move_chains_elsewhere(engine_of: Open) -> None:
    engine = engine_of(chains=500)
    state, seen = engine.get_state(), set()
    for numbers in (Numbers(0), Numbers(1), Numbers(0, Use.WALK), Numbers(0, part=1)):
        engine.set_state(state)
        engine.use(numbers)
        seen.add(engine.expect(FIELD, 0).d.tobytes())
    assert len(seen) == (4 if engine.n_chains else 1)


def test_all_engines_begin_from_the_same_weights(problem: Problem) -> None:
    options = EngineOptions(chains=100, first_chains=50, numbers=Numbers(0), threads=1)
    opened = [opener(problem, tree_start, options) for opener in OPENERS.values()]
    for engine, mu0 in opened:
        assert (engine.layout, engine.rows) == (problem.layout, problem.rows)
        np.testing.assert_array_equal(mu0, opened[0][1])
