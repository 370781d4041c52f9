"""The sampler against the enumerated field, and its promises: threads, resuming, growing."""

from __future__ import annotations

import tracemalloc
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from agglearn.field.engines import local
from agglearn.field.engines.local import LocalEngine, memory_needed
from agglearn.field.engines.protocol import Engine
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.proposals import build_proposals
from agglearn.runtime.random import Numbers
from tests.fields import KnownField, cells_of, random_field, sparse_layout

Floats = npt.NDArray[np.float64]
INTERCEPT = -0.4


def random_weights(layout: Layout, seed: int, scale: float = 0.7, intercept: float = INTERCEPT) -> KnownField:
    return random_field(seed, layout, scale, intercept)


def states(engine: LocalEngine) -> npt.NDArray[np.int64]:
    state = engine.get_state()
    x = np.ravel_multi_index(tuple(state["chains"].astype(np.int64)), engine.layout.cards)
    return np.asarray(2 * x + state["labels"])


def chi_square(counts: npt.NDArray[np.int64], p: Floats) -> tuple[float, int]:
    """The statistic and its degrees of freedom, states of small expectation taken together."""
    expected = p * counts.sum()
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    assert observed[~kept].sum() == 0
    return float(((observed - expected)[kept] ** 2 / expected[kept]).sum()), int(kept.sum()) - 1


PAIRS = Layout.plain((3, 4, 2, 5), [*combinations(range(4), 2), (0,), (3,)])
MIXED = Layout.hashed(
    (3, 4, 2, 5),
    ((3,), (0, 1), (2, 3), (0, 1, 3), (0, 2, 3), (1, 3), (0, 1, 2)),
    (0, 0, 0, 0, 0, 7, 11),
)
LONG = Layout.hashed((37, 3, 16), ((0, 1), (1, 2), (0, 2), (0, 1, 2)), (0, 0, 0, 90))
FREE = Layout.hashed((3, 18, 2), ((0, 2), (1,)), (0, 5))  # feature 1 has no plain table
SPARSE = sparse_layout(PAIRS, 0.3)
SPARSE_MIXED = sparse_layout(MIXED, 0.6, tables=[1, 3, 4])


@pytest.mark.parametrize("sampler", ["gibbs", "metropolis"])
@pytest.mark.parametrize(
    "layout",
    [PAIRS, MIXED, LONG, FREE, SPARSE, SPARSE_MIXED],
    ids=["pairs", "mixed", "long", "free", "sparse", "sparse mixed"],
)
def test_chains_settle_to_the_enumerated_field(layout: Layout, sampler: str) -> None:
    """From one and the same state all chains forget it: after enough sweeps they are independent
    draws of π, so that Pearson's statistic has a χ² law with the degrees of freedom counted."""
    n_chains, total, freedom = 20_000, 0.0, 0
    for seed in range(3):
        field = random_weights(layout, seed, 0.35 if layout is LONG else 0.5)
        proposals = None
        if sampler == "metropolis":
            # proposals from an unrelated law: only the acceptance ratio can bring the field about
            d = np.random.default_rng(seed + 10).gamma(1.0, 20.0, layout.n_cells)
            proposals = build_proposals(layout, d, exact_up_to=2)
        chains = np.zeros((layout.n_features, n_chains), np.uint16)
        engine = LocalEngine(layout, chains, 1.0, Numbers(seed), 1, proposals, exact_up_to=2)
        for iteration in range(25 if sampler == "gibbs" else 80):
            engine.sweep(field, iteration)
        p = field.law.ravel()
        statistic, degrees = chi_square(np.bincount(states(engine), minlength=p.size), p)
        total, freedom = total + statistic, freedom + degrees
    assert freedom > 30
    # two-sided: a statistic far too small would mean chains that are not independent
    assert 1e-4 < chi2.sf(total, freedom) < 1 - 1e-4


def test_metropolis_mixes_with_exact_draws_in_one_engine() -> None:
    layout = Layout.plain((9, 3, 4), list(combinations(range(3), 2)))
    field = random_weights(layout, 1)
    d = np.random.default_rng(2).gamma(1.0, 20.0, layout.n_cells)
    proposals = build_proposals(layout, d, exact_up_to=3)
    engine = LocalEngine(
        layout, np.zeros((3, 60_000), np.uint16), 1.0, Numbers(3), 1, proposals, 5, proposals_per_feature=1
    )
    for iteration in range(60):
        info = engine.sweep(field, iteration)
    p = field.law.ravel()
    statistic, degrees = chi_square(np.bincount(states(engine), minlength=p.size), p)
    assert chi2.sf(statistic, degrees) > 1e-4
    assert 0 < info["acceptance"] < 1
    assert 0 < info["moves"] < 1


def test_weights_far_apart_neither_overflow_nor_stray() -> None:
    """Logits hundreds apart: what has less than e⁻¹⁰⁰ is never seen, the two equals are."""
    layout = Layout.plain((20, 2), [(0,), (1,), (0, 1)])
    mu = np.zeros(layout.n_cells)
    mu[:20] = -3000.0
    mu[[4, 19]] = 800.0
    engine = LocalEngine(layout, np.zeros((2, 4000), np.uint16), 1.0, Numbers(0), 1)
    engine.sweep(Field(layout, mu, np.zeros_like(mu), 0.0), 0)
    counts = np.bincount(engine.chains[0], minlength=20)
    assert counts[4] + counts[19] == 4000
    assert abs(counts[4] - 2000) < 5 * np.sqrt(1000)  # five standard deviations of a fair coin


def test_a_feature_without_tables_is_uniform() -> None:
    layout = Layout.plain((3, 5), [(0,)])
    engine = LocalEngine(layout, np.zeros((2, 20_000), np.uint16), 1.0, Numbers(0), 1)
    engine.sweep(Field(layout, np.zeros(3), np.zeros(3), 0.0), 0)
    statistic, degrees = chi_square(np.bincount(engine.chains[1], minlength=5), np.full(5, 0.2))
    assert degrees == 4
    assert chi2.sf(statistic, degrees) > 1e-4


def _engine(threads: int, n_chains: int = 20_011, **options: Any) -> LocalEngine:
    layout = Layout.hashed((30, 3, 150, 7), ((0, 1), (0, 2), (1, 2), (2, 3), (0, 1, 3)), (0, 0, 0, 0, 64))
    rng = np.random.default_rng(11)
    chains = np.stack([rng.integers(0, m, n_chains) for m in layout.cards]).astype(np.uint16)
    d = np.random.default_rng(12).gamma(1.0, 5.0, layout.n_cells)
    proposals = build_proposals(layout, d, exact_up_to=100)
    return LocalEngine(layout, chains, 1e6, Numbers(5), threads, proposals, **options)


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_WORTH", 1)  # so that all threads take part, little as there is
    results = []
    for threads in (1, 2, 3):
        engine = _engine(threads)
        field = random_weights(engine.layout, 3, 0.4)
        for iteration in range(2):
            expected = engine.expect(field, iteration)
        results.append((engine.get_state(), expected))
    for state, expected in results[1:]:
        first_state, first = results[0]
        for name, array in first_state.items():
            np.testing.assert_array_equal(state[name], array)
        np.testing.assert_array_equal(expected.d, first.d)
        np.testing.assert_array_equal(expected.c, first.c)
        assert (expected.positives, expected.info) == (first.positives, first.info)


def test_a_chain_goes_its_way_whatever_other_chains_there_are() -> None:
    many, few = _engine(1, 9000), _engine(1, 9000)
    few.set_state({"chains": few.chains[:, :100]})
    field = random_weights(many.layout, 3, 0.4)
    for iteration in range(2):
        many.sweep(field, iteration)
        few.sweep(field, iteration)
    np.testing.assert_array_equal(few.chains, many.chains[:, :100])


def test_seed_and_iteration_decide_the_draws() -> None:
    layout = PAIRS
    field = random_weights(layout, 0, intercept=0.0)
    seen = []
    for seed, iteration in ((0, 0), (0, 0), (0, 1), (1, 0)):
        engine = LocalEngine(layout, np.zeros((4, 50), np.uint16), 1.0, Numbers(seed), 1)
        engine.sweep(field, iteration)
        seen.append(engine.chains.tobytes())
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


@pytest.mark.parametrize("before", [0, 2])
def test_going_on_from_a_saved_state_is_as_never_having_stopped(before: int) -> None:
    engine = _engine(1, 500)
    field = random_weights(engine.layout, 3, 0.4)
    for iteration in range(before):
        engine.sweep(field, iteration)
    state = engine.get_state()
    assert state["chains"].dtype == np.uint16
    assert state["chains"].shape == (4, 500)
    kept = {name: array.copy() for name, array in state.items()}
    expected = [engine.expect(field, before + k) for k in range(2)]
    for name, array in kept.items():
        np.testing.assert_array_equal(state[name], array)  # a state is no view of what moves
    again = _engine(2, 30)
    again.set_state(kept)
    for k in range(2):
        got = again.expect(field, before + k)
        np.testing.assert_array_equal(got.d, expected[k].d)
        np.testing.assert_array_equal(got.c, expected[k].c)


@pytest.mark.parametrize("marginal", [True, False])
def test_expectations_are_tallies_of_the_chains_scaled_to_the_rows(marginal: bool) -> None:
    n_chains, rows = 400, 1000.0
    chains = np.zeros((4, n_chains), np.uint16)
    engine: Engine = LocalEngine(MIXED, chains, rows, Numbers(2), 1, marginal_label=marginal)
    field = random_weights(MIXED, 4)
    got = engine.expect(field, 0)
    state = engine.get_state()
    d, c, positives = np.zeros(MIXED.n_cells), np.zeros(MIXED.n_cells), 0.0
    scores = engine.population(field).scores(field.theta, INTERCEPT)
    for i, at in enumerate(cells_of(MIXED, state["chains"].T).T):
        score = field.theta[at].sum() + INTERCEPT
        assert scores[i] == pytest.approx(score, abs=1e-12)
        y = 1 / (1 + np.exp(-score)) if marginal else float(state["labels"][i])
        d[at] += rows / n_chains
        c[at] += y * rows / n_chains
        positives += y * rows / n_chains
    np.testing.assert_allclose(got.d, d, rtol=1e-12)
    # probabilities are rounded to multiples of 2⁻³⁰
    np.testing.assert_allclose(got.c, c, rtol=1e-12, atol=rows * 2.0**-30)
    assert got.positives == pytest.approx(positives, abs=rows * 2.0**-30)
    assert 0 < got.info["moves"] < 1
    assert "acceptance" not in got.info


def test_growing_copies_every_chain_as_often() -> None:
    engine = _engine(1, 300)
    field = random_weights(engine.layout, 3, 0.4)
    engine.sweep(field, 0)
    before = engine.get_state()
    engine.grow(750, 1)
    after = engine.get_state()
    assert engine.n_chains == 750
    for name in ("chains", "labels"):
        np.testing.assert_array_equal(after[name][..., :300], before[name])

    def rows(state: dict[str, npt.NDArray[Any]]) -> list[tuple[int, ...]]:
        return [tuple(row) for row in np.vstack([state["chains"], state["labels"]]).T.tolist()]

    def count(rows: list[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
        return {row: rows.count(row) for row in rows}

    old, new = count(rows(before)), count(rows(after))
    assert old.keys() == new.keys()
    assert all(2 * old[row] <= new[row] <= 3 * old[row] for row in old)
    engine.sweep(field, 1)
    moved = engine.chains
    assert (moved[:, :300] != moved[:, 300:600]).any()  # copies part


@pytest.mark.parametrize("n_chains", [10, 300])
def test_chains_that_are_enough_stay_as_they_are(n_chains: int) -> None:
    engine = _engine(1, 300)
    engine.sweep(random_weights(engine.layout, 3, 0.4), 0)
    before = engine.get_state()
    engine.grow(n_chains, 2)
    assert engine.n_chains == 300
    np.testing.assert_equal(engine.get_state(), before)


def test_memory_is_known_before_it_is_taken() -> None:
    layout = Layout.hashed((300, 200, 90, 5), tuple(combinations(range(4), 2)), (0, 0, 0, 0, 0, 400))
    chains = np.zeros((4, 30_000), np.uint16)
    field = random_weights(layout, 0, 0.1, intercept=0.0)
    LocalEngine(layout, chains[:, :10], 1.0, Numbers(0), 1).expect(field, 0)  # compile first
    tracemalloc.start()
    try:
        engine = LocalEngine(layout, chains, 1.0, Numbers(0), 1)
        engine.expect(field, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    needed = memory_needed(layout, chains.shape[1], threads=1)
    assert 0.5 * needed < peak < needed
