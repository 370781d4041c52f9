"""Each baseline against an independent way to the same model: by hand, by scikit-learn, by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB

from agglearn.errors import InputError, TableError, TooLargeError
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, make_problem
from agglearn.judge.baselines import (
    LogOddsModel,
    best_pair,
    logistic,
    naive_bayes,
    one_hot,
    pair_models,
)
from agglearn.judge.skyline import skyline
from agglearn.judge.tree_bayes import tree_augmented_nb
from agglearn.schema.features import Codes
from tests.fields import bucket, every_state, random_field, tables_of, with_noise

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.uint8]
Scopes = Sequence[tuple[int, ...]]

CARDS = (3, 4, 2, 3)


def records(seed: int = 0, cards: tuple[int, ...] = CARDS, n: int = 3000) -> tuple[Codes, Labels]:
    """Records whose features and label depend on each other in pairs; a row per feature."""
    codes, y = random_field(seed, cards, intercept=-0.7).draw(n, seed)
    return np.ascontiguousarray(codes.T), y


def tabulated(
    codes: Codes, y: Labels, scopes: Scopes, cards: tuple[int, ...] = CARDS, noise: float = 0.0
) -> Problem:
    data = tables_of(Layout.plain(cards, scopes), codes.T, y)
    return make_problem(with_noise(data, "gaussian", noise, noise, seed=99) if noise else data)


def every(cards: tuple[int, ...] = CARDS) -> Codes:
    """Every combination of codes once."""
    return np.ascontiguousarray(every_state(cards).T)


PAIRS = tuple(combinations(range(len(CARDS)), 2))
SINGLES = tuple((f,) for f in range(len(CARDS)))


# Naive Bayes


def test_naive_bayes_of_a_table_worked_out_by_hand() -> None:
    """Six positives of 10; x=1 in 5 of 6 positives and 1 of 4 negatives: odds 1.5 × (5/6)/(1/4) = 5."""
    y = np.array([1] * 6 + [0] * 4, np.uint8)
    x = np.array([[1, 1, 1, 1, 1, 0, 1, 0, 0, 0]], np.uint16)
    model = naive_bayes(tabulated(x, y, [(0,)], (2,)), 0.0)
    odds = np.exp(model.log_odds(np.array([[0, 1]], np.uint16)))
    np.testing.assert_allclose(odds, [1 / 3, 5], rtol=1e-7)


def test_unpenalised_naive_bayes_is_that_of_scikit_learn() -> None:
    codes, y = records()
    reference = CategoricalNB(alpha=1e-12).fit(codes.T, y).predict_log_proba(every().T)
    model = naive_bayes(tabulated(codes, y, SINGLES), 0.0)
    np.testing.assert_allclose(model.log_odds(every()), reference[:, 1] - reference[:, 0], atol=1e-7)


@pytest.mark.parametrize("scopes", [PAIRS, [(0, 1, 2, 3)], [(0, 1, 3), (1, 2)]])
def test_naive_bayes_does_not_depend_on_which_tables_hold_the_features(scopes: Scopes) -> None:
    codes, y = records()
    expected = naive_bayes(tabulated(codes, y, SINGLES), 3.0).log_odds(every())
    np.testing.assert_allclose(naive_bayes(tabulated(codes, y, scopes), 3.0).log_odds(every()), expected)


@pytest.mark.parametrize("l2", [0.01, 1.0, 300.0])
def test_each_naive_bayes_weight_minimises_its_own_penalised_loss(l2: float) -> None:
    codes, y = records()
    model = naive_bayes(tabulated(codes, y, SINGLES), l2)
    b = np.log(y.mean() / (1 - y.mean()))
    for f, x in enumerate(codes):
        for value, w in enumerate(model.layout.table(model.theta, f)):
            d, c = int((x == value).sum()), int(y[x == value].sum())
            loss = minimize_scalar(
                lambda w, c=c, d=d: -c * w + d * np.logaddexp(0, b + w) + l2 * w * w,
                bounds=(-10, 10),
                options={"xatol": 1e-9},
            )
            assert w == pytest.approx(loss.x, abs=1e-6)


def test_values_with_one_label_only_and_values_never_seen_stay_finite() -> None:
    x = np.array([[0, 0, 0, 1, 1, 2, 2]], np.uint16)
    y = np.array([1, 1, 1, 0, 0, 0, 1], np.uint8)
    model = naive_bayes(tabulated(x, y, [(0,)], (4,)), 0.0)
    assert np.isfinite(model.theta).all()
    assert model.theta[0] > 10
    assert model.theta[1] < -10
    assert model.theta[3] == 0


# Best pair


@pytest.mark.parametrize("l2", [0.5, 20.0])
def test_every_pair_is_the_logistic_of_scikit_learn_on_its_cells(l2: float) -> None:
    codes, y = records()
    gains = {}
    models = pair_models(tabulated(codes, y, PAIRS), l2)
    assert [m.pair for m in models] == list(PAIRS)
    for model in models:
        i, j = model.pair
        one_hots = np.eye(CARDS[i] * CARDS[j])[codes[i].astype(int) * CARDS[j] + codes[j]]
        reference = LogisticRegression(C=1 / (2 * l2), tol=1e-10, max_iter=2000).fit(one_hots, y)
        np.testing.assert_allclose(model.theta, reference.coef_[0], atol=1e-4)
        assert model.intercept == pytest.approx(reference.intercept_[0], abs=1e-4)
        z = reference.decision_function(one_hots)
        constant = len(y) * (y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(1 - y.mean()))
        likelihood = (y * z - np.logaddexp(0, z)).sum() - l2 * (reference.coef_**2).sum()
        gains[model.pair] = likelihood - constant
        assert model.gain == pytest.approx(gains[model.pair], abs=1e-4)
    assert best_pair(tabulated(codes, y, PAIRS), l2).pair == max(gains, key=gains.__getitem__)


def test_a_pair_is_read_from_a_larger_table_too() -> None:
    codes, y = records()
    direct = best_pair(tabulated(codes, y, PAIRS), 2.0)
    summed = best_pair(tabulated(codes, y, [(0, 1, 2, 3)]), 2.0)
    assert summed.pair == direct.pair
    np.testing.assert_allclose(summed.log_odds(every()), direct.log_odds(every()))


def test_one_pair_can_be_asked_for() -> None:
    codes, y = records()
    problem = tabulated(codes, y, PAIRS)
    (model,) = pair_models(problem, 2.0, [(1, 3)])
    np.testing.assert_allclose(model.theta, pair_models(problem, 2.0)[PAIRS.index((1, 3))].theta)


def test_an_unpenalised_pair_gives_the_rate_of_each_cell() -> None:
    codes, y = records()
    model = pair_models(tabulated(codes, y, [(0, 1)]), 0.0)[0]
    d, c = np.zeros((3, 4)), np.zeros((3, 4))
    np.add.at(d, tuple(codes[:2]), 1)
    np.add.at(c, tuple(codes[:2]), y)
    z = model.intercept + model.theta.reshape(3, 4)
    np.testing.assert_allclose(1 / (1 + np.exp(-z)), c / d, atol=1e-8)


def test_a_hashed_pair_is_fitted_by_its_buckets() -> None:
    codes, y = records()
    size = 5
    buckets = np.array([bucket(pair, size) for pair in codes[:2].T.tolist()])
    d, c = np.bincount(buckets, minlength=size), np.bincount(buckets, y, minlength=size)
    layout = Layout.hashed(CARDS, ((0, 1),), (size,))
    problem = Problem(layout, d.astype(float), c.astype(float), len(y), float(y.sum()))
    model = best_pair(problem, 0.0)
    rates = 1 / (1 + np.exp(-model.log_odds(codes)))
    np.testing.assert_allclose(rates, (c / d)[buckets], atol=1e-8)
    with pytest.raises(TableError, match="hashed"):
        naive_bayes(problem, 1.0)


def test_tables_of_single_features_have_no_best_pair() -> None:
    with pytest.raises(TableError, match="pair"):
        best_pair(tabulated(*records(), SINGLES), 1.0)


def test_the_only_feature_is_its_own_best_pair() -> None:
    codes, y = records(cards=(3,))
    model = best_pair(tabulated(codes, y, [(0,)], (3,)), 0.0)
    np.testing.assert_allclose(
        1 / (1 + np.exp(-model.log_odds(np.array([[0, 1, 2]], np.uint16)))),
        [y[codes[0] == v].mean() for v in range(3)],
        atol=1e-8,
    )


# Tree-augmented Naive Bayes


def spanning_trees(n: int) -> list[tuple[tuple[int, int], ...]]:
    """All trees over n features: n−1 edges that connect everything."""
    trees = []
    for edges in combinations(combinations(range(n), 2), n - 1):
        reached = {0}
        for _ in range(n):
            reached |= {f for e in edges if reached & set(e) for f in e}
        if len(reached) == n:
            trees.append(edges)
    return trees


def conditional_information(a: Codes, b: Codes, y: Labels) -> float:
    """Σ_y P(y) Σ_ab P(a,b|y) log(P(a,b|y) / P(a|y)P(b|y)), value by value."""
    total = 0.0
    for label in (0, 1):
        u, v = a[y == label], b[y == label]
        for s, t in product(np.unique(u), np.unique(v)):
            joint = np.mean((u == s) & (v == t))
            if joint:
                total += np.mean(y == label) * joint * np.log(joint / np.mean(u == s) / np.mean(v == t))
    return total


def tree_log_odds(codes: Codes, y: Labels, tree: Scopes, x: Codes) -> Floats:
    """log P(y=1)/P(y=0) plus that of Π P(pair|y) / Π P(x_f|y)^(degree − 1), by frequencies."""
    z = np.full(x.shape[1], np.log(y.mean() / (1 - y.mean())))
    for label, sign in ((1, 1), (0, -1)):
        own = codes[:, y == label]
        for i, j in tree:
            pair = (own[i][:, None] == x[i]) & (own[j][:, None] == x[j])
            z += sign * np.log(pair.mean(axis=0))
        for f in range(len(codes)):
            degree = sum(f in edge for edge in tree)
            z -= sign * (degree - 1) * np.log((own[f][:, None] == x[f]).mean(axis=0))
    return z


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scopes", [PAIRS, [(0, 1, 2, 3)]])
def test_the_tree_is_the_best_of_all_and_its_laws_are_the_frequencies(seed: int, scopes: Scopes) -> None:
    codes, y = records(seed)
    trees = spanning_trees(4)
    assert len(trees) == 16  # Cayley: 4²
    information = {(i, j): conditional_information(codes[i], codes[j], y) for i, j in PAIRS}
    best = max(trees, key=lambda tree: sum(information[e] for e in tree))
    model = tree_augmented_nb(tabulated(codes, y, scopes), 1e-9)
    assert {s for s in model.layout.scopes if len(s) == 2} == set(best)
    np.testing.assert_allclose(model.log_odds(every()), tree_log_odds(codes, y, best, every()), atol=1e-6)


def test_without_pairs_the_tree_is_naive_bayes() -> None:
    codes, y = records()
    problem = tabulated(codes, y, SINGLES)
    np.testing.assert_allclose(
        tree_augmented_nb(problem, 1e-9).log_odds(every()),
        naive_bayes(problem, 0.0).log_odds(every()),
        atol=1e-7,
    )


def test_smoothing_leads_from_the_frequencies_to_the_base_rate() -> None:
    codes, y = records()
    problem = tabulated(codes, y, PAIRS)
    spread = [tree_augmented_nb(problem, s).log_odds(every()).std() for s in (1e-6, 10.0, 1e3, 1e9)]
    assert spread == sorted(spread, reverse=True)
    np.testing.assert_allclose(
        tree_augmented_nb(problem, 1e9).log_odds(every()), np.log(y.mean() / (1 - y.mean())), atol=1e-4
    )


def test_cells_never_seen_stay_finite_in_the_tree() -> None:
    codes, y = records(cards=(9, 9, 9), n=60)
    model = tree_augmented_nb(tabulated(codes, y, tuple(combinations(range(3), 2)), (9, 9, 9)), 1.0)
    assert np.isfinite(model.theta).all()


@pytest.mark.parametrize("smoothing", [0.0, -1.0, np.nan])
def test_the_tree_needs_smoothing(smoothing: float) -> None:
    with pytest.raises(InputError, match="smoothing"):
        tree_augmented_nb(tabulated(*records(), PAIRS), smoothing)


# What all of them share


def test_noisy_tables_with_negative_counts_give_finite_models() -> None:
    codes, y = records(n=200)
    problem = tabulated(codes, y, PAIRS, noise=10.0)
    assert (problem.d < 0).any()
    for model in (naive_bayes(problem, 0.0), best_pair(problem, 0.0), tree_augmented_nb(problem, 1.0)):
        assert np.isfinite(model.log_odds(every())).all()


def test_unknown_values_add_nothing() -> None:
    codes, y = records()
    problem = tabulated(codes, y, PAIRS)
    unknown = np.array(CARDS, np.uint16)[:, None]
    partly = np.array([[1], [CARDS[1]], [0], [2]], np.uint16)
    bayes = naive_bayes(problem, 1.0)
    weights = [bayes.layout.table(bayes.theta, f) for f in range(4)]
    assert bayes.log_odds(unknown)[0] == pytest.approx(bayes.intercept)
    assert bayes.log_odds(partly)[0] == pytest.approx(
        bayes.intercept + weights[0][1] + weights[2][0] + weights[3][2]
    )
    for model in (tree_augmented_nb(problem, 1.0), *pair_models(problem, 1.0)):
        assert model.log_odds(unknown)[0] == pytest.approx(model.intercept)


@pytest.mark.parametrize("l2", [-1.0, np.nan, np.inf])
def test_an_impossible_penalty_is_refused(l2: float) -> None:
    codes, y = records(n=50)
    problem = tabulated(codes, y, PAIRS)
    for fit in (naive_bayes, best_pair):
        with pytest.raises(InputError, match="penalty"):
            fit(problem, l2)
    with pytest.raises(InputError, match="penalty"):
        logistic(codes, y, problem.layout, l2)


# The logistic


def dense_one_hot(codes: Codes, layout: Layout) -> Floats:
    """A row per record, made cell by cell."""
    rows = np.zeros((codes.shape[1], layout.n_cells))
    for i, x in enumerate(codes.T.tolist()):
        for t, scope in enumerate(layout.scopes):
            own, cards = [x[f] for f in scope], [layout.cards[f] for f in scope]
            if any(v >= m for v, m in zip(own, cards, strict=True)):
                continue
            hashed = layout.buckets[t]
            cell = bucket(own, hashed) if hashed else int(np.ravel_multi_index(own, cards))
            rows[i, layout.offsets[t] + cell] = 1
    return rows


LAYOUTS = {
    "pairs": Layout.plain(CARDS, PAIRS),
    "mixed": Layout.hashed(CARDS, ((0,), (1, 2), (0, 1, 3), (0, 3), (1, 2, 3)), (0, 0, 0, 4, 7)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("with_unknown", [False, True])
def test_the_logistic_is_that_of_scikit_learn_on_a_dense_one_hot(name: str, with_unknown: bool) -> None:
    layout = LAYOUTS[name]
    codes, y = records(n=800)
    if with_unknown:
        codes[1, ::7] = CARDS[1]
        codes[3, ::5] = CARDS[3]
    dense = dense_one_hot(codes, layout)
    np.testing.assert_array_equal(one_hot(codes, layout).toarray(), dense)
    model = logistic(codes, y, layout, 3.0)
    reference = LogisticRegression(C=1 / 6, max_iter=200).fit(dense, y)
    # The same path of L-BFGS up to the order of sums, so the same stop.
    np.testing.assert_allclose(model.theta, reference.coef_[0], atol=1e-5)
    assert model.intercept == pytest.approx(reference.intercept_[0], abs=1e-5)
    assert model.n_iter == reference.n_iter_[0]
    np.testing.assert_allclose(model.log_odds(codes), reference.decision_function(dense), atol=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("with_unknown", [False, True])
def test_newtons_method_ends_where_scikit_learn_does(name: str, with_unknown: bool) -> None:
    layout = LAYOUTS[name]
    codes, y = records(n=800)
    if with_unknown:
        codes[1, ::7] = CARDS[1]
    left: list[float] = []
    model = skyline(codes, y, layout, 3.0, rest=1e-6, on_step=left.append)
    dense = dense_one_hot(codes, layout)
    reference = LogisticRegression(C=1 / 6, max_iter=5000, tol=1e-9).fit(dense, y)
    # Without unknown values both stand at the optimum; with some it is L-BFGS, which stops at 1e-4 of slope.
    near = 1e-2 if with_unknown else 1e-4
    np.testing.assert_allclose(model.log_odds(codes), reference.decision_function(dense), atol=near)
    if not with_unknown:
        assert model.n_iter == len(left) < 15
        assert left[-1] < 1e-6
        again = skyline(codes, y, layout, 3.0, rest=1e-6, threads=3)
        np.testing.assert_array_equal(model.theta, again.theta)
        assert skyline(codes, y, layout, 3.0, rest=1e-6, warm=model).n_iter < model.n_iter


def test_cells_without_a_record_have_no_weight_in_the_logistic() -> None:
    codes, y = records(n=500)
    codes[0, codes[0] == 2] = 0
    layout = LAYOUTS["pairs"]
    empty = ~dense_one_hot(codes, layout).any(axis=0)
    assert empty.any()
    for solver in (logistic, skyline):
        model = solver(codes, y, layout, 1.0)
        assert (model.theta[empty] == 0).all()


def test_a_warm_start_ends_near_the_same_optimum_in_fewer_iterations() -> None:
    codes, y = records()
    layout = LAYOUTS["pairs"]
    cold = logistic(codes, y, layout, 4.0)
    warm = logistic(
        codes, y, layout, 4.0, warm=logistic(codes, y, layout, 5.0), design=one_hot(codes, layout)
    )
    assert warm.n_iter < cold.n_iter
    # Both stop at a mean gradient of 1e-4 and the penalty's curvature is 2·4/3000, which bounds each
    # weight by 1e-4/(8/3000) ≈ 0.04 from the optimum.
    np.testing.assert_allclose(warm.theta, cold.theta, atol=0.08)


def test_a_one_hot_that_does_not_fit_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGGLEARN_MEMORY", "10KB")
    codes, _ = records()
    with pytest.raises(TooLargeError, match="one-hot of 3,000 records"):
        one_hot(codes, LAYOUTS["pairs"])


def test_the_same_scores_from_any_number_of_threads() -> None:
    codes, y = records(n=10_000)
    model: Any = logistic(codes, y, LAYOUTS["mixed"], 1.0)
    assert isinstance(model, LogOddsModel)
    np.testing.assert_array_equal(model.log_odds(codes, threads=1), model.log_odds(codes, threads=3))
