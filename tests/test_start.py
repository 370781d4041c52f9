"""The starts against brute force: all spanning trees, all states, one chain over many seeds."""

from __future__ import annotations

from itertools import combinations, product
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from sklearn.metrics import mutual_info_score

from agglearn.errors import InputError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.margins import marginal, mutual_information, pair_tables
from agglearn.field.start import Start, independent_start, tree_start
from agglearn.runtime.random import Numbers
from tests.fields import count, pairs, random_field

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Edges = tuple[tuple[int, int], ...]


def tabulate(layout: Layout, x: npt.NDArray[np.integer]) -> Floats:
    return count(layout, x)[0]


def from_tree(seed: int, cards: tuple[int, ...], edges: Edges, n: int) -> Codes:
    """Records of a random tree distribution, strongly dependent along its edges."""
    return random_field(seed, Layout.plain(cards, edges), 1.5).draw(n, seed)[0].astype(np.int64)


def law_of_field(layout: Layout, start: Start) -> Floats:
    """The field's law of x at the start, as a tensor."""
    engine = ExactEngine(layout, 1.0)
    joint = engine.probabilities(Field(layout, start.mu, np.zeros(layout.n_cells), -1.0))
    return np.asarray(joint.sum(axis=1)).reshape(layout.cards)


def empirical(cards: tuple[int, ...], x: Codes) -> Floats:
    law = np.zeros(cards)
    np.add.at(law, tuple(x.T), 1 / len(x))
    return law


def margin(law: Floats, features: tuple[int, ...]) -> Floats:
    """Margin with every axis kept, so that margins multiply."""
    return np.asarray(law.sum(axis=tuple(f for f in range(law.ndim) if f not in features), keepdims=True))


def tree_law(law: Floats, edges: Edges) -> Floats:
    """The distribution of a tree with the margins of a law: Π p(x_f) Π p(a,b)/(p(a)p(b))."""
    out = np.ones(law.shape)
    for f in range(law.ndim):
        out = out * margin(law, (f,))
    for a, b in edges:
        out = out * margin(law, (a, b)) / (margin(law, (a,)) * margin(law, (b,)))
    return out


def all_spanning_trees(n: int) -> list[Edges]:
    trees = []
    for edges in combinations(list(combinations(range(n), 2)), n - 1):
        group = list(range(n))
        for a, b in edges:
            group = [group[a] if g == group[b] else g for g in group]
        if len(set(group)) == 1:
            trees.append(edges)
    return trees


def unordered(edges: Edges) -> set[tuple[int, int]]:
    return {(min(edge), max(edge)) for edge in edges}


def assert_chains_follow(law: Floats, chains: npt.NDArray[np.uint16]) -> None:
    """Chi-square on whole states, a column each; systematic draws only make it smaller.

    Seeds are fixed; a right sampler would fail once in 10,000 of them. States expected less than 5
    times are put together, as the approximation needs.
    """
    expected = chains.shape[1] * law.ravel()
    seen = np.bincount(np.ravel_multi_index(tuple(chains.astype(int)), law.shape), minlength=law.size)
    rare = expected < 5
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(seen[~rare], seen[rare].sum())
    kept = expected > 0.5
    assert seen[~kept].sum() <= 5
    expected, seen = expected[kept], seen[kept]
    assert ((seen - expected) ** 2 / expected).sum() < chi2.ppf(0.9999, df=len(seen) - 1)


# --- the tree ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("singles", [False, True])
def test_tree_start_is_the_best_of_all_spanning_trees(seed: int, singles: bool) -> None:
    """The tree of greatest likelihood among all 16, found without mutual information."""
    cards = (3, 2, 4, 3)
    rng = np.random.default_rng(seed)
    x = from_tree(seed, cards, ((0, 1), (0, 2), (1, 3)), 500)
    # Some of the records are redrawn uniformly: every cell is seen, and no tree is the truth.
    x = np.concatenate([x, rng.integers(0, cards, size=(500, 4))])
    law = empirical(cards, x)
    trees = all_spanning_trees(4)
    assert len(trees) == 16
    likelihood = [float((law * np.log(tree_law(law, edges))).sum()) for edges in trees]
    best = trees[int(np.argmax(likelihood))]

    orders = (1, 2) if singles else (2,)
    layout = Layout.plain(cards, [s for order in orders for s in combinations(range(4), order)])
    start = tree_start(layout, tabulate(layout, x), len(x), 10, Numbers(0), smoothing=1e-6)
    assert unordered(start.edges) == set(best)
    # Smoothing moves a probability by about smoothing / n = 1e-9.
    np.testing.assert_allclose(law_of_field(layout, start), tree_law(law, best), atol=1e-8)


def test_records_made_by_a_tree_give_that_tree_back() -> None:
    cards = (4, 3, 5, 3, 4, 2)
    edges = ((0, 1), (0, 2), (2, 3), (2, 4), (1, 5))
    x = from_tree(7, cards, edges, 20_000)
    layout = pairs(cards)
    start = tree_start(layout, tabulate(layout, x), len(x), 10, Numbers(0))
    assert unordered(start.edges) == set(edges)
    parents_seen = {0}
    for parent, child in start.edges:
        assert parent in parents_seen
        parents_seen.add(child)
    # The tree's law is the maximum likelihood one: it keeps the pairs it is made of.
    law, data = law_of_field(layout, start), empirical(cards, x)
    for edge in edges:
        # One pseudo-record in 20,000.
        np.testing.assert_allclose(margin(law, edge), margin(data, edge), atol=1 / 20_000)


def test_independent_start_is_the_product_of_the_singles() -> None:
    cards = (3, 2, 4)
    x = from_tree(5, cards, ((0, 1), (1, 2)), 3000)
    layout = pairs(cards)
    start = independent_start(layout, tabulate(layout, x), 3000, 20_000, Numbers(1), smoothing=1e-6)
    expected = tree_law(empirical(cards, x), ())
    assert start.edges == ()
    np.testing.assert_allclose(law_of_field(layout, start), expected, atol=1e-8)
    assert_chains_follow(expected, start.chains)


def test_mutual_information_agrees_with_scikit_learn() -> None:
    cards = (3, 2, 4, 5)
    x = from_tree(9, cards, ((0, 1), (1, 2), (0, 3)), 2000)
    layout = pairs(cards)
    information = mutual_information(layout, tabulate(layout, x))
    assert list(information) == list(combinations(range(4), 2))
    for (f, g), value in information.items():
        assert value == pytest.approx(mutual_info_score(x[:, f], x[:, g]), abs=1e-12)


def test_a_pair_is_read_in_the_smallest_plain_table_that_holds_it() -> None:
    layout = Layout.hashed((2, 3, 2, 2), ((0, 1, 2), (0, 1), (0, 2), (2, 3), (1, 2, 3)), (0, 0, 3, 0, 0))
    assert pair_tables(layout) == {(0, 1): 1, (0, 2): 0, (1, 2): 0, (1, 3): 4, (2, 3): 3}
    x = np.random.default_rng(0).integers(0, layout.cards, size=(50, 4))
    d = tabulate(layout, x)
    np.testing.assert_array_equal(
        marginal(layout, d, 0, (0, 2)), np.histogram2d(x[:, 0], x[:, 2], bins=(2, 2))[0]
    )


# --- the chains -------------------------------------------------------------------------------


def test_chains_follow_the_tree_they_are_drawn_from() -> None:
    cards = (3, 4, 2, 3)
    x = from_tree(11, cards, ((0, 1), (0, 2), (2, 3)), 2000)
    layout = pairs(cards)
    start = tree_start(layout, tabulate(layout, x), 2000, 30_000, Numbers(3))
    law = law_of_field(layout, start)
    assert start.chains.shape == (4, 30_000)
    assert start.chains.dtype == np.uint16
    assert start.chains.flags.c_contiguous
    assert_chains_follow(law, start.chains)
    # Any part of the chains is as good as another: they are not sorted.
    assert_chains_follow(law, start.chains[:, :5000])


def test_one_chain_alone_follows_the_tree_over_many_seeds() -> None:
    """Systematic draws depend on one another, so each must be right by itself."""
    cards = (2, 3, 2)
    x = from_tree(12, cards, ((0, 1), (1, 2)), 300)
    layout = pairs(cards)
    d = tabulate(layout, x)
    last = [tree_start(layout, d, 300, 2, Numbers(seed)).chains[:, 1] for seed in range(3000)]
    law = law_of_field(layout, tree_start(layout, d, 300, 2, Numbers(0)))
    assert_chains_follow(law, np.stack(last, axis=1))


def test_counts_along_the_edges_are_within_one_of_what_the_tree_expects() -> None:
    cards = (5, 4, 6)
    x = from_tree(13, cards, ((0, 1), (1, 2)), 3000)
    layout = pairs(cards)
    start = tree_start(layout, tabulate(layout, x), 3000, 10_007, Numbers(4))
    law = law_of_field(layout, start)
    seen = empirical(cards, start.chains.T.astype(np.int64)) * 10_007
    assert np.abs(margin(seen, (0,)) - 10_007 * margin(law, (0,))).max() < 1
    for parent, child in start.edges:
        given = margin(law, (parent, child)) / margin(law, (parent,))
        expected = margin(seen, (parent,)) * given
        assert np.abs(margin(seen, (parent, child)) - expected).max() < 1 + 1e-6


def test_the_seed_decides_the_chains() -> None:
    layout = pairs((3, 3, 3))
    d = tabulate(layout, np.random.default_rng(0).integers(0, 3, size=(200, 3)))
    first, again, other = (tree_start(layout, d, 200, 500, Numbers(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.chains, again.chains)
    np.testing.assert_array_equal(first.mu, other.mu)
    assert (first.chains != other.chains).any()


# --- tables of other kinds --------------------------------------------------------------------


def test_pairs_hidden_in_a_larger_table_are_used() -> None:
    cards = (2, 3, 2, 3)
    x = from_tree(17, cards, ((0, 1), (1, 2), (2, 3)), 5000)
    layout = Layout.plain(cards, [(0, 1, 2), (2, 3)])
    start = tree_start(layout, tabulate(layout, x), 5000, 20_000, Numbers(0), smoothing=1e-6)
    assert unordered(start.edges) == {(0, 1), (1, 2), (2, 3)}
    expected = tree_law(empirical(cards, x), ((0, 1), (1, 2), (2, 3)))
    np.testing.assert_allclose(law_of_field(layout, start), expected, atol=1e-8)
    assert_chains_follow(expected, start.chains)


def test_pairs_without_a_table_leave_a_forest() -> None:
    cards = (3, 2, 3, 2, 2)
    x = from_tree(19, cards, ((0, 1), (1, 2), (2, 3)), 4000)
    layout = Layout.plain(cards, [(0, 1), (2, 3), (4,)])
    start = tree_start(layout, tabulate(layout, x), 4000, 20_000, Numbers(0), smoothing=1e-6)
    assert start.edges == ((0, 1), (2, 3))
    expected = tree_law(empirical(cards, x), start.edges)
    np.testing.assert_allclose(law_of_field(layout, start), expected, atol=1e-8)
    assert_chains_follow(expected, start.chains)


def test_features_that_only_hashed_tables_hold_start_uniform() -> None:
    cards = (3, 2, 4)
    x = from_tree(23, cards, ((0, 1), (1, 2)), 4000)
    layout = Layout.hashed(cards, ((0, 1), (1, 2), (2,)), (0, 5, 3))
    d = tabulate(layout, x)
    d[6:] = np.random.default_rng(0).integers(0, 4000, size=8)
    start = tree_start(layout, d, 4000, 20_000, Numbers(0), smoothing=1e-6)
    data = empirical(cards, x)
    expected = np.broadcast_to(margin(data, (0, 1)) / 4, cards)
    assert start.edges == ((0, 1),)
    assert not start.mu[6:].any()
    np.testing.assert_allclose(law_of_field(layout, start), expected, atol=1e-8)
    assert_chains_follow(np.asarray(expected), start.chains)


# --- noise, emptiness, smoothing --------------------------------------------------------------


@pytest.mark.parametrize("sigma", [5.0, 500.0])
def test_noisy_and_negative_counts_still_give_a_law_that_the_chains_follow(sigma: float) -> None:
    cards = (3, 4, 2, 3)
    rng = np.random.default_rng(29)
    x = from_tree(29, cards, ((0, 1), (0, 2), (2, 3)), 1000)
    layout = pairs(cards)
    d = tabulate(layout, x)
    d += rng.normal(scale=sigma, size=d.size)
    assert d.min() < 0
    start = tree_start(layout, d, 1000, 20_000, Numbers(0))
    assert np.isfinite(start.mu).all()
    assert_chains_follow(law_of_field(layout, start), start.chains)


@pytest.mark.parametrize("feature", [0, 1], ids=["parent", "child"])
def test_disagreeing_tables_are_brought_to_one_margin(feature: int) -> None:
    """A feature seen in a small table and a large one leans on the small one's margin."""
    cards = (2, 50) if feature == 0 else (50, 2)
    layout = Layout.plain(cards, [(feature,), (0, 1)])
    d = np.concatenate([[800.0, 200.0], np.full(100, 10.0)])
    start = tree_start(layout, d, 1000, 10, Numbers(0), smoothing=1e-6)
    assert start.edges == ((0, 1),)
    law = law_of_field(layout, start)
    # Weights 1 and 1/50: (800 + 500/50) / (1000 + 1000/50).
    assert margin(law, (feature,)).ravel()[0] == pytest.approx(810 / 1020, abs=1e-6)


def test_empty_cells_share_one_pseudo_record_by_default() -> None:
    layout = Layout.plain((2, 2), [(0, 1)])
    d = np.array([50.0, 0.0, 0.0, 50.0])
    law = law_of_field(layout, tree_start(layout, d, 100, 10, Numbers(0)))
    # One record over four equal cells, among 101.
    np.testing.assert_allclose(law, np.array([[50.25, 0.25], [0.25, 50.25]]) / 101, rtol=1e-9)


@pytest.mark.parametrize("rows", [0.0, 10.0])
def test_tables_without_a_single_count_start_uniform(rows: float) -> None:
    layout = Layout.plain((2, 3), [(0, 1)])
    start = tree_start(layout, np.zeros(6), rows, 60, Numbers(0))
    np.testing.assert_allclose(law_of_field(layout, start), 1 / 6, rtol=1e-12)


def test_smoothing_of_nothing_is_refused() -> None:
    layout = Layout.plain((2, 2), [(0, 1)])
    with pytest.raises(InputError, match="more than 0"):
        tree_start(layout, np.ones(4), 4, 10, Numbers(0), smoothing=0.0)


# --- for any tables ---------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_exp_of_the_weights_is_a_law_whatever_the_tables(data: st.DataObject, seed: int) -> None:
    """Σ_x exp(φ(x)·μ) = 1 without any normalisation, with noise, and the pairs form a forest."""
    cards = tuple(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=5)))
    assume(prod(cards) <= 500)
    features = range(len(cards))
    scopes = [scope for order in (2, 3) for scope in combinations(features, order)]
    chosen = data.draw(st.lists(st.sampled_from(scopes), min_size=1, max_size=6, unique=True))
    layout = Layout.plain(cards, [*((f,) for f in features), *chosen])
    rng = np.random.default_rng(seed)
    d = tabulate(layout, rng.integers(0, cards, size=(100, len(cards))))
    d += rng.normal(scale=data.draw(st.sampled_from([0.0, 3.0, 100.0])), size=d.size)
    start = tree_start(layout, d, 100, 50, Numbers(seed))

    total = 0.0
    for state in product(*map(range, cards)):
        total += float(
            np.exp(
                sum(
                    layout.table(start.mu, t)[tuple(state[f] for f in scope)]
                    for t, scope in enumerate(layout.scopes)
                )
            )
        )
    # Rounding of up to 500 exponentials.
    assert total == pytest.approx(1.0, abs=1e-9)
    children = [child for _, child in start.edges]
    assert len(children) == len(set(children))
    assert unordered(start.edges) <= set(pair_tables(layout))
    assert (start.chains < np.array(cards)[:, None]).all()
