"""Populations against plain numpy: every member's φ as a row of a matrix, every mean as a product with it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt
import pytest

from agglearn.field.layout import Layout
from agglearn.field.population import Chains, Enumeration, Moments, Population
from agglearn.field.states import States
from tests.fields import Codes, Floats, cells_of, every_state, random_field

CARDS = (3, 4, 2)
LAYOUT = Layout.hashed(CARDS, ((0,), (0, 1), (1, 2), (0, 2), (0, 1, 2)), (0, 0, 0, 4, 7))
OTHER = Layout.hashed(CARDS, ((2,), (0, 1, 2), (0, 1)), (0, 0, 5))

# Of float32: sums of five weights, and means of a few dozen values, all of the order of one.
SINGLE = 2e-6


@dataclass(frozen=True)
class Known:
    """A population, and what it should be: its members' codes (a row each) and how much each weighs."""

    population: Population
    codes: Codes
    law: Floats

    def phi(self, layout: Layout = LAYOUT) -> Floats:
        """A row for each member, which has a 1 in each of its cells."""
        phi = np.zeros((len(self.codes), layout.n_cells))
        for cells in cells_of(layout, self.codes):
            phi[np.arange(len(phi)), cells] = 1
        return phi

    @property
    def psi(self) -> Floats:
        """φ, and a 1 for the intercept."""
        return np.hstack([self.phi(), np.ones((len(self.codes), 1))])


def some_chains(n: int, draws: int = 1, threads: int = 1) -> Chains:
    codes = random_field(1, CARDS).draw(n, 2)[0]
    return Chains(LAYOUT, np.ascontiguousarray(codes.T), draws, threads)


def the_law() -> Floats:
    return np.asarray(random_field(3, CARDS).law.sum(axis=1))


@pytest.fixture(params=["chains", "chains drawn three times", "enumeration"])
def known(request: pytest.FixtureRequest) -> Known:
    if request.param == "enumeration":
        return Known(Enumeration(States(LAYOUT), the_law()), every_state(CARDS), the_law())
    chains = some_chains(63, draws=1 if request.param == "chains" else 3)
    return Known(chains, chains.codes.T, np.full(63, 1 / 63))


def values_of(known: Known, seed: int = 5) -> Floats:
    """A number for each member, of either sign."""
    return np.random.default_rng(seed).normal(size=len(known.codes))


# --- one set of weights, and several -------------------------------------------------------------


def test_scores_are_sums_of_weights_and_the_shift(known: Known) -> None:
    weights = np.random.default_rng(0).normal(size=LAYOUT.n_cells)
    got = known.population.scores(weights, -1.5)
    np.testing.assert_allclose(got, known.phi() @ weights - 1.5, rtol=0, atol=1e-12)
    np.testing.assert_allclose(known.population.scores(weights), known.phi() @ weights, rtol=0, atol=1e-12)


def test_scores_of_several_sets_have_a_column_and_a_shift_each(known: Known) -> None:
    rng = np.random.default_rng(0)
    weights, shift = rng.normal(size=(LAYOUT.n_cells, 3)).astype(np.float32), rng.normal(size=3)
    got = known.population.scores(weights, shift)
    np.testing.assert_allclose(got, known.phi() @ weights + shift, rtol=0, atol=SINGLE)
    for k in range(3):
        alone = known.population.scores(weights[:, k : k + 1], shift[k : k + 1])
        np.testing.assert_array_equal(got[:, k], alone[:, 0])


def test_a_function_is_taken_member_by_member(known: Known) -> None:
    a, b = values_of(known, 1), values_of(known, 2)
    got = known.population.map(lambda x, y: x * np.exp(y), a, b)
    np.testing.assert_array_equal(got, [x * np.exp(y) for x, y in zip(a, b, strict=True)])


def test_means_weigh_every_member_by_the_law(known: Known) -> None:
    values = values_of(known)
    mean = known.population.mean(values)
    assert isinstance(mean, float)
    assert mean == pytest.approx(float(known.law @ values), abs=1e-14)
    sets = np.stack([values, values**2, np.ones_like(values)], axis=1)
    np.testing.assert_allclose(known.population.mean(sets), known.law @ sets, rtol=0, atol=1e-14)


def test_shares_are_the_mean_of_the_cells_members_are_in(known: Known) -> None:
    shares = known.population.shares()
    np.testing.assert_allclose(shares, known.law @ known.phi(), rtol=0, atol=1e-14)
    for t in range(LAYOUT.n_tables):
        assert shares[LAYOUT.part(t)].sum() == pytest.approx(1.0, abs=1e-12)


def test_cells_are_means_of_the_values_in_them(known: Known) -> None:
    values = values_of(known)
    np.testing.assert_allclose(
        known.population.cells(values), (known.law * values) @ known.phi(), rtol=0, atol=1e-14
    )
    np.testing.assert_allclose(known.population.cells(np.ones_like(values)), known.population.shares())


def test_cells_of_several_sets_have_a_column_each(known: Known) -> None:
    sets = np.stack([values_of(known, seed) for seed in range(3)], axis=1).astype(np.float32)
    got = known.population.cells(sets)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, known.phi().T @ (known.law[:, None] * sets), rtol=0, atol=SINGLE)
    for k in range(3):
        np.testing.assert_array_equal(got[:, k], known.population.cells(sets[:, k : k + 1])[:, 0])


def test_what_is_gathered_and_what_is_tallied_are_each_others_transpose(known: Known) -> None:
    """E[v·(φw)] = E[vφ]·w."""
    weights, values = np.random.default_rng(0).normal(size=LAYOUT.n_cells), values_of(known)
    scored = known.population.map(np.multiply, values, known.population.scores(weights))
    assert known.population.mean(scored) == pytest.approx(
        float(known.population.cells(values) @ weights), abs=1e-13
    )


def test_the_same_members_can_be_counted_in_other_tables(known: Known) -> None:
    over, values = known.population.over(OTHER), values_of(known)
    assert over.layout == OTHER
    assert known.population.layout == LAYOUT
    weights, phi = np.random.default_rng(0).normal(size=OTHER.n_cells), known.phi(OTHER)
    np.testing.assert_allclose(over.scores(weights), phi @ weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(over.shares(), known.law @ phi, rtol=0, atol=1e-14)
    np.testing.assert_allclose(over.cells(values), (known.law * values) @ phi, rtol=0, atol=1e-14)
    np.testing.assert_allclose(known.population.shares(), known.law @ known.phi(), rtol=0, atol=1e-14)


def test_threads_change_nothing() -> None:
    n = 20_000  # several pieces of work for each thread
    values = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=(LAYOUT.n_cells, 2)).astype(np.float32)

    def everything(chains: Chains) -> list[npt.NDArray[np.floating]]:
        generators = [np.random.default_rng(k) for k in range(2)]
        return [
            chains.scores(weights[:, 0].astype(np.float64), 0.5),
            chains.scores(weights, 0.5),
            chains.mean(values),
            chains.shares(),
            chains.cells(values[:, 0].astype(np.float64)),
            chains.cells(values),
            chains.draw(np.square(values[:, 0]), generators),
        ]

    one = everything(some_chains(n))
    for threads in (2, 3):
        for expected, got in zip(one, everything(some_chains(n, threads=threads)), strict=True):
            np.testing.assert_array_equal(got, expected)


# --- spread ---------------------------------------------------------------------------------------


def test_moments_tell_mean_and_variance(known: Known) -> None:
    values = values_of(known)
    moments, mean = known.population.moments(values), known.law @ values
    assert moments.mean == pytest.approx(mean, abs=1e-14)
    assert moments.variance == pytest.approx(known.law @ (values - mean) ** 2, rel=1e-12)


def test_members_that_are_alone_make_a_mean_as_sure_as_their_number_says() -> None:
    values = np.random.default_rng(0).normal(size=50)
    assert some_chains(50).moments(values).variance_of_mean == pytest.approx(values.var() / 50, rel=1e-12)


def test_what_is_known_exactly_has_no_standard_error() -> None:
    law = the_law()
    population = Enumeration(States(LAYOUT), law)
    assert population.moments(np.random.default_rng(0).normal(size=law.size)).variance_of_mean == 0
    assert population.size == np.inf
    assert some_chains(50).size == 50


def test_drawing_a_chain_again_where_it_stands_makes_no_mean_surer() -> None:
    once = np.random.default_rng(0).normal(size=40)
    alone = some_chains(40).moments(once)
    again = some_chains(120, draws=3).moments(np.tile(once, 3))
    assert again.mean == pytest.approx(alone.mean, abs=1e-15)
    assert again.variance == pytest.approx(alone.variance, rel=1e-12)
    assert again.variance_of_mean == pytest.approx(alone.variance_of_mean, rel=1e-12)
    assert again.groups == 40


def test_draws_that_cancel_out_in_every_chain_leave_a_mean_without_error() -> None:
    once = np.random.default_rng(0).normal(size=40)
    moments = some_chains(80, draws=2).moments(np.concatenate([once, -once]))
    assert moments.variance == pytest.approx(np.square(once).mean(), rel=1e-12)
    assert moments.variance_of_mean == pytest.approx(0, abs=1e-30)


def test_the_standard_error_is_the_spread_of_the_mean_over_repetitions() -> None:
    """Three draws of a chain share half of their variance, so the mean has (1/2 + 1/6)/n."""
    rng, n_chains, repetitions = np.random.default_rng(0), 30, 2000
    chains = some_chains(3 * n_chains, draws=3)
    own = rng.normal(size=(repetitions, 1, n_chains))
    values = np.sqrt(0.5) * (own + rng.normal(size=(repetitions, 3, n_chains)))
    moments = [chains.moments(v.reshape(-1)) for v in values]
    # a mean over n − 1 degrees of freedom, taken over n
    expected = (1 / 2 + 1 / 6) / n_chains * (1 - 1 / n_chains)
    # Means of 2,000: the variance of 29 degrees has a relative standard deviation √(2/29), that of all
    # means √(2/2000). Four of each.
    told = np.mean([m.variance_of_mean for m in moments])
    assert told == pytest.approx(expected, rel=4 * np.sqrt(2 / 29 / repetitions))
    seen = np.var([m.mean for m in moments])
    assert seen == pytest.approx((1 / 2 + 1 / 6) / n_chains, rel=4 * np.sqrt(2 / repetitions))


def close(a: Moments, b: Moments) -> bool:
    return bool(np.allclose(astuple(a), astuple(b), rtol=1e-11, atol=1e-13))


@pytest.mark.parametrize("draws", [1, 3])
def test_moments_of_parts_add_up_to_those_of_the_whole(draws: int) -> None:
    chains = some_chains(60 * draws, draws=draws)
    values = 100 + np.random.default_rng(0).normal(size=60 * draws)
    part = np.tile(np.repeat([0, 1, 2], [7, 20, 33]), draws)
    moments = [chains.part(part == k).moments(values[part == k]) for k in range(3)]
    assert [m.groups for m in moments] == [7, 20, 33]
    whole = chains.moments(values)
    assert close(reduce(add, moments), whole)
    assert close(moments[0] + (moments[1] + moments[2]), whole)
    assert close(moments[2] + moments[0] + moments[1], whole)


def test_moments_of_the_halves_add_up_to_those_of_the_whole(known: Known) -> None:
    weights = np.random.default_rng(0).normal(size=LAYOUT.n_cells)
    whole = known.population.moments(known.population.scores(weights))
    halves = [half.moments(half.scores(weights)) for half in known.population.halves()]
    both = halves[0] + halves[1]
    for name in ("mean", "variance", "variance_of_mean"):
        assert getattr(both, name) == pytest.approx(getattr(whole, name), rel=1e-12, abs=1e-15)


# --- members --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_chains", [10, 11])
@pytest.mark.parametrize("draws", [1, 3])
def test_every_other_chain_is_in_the_other_half_with_all_its_draws(n_chains: int, draws: int) -> None:
    layout = Layout.plain((n_chains, draws), [(0,), (0, 1)])
    number = np.arange(n_chains * draws)
    codes = np.stack([number % n_chains, number // n_chains]).astype(np.uint16)
    first, second = Chains(layout, codes, draws).halves()
    for half, start in ((first, 0), (second, 1)):
        own = np.arange(start, n_chains, 2)
        np.testing.assert_array_equal(
            half.codes, [np.tile(own, draws), np.repeat(np.arange(draws), own.size)]
        )
        assert half.draws == draws
        assert half.codes.flags.c_contiguous


def test_halves_of_a_law_are_the_law() -> None:
    population = Enumeration(States(LAYOUT), the_law())
    for half in population.halves():
        np.testing.assert_array_equal(half.shares(), population.shares())


@pytest.mark.parametrize("most", [1, 7, 62, 63, 1000])
def test_some_members_are_no_more_than_asked_for_and_of_the_population(known: Known, most: int) -> None:
    codes = known.population.some(most)
    assert codes.dtype == np.uint16
    assert codes.shape[0] == len(CARDS)
    assert 1 <= codes.shape[1] <= most
    assert {tuple(x) for x in codes.T.tolist()} <= {tuple(x) for x in known.codes.tolist()}


def test_some_chains_are_evenly_chosen() -> None:
    codes = np.arange(1000, dtype=np.uint16)[None, :]
    chains = Chains(Layout.plain((1000,), [(0,)]), codes)
    np.testing.assert_array_equal(chains.some(1000), codes)
    np.testing.assert_array_equal(chains.some(5000), codes)
    some = chains.some(37)[0].astype(int)
    assert some.size == 37
    assert (some[0], some[-1]) == (0, 999)
    assert set(np.diff(some)) <= {27, 28}  # 999/36 = 27.75


def test_some_states_are_each_as_often_as_they_are_likely_within_one() -> None:
    law = the_law().copy()
    law[[0, 5, 23]] = 0
    law /= law.sum()
    some = Enumeration(States(LAYOUT), law).some(1000)
    seen = np.bincount(np.ravel_multi_index(tuple(some.astype(int)), CARDS), minlength=law.size)
    assert seen.sum() == 1000
    assert (np.abs(seen - 1000 * law) < 1 + 1e-9).all()
    assert (seen[law == 0] == 0).all()


# --- draws of a vector ----------------------------------------------------------------------------


def test_draws_have_the_covariance_of_the_dense_matrix(known: Known) -> None:
    variance, n_draws = np.exp(values_of(known)), 5000
    expected = known.psi.T @ ((known.law * variance)[:, None] * known.psi)
    drawn = known.population.draw(variance, [np.random.default_rng([7, k]) for k in range(n_draws)])
    assert drawn.shape == (LAYOUT.n_cells + 1, n_draws)
    assert drawn.dtype == np.float32
    wide = drawn.astype(np.float64)
    diagonal = np.diag(expected)
    # Means and products of normal numbers: five standard deviations for each of 33 cells and 561 pairs.
    assert (np.abs(wide.mean(axis=1)) <= 5 * np.sqrt(diagonal / n_draws)).all()
    spread = np.sqrt((expected**2 + np.outer(diagonal, diagonal)) / n_draws)
    assert (np.abs(wide @ wide.T / n_draws - expected) <= 5 * spread).all()
    # Not only large numbers are right: each table's cells sum to what the intercept has.
    for t in range(LAYOUT.n_tables):
        np.testing.assert_allclose(wide[LAYOUT.part(t)].sum(axis=0), wide[-1], rtol=0, atol=1e-5)


def test_a_draw_depends_on_its_generator_alone(known: Known) -> None:
    variance = np.exp(values_of(known))
    together = known.population.draw(variance, [np.random.default_rng(k) for k in range(3)])
    for k in range(3):
        alone = known.population.draw(variance, [np.random.default_rng(k)])
        np.testing.assert_array_equal(alone[:, 0], together[:, k])


@pytest.mark.parametrize("least", [0.0, 5e-324, 1e-250, 1e-90])
def test_states_next_to_impossible_leave_a_draw_what_it_is_without_them(least: float) -> None:
    layout = Layout.plain((2, 3), [(0,), (0, 1)])
    law = np.array([0.2, 0.3, 0.5, least, least, least])
    variance = np.full(6, 250.0)
    drawn = Enumeration(States(layout), law).draw(variance, [np.random.default_rng(k) for k in range(9)])
    assert np.isfinite(drawn).all()
    impossible = np.array([1, 5, 6, 7])
    assert (np.abs(drawn[impossible]) <= 10 * np.sqrt(750 * least)).all()
    np.testing.assert_allclose(drawn[0], drawn[-1], rtol=1e-6)
