"""What private tables promise, tried: the law of the noise, how far a record moves numbers, and an audit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta, chisquare, norm

from agglearn.aggregation.api import aggregate
from agglearn.privacy import api, mechanism, release, selection
from agglearn.privacy.accounting import (
    Ask,
    calibrate,
    certified_epsilon,
    gaussian_delta,
    gaussian_mu,
    uncertified,
)
from agglearn.privacy.budget import Budget, PrivacyOptions
from agglearn.privacy.classes import classes_of
from agglearn.privacy.learn import Leaves, Values, moved
from agglearn.privacy.persons import bounded
from agglearn.privacy.public import ToLearn
from agglearn.privacy.release import ask_for_tables, noisy_tables, simulate
from agglearn.privacy.selection import ask_for_common
from agglearn.records.frames import FrameSource, to_arrow
from agglearn.schema.features import Binned, Categorical, Cut
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.promise import Promise, Spending

Floats = npt.NDArray[np.float64]

SCHEMA = Schema(
    (
        Categorical("a", False, ("p", "q")),  # any other value is unknown
        Categorical("b", True, ("r", "s", "t"), "string", True),  # there is a modality for everything
        Binned("c", False, (Cut(1.0), Cut(2.0)), 0.0, 3.0),
    ),
    (Label("y"),),
)


def records(n: int, seed: int, labels: int = 1) -> dict[str, list[Any]]:
    """Records with unknown and missing values in them."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {
        "a": rng.choice(["p", "q", "never"], n).tolist(),
        "b": [None if v == "none" else str(v) for v in rng.choice(["r", "s", "t", "rare", "none"], n)],
        "c": [None if v > 2.8 else float(v) for v in rng.random(n) * 3],
    }
    return columns | {f"y{k}" if k else "y": rng.integers(0, 2, n).tolist() for k in range(labels)}


def without(columns: dict[str, list[Any]], dropped: set[int]) -> dict[str, list[Any]]:
    return {name: [v for i, v in enumerate(values) if i not in dropped] for name, values in columns.items()}


def everything(data: AggregatedData) -> npt.NDArray[np.int64]:
    """All numbers that noise is put on."""
    return np.concatenate([classes_of(t, data.schema).reshape(-1) for t in data.tables.values()])


def counted(columns: dict[str, list[Any]], labels: int = 1, **options: Any) -> AggregatedData:
    names = [f"y{k}" if k else "y" for k in range(labels)]
    schema = Schema(SCHEMA.features, tuple(map(Label, names)))
    return aggregate(columns, names, schema=schema, **options)


# --- how far a record moves the numbers ------------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"tables": "singles"},
        {"tables": "pairs"},
        {"tables": "triples"},
        {"tables": "singles,pairs,triples"},
        {"tables": "pairs,triples", "hash_size": 5},
    ],
    ids=str,
)
def test_a_record_moves_one_number_a_table_and_label(labels: int, options: dict[str, Any]) -> None:
    columns = records(12, 7, labels)
    whole = counted(columns, labels, **options)
    asked = ask_for_tables(whole)
    assert asked.moved == labels * len(whole.tables)
    assert asked.numbers == everything(whole).size
    for i in range(12):
        change = everything(whole) - everything(counted(without(columns, {i}), labels, **options))
        # By brute force, whichever record is taken away and whatever unknown values it has:
        # the greatest change is the one that noise is made for, and it is the same for all.
        assert np.abs(change).sum() == asked.moved
        assert (change**2).sum() == asked.moved
        for law, norm_of in (("gaussian", 2), ("laplace", 1)):
            spending = Spending("", law, 1.0, asked.numbers, asked.moved)
            assert np.linalg.norm(change, norm_of) == pytest.approx(spending.sensitivity)


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("tables", ["pairs", "singles,triples"])
def test_with_common_cells_only_a_record_moves_the_totals_too(labels: int, tables: str) -> None:
    columns = records(12, 7, labels)

    def numbers(dropped: set[int]) -> npt.NDArray[np.int64]:
        """Cells, and negatives and positives in all, which are released beside them."""
        data = counted(without(columns, dropped), labels, tables=tables)
        totals = [[data.rows - positives, positives] for positives in data.positives]
        return np.concatenate([everything(data), np.ravel(totals).astype(np.int64)])

    asked = ask_for_common(counted(columns, labels, tables=tables))
    for i in range(12):
        change = numbers(set()) - numbers({i})
        assert np.abs(change).sum() == (change**2).sum() == asked.moved


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_person_moves_no_more_than_its_records_may(most: int) -> None:
    columns = records(30, 3)
    for name in ("a", "b", "c", "y"):  # one person has the same record many times: the worst there is
        columns[name][:6] = [columns[name][0]] * 6
    people = ["same"] * 6 + [f"p{i % 7}" for i in range(24)]
    greatest = 0.0

    def released(dropped: set[int]) -> npt.NDArray[np.int64]:
        kept = without({**columns, "who": people}, dropped)
        source = bounded(FrameSource(to_arrow(kept)), "who", most, key=b"a fixed key")
        return everything(aggregate(source, "y", schema=SCHEMA))

    whole = released(set())
    spending = Spending("", "gaussian", 1.0, 0, 3, most)
    for person in set(people):
        change = whole - released({i for i, who in enumerate(people) if who == person})
        assert np.linalg.norm(change) <= spending.sensitivity * (1 + 1e-12)
        greatest = max(greatest, float(np.linalg.norm(change)))
    assert greatest == pytest.approx(spending.sensitivity)  # which someone reaches


def test_what_bins_and_values_are_learnt_from_moves_as_it_was_reckoned() -> None:
    ages = ToLearn("age", (0, 99))
    scores = ToLearn("score", (0.0, 1.0))
    colours = ToLearn("colour")
    rng = np.random.default_rng(0)
    raw = {
        "age": rng.integers(-10, 120, 40).tolist(),  # beyond the bounds too
        "score": [None, *rng.random(39).tolist()],
        "colour": rng.choice(["red", "blue", "one of a kind"], 40).tolist(),
    }

    def numbers(columns: dict[str, list[Any]]) -> dict[str, dict[Any, int]]:
        table = to_arrow(columns)
        found: dict[str, dict[Any, int]] = {}
        for column in (ages, scores):
            leaves = Leaves(column)
            leaves.add(table[column.name])
            found[column.name] = dict(enumerate(np.concatenate(leaves.tree()).tolist()))
        values = Values(colours)
        values.add(table["colour"])
        return {**found, "colour": dict(values.counts)}

    whole = numbers(raw)
    for i in range(40):
        less = numbers(without(raw, {i}))
        for column in (ages, scores, colours):
            a, b = whole[column.name], less[column.name]
            change = [a.get(key, 0) - b.get(key, 0) for key in {*a, *b}]
            expected = 0 if raw[column.name][i] is None else moved(column)
            assert sum(map(abs, change)) == sum(x * x for x in change) == expected


# --- how much noise --------------------------------------------------------------------------------


def test_the_formula_is_that_of_the_gaussian_by_quadrature() -> None:
    mu = gaussian_mu(1.0, 1e-6)
    x = np.linspace(-12, 12, 400_001)
    over = np.maximum(norm.pdf(x, mu) - np.exp(1.0) * norm.pdf(x), 0)
    assert gaussian_delta(1.0, mu) == pytest.approx(1e-6, rel=1e-9)
    assert np.trapezoid(over, x) == pytest.approx(1e-6, rel=1e-4)


def discrete(law: str, scale: float, reach: int) -> Floats:
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2)) if law == "gaussian" else np.exp(-np.abs(x) / scale)
    weights /= weights.sum()
    return np.asarray(weights)


@pytest.mark.parametrize(
    ("law", "moved", "by", "epsilon"),
    [
        ("gaussian", 1, 1, 0.3),
        ("gaussian", 1, 1, 1.0),
        ("gaussian", 2, 1, 1.0),
        ("gaussian", 1, 3, 1.0),
        ("gaussian", 1, 1, 8.0),
        ("laplace", 2, 1, 1.0),
        ("laplace", 1, 2, 1.0),
    ],
)
def test_the_scale_keeps_the_budget_for_the_very_law_that_is_drawn_from(
    law: str, moved: int, by: int, epsilon: float
) -> None:
    delta = 1e-3
    budget = Budget(epsilon=epsilon, delta=delta, mechanism=law, max_records=by)
    [spending], _ = calibrate(budget, [Ask("", 10, moved)])
    reach = int(40 * spending.scale) + by
    p = discrete(law, spending.scale, reach)
    shifted = np.concatenate([np.zeros(by), p[:-by]])
    # All outcomes of every number that is moved, with and without the record: δ by summing over them.
    here, there = np.ones(1), np.ones(1)
    for _ in range(moved):
        here, there = np.outer(here, p).reshape(-1), np.outer(there, shifted).reshape(-1)
    spent = float(np.maximum(here - np.exp(epsilon) * there, 0).sum())
    assert spent <= delta * (1 + 1e-6)
    assert spent > 0.5 * delta or law == "laplace" or epsilon > 5  # and not much more noise than needed


def test_more_noise_than_a_formula_says_where_the_discrete_law_needs_it() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    [continuous] = uncertified(budget, [Ask("", 1, 1)])
    assert certified_epsilon([continuous], 1e-6) > 1.0
    [kept], _ = calibrate(budget, [Ask("", 1, 1)])
    assert continuous.scale < kept.scale < 1.01 * continuous.scale


def test_large_scales_are_reckoned_as_the_continuous_law_that_they_all_but_are() -> None:
    # just below and above where the reckoning changes: ε ∝ 1/scale here, and no jump
    below, above = (Spending("", "gaussian", scale, 1, 100, 20) for scale in (999.999, 1000.0))
    found = [certified_epsilon([s], 1e-6) for s in (below, above)]
    assert found[0] == pytest.approx(found[1], rel=2e-5)
    exact = gaussian_delta(found[1], above.sensitivity / above.scale)
    assert exact <= 1e-6


def test_a_budget_in_rho_is_opendps_own() -> None:
    [spending], _ = calibrate(Budget(rho=0.2, delta=1e-6), [Ask("", 10, 91)])
    told: Any = mechanism.measurement("gaussian", spending.scale)
    assert 0.1999999 < told.map(spending.sensitivity) <= 0.2


def test_without_delta_laplace_noise_is_opendps_own() -> None:
    [spending], _ = calibrate(Budget(epsilon=0.7, mechanism="laplace"), [Ask("", 10, 28)])
    told: Any = mechanism.measurement("laplace", spending.scale)
    assert told.map(28) == pytest.approx(0.7)


def test_shares_of_a_budget_make_the_whole() -> None:
    asks = [Ask("bins", 10, 30, 0.1), Ask("tables", 10, 91, 0.9)]
    spent, _ = calibrate(Budget(epsilon=1.0, delta=1e-6), asks)
    mu_squared = [(s.sensitivity / s.scale) ** 2 for s in spent]
    assert mu_squared[0] / sum(mu_squared) == pytest.approx(0.1)
    assert certified_epsilon(spent, 1e-6) <= 1.0


# --- the law of what is released -------------------------------------------------------------------


def exact_tables(cells: int, labels: int = 1) -> AggregatedData:
    """Two tables with many cells each, of a public schema without unknown values."""
    names = [f"y{k}" for k in range(labels)]
    columns = tuple(
        Categorical(name, True, tuple(map(str, range(cells - 2))), "integer", True) for name in ("a", "b")
    )
    rng = np.random.default_rng(1)
    rows = cells**2  # so that most cells are seen, and many are not
    raw = {name: rng.integers(0, cells - 2, rows).tolist() for name in ("a", "b")}
    raw |= {name: rng.integers(0, 2, rows).tolist() for name in names}
    return aggregate(raw, names, schema=Schema(columns, tuple(map(Label, names))), tables="singles,pairs")


def noise_of(noisy: AggregatedData, exact: AggregatedData) -> npt.NDArray[np.int64]:
    """Released less exact negatives and positives, where there is one label."""
    differences = []
    for scope, table in noisy.tables.items():
        true = exact.tables[scope]
        for ours, theirs in (
            (table.sums[0], true.sums[0]),
            (table.counts - table.sums[0], true.counts - true.sums[0]),
        ):
            differences.append((ours - theirs).reshape(-1))
    found: npt.NDArray[np.int64] = np.concatenate(differences).astype(np.int64)
    return found


def chi_square(noise: npt.NDArray[np.int64], law: str, scale: float) -> float:
    """How likely noise of the law that was promised is to be further from it than this."""
    reach = int(40 * scale) + 10
    p = discrete(law, scale, reach)
    width = max(1, int(scale / 3))
    cells = np.arange(-reach, reach + 1) // width
    expected = np.bincount(cells - cells[0], weights=p) * noise.size
    seen = np.bincount(noise // width - cells[0], minlength=len(expected))
    common = expected >= 20
    observed = np.append(seen[common], seen[~common].sum())
    return float(chisquare(observed, np.append(expected[common], expected[~common].sum())).pvalue)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_released_numbers_have_the_discrete_law_they_promise(law: str) -> None:
    # 36,000 draws here; the evidence for private tables has a million of each.
    exact = exact_tables(130)
    budget = Budget(epsilon=2.0, delta=1e-5, mechanism=law)
    [spending], epsilon = calibrate(budget, [ask_for_tables(exact)])
    promise = Promise(epsilon, 1e-5, spent=(spending,))
    noisy = noisy_tables(exact, spending, promise)
    noise = noise_of(noisy, exact)
    assert noise.size > 30_000
    assert chi_square(noise, law, spending.scale) > 1e-5  # by chance once in a hundred thousand runs
    # 30 % less noise would not pass for it.
    assert chi_square(noise, law, 1.3 * spending.scale) < 1e-6


def test_numbers_drawn_in_several_processes_have_the_same_law() -> None:
    zeros = np.zeros((3, 15_000), np.int64)
    drawn = mechanism.add_noise(zeros, "gaussian", 3.0, processes=2)
    assert drawn.shape == zeros.shape
    assert chi_square(drawn.reshape(-1), "gaussian", 3.0) > 1e-5
    assert len({row.tobytes() for row in drawn}) == 3


def test_every_cell_is_noisy_and_so_are_the_totals() -> None:
    exact = exact_tables(40)
    [spending], _ = calibrate(Budget(epsilon=0.5, delta=1e-6), [ask_for_tables(exact)])
    noisy = noisy_tables(exact, spending, Promise(0.5, 1e-6))
    empty = exact.tables["a", "b"].counts == 0
    assert empty.sum() > 300
    # σ is about 13 on negatives and on positives: their sum is zero twice in a hundred
    assert (noisy.tables["a", "b"].counts[empty] != 0).mean() > 0.9
    # The mean over tables, weighted by 1/cells.
    cells = np.array([t.n_cells for t in exact.tables.values()])
    sd = np.sqrt(2) * spending.scale / np.sqrt((1 / cells).sum())
    assert noisy.rows != exact.rows
    assert abs(noisy.rows - exact.rows) < 5 * sd
    assert abs(noisy.positives[0] - exact.positives[0]) < 5 * sd / np.sqrt(2)


# --- an audit --------------------------------------------------------------------------------------


def told_apart(scale_factor: float, law: str, trials: int = 1200) -> float:
    """The ε that releases of two neighbouring data sets show, at 99.9 % confidence, by the best test."""
    columns = records(20, 5)
    here = counted(columns, tables="a,c,a*c")  # in each of which a record may be unknown
    there = counted(without(columns, {4}), tables="a,c,a*c")
    budget = Budget(epsilon=1.0, delta=1e-3, mechanism=law)
    [spending], epsilon = calibrate(budget, [ask_for_tables(here)])
    spending = replace(spending, scale=spending.scale * scale_factor)
    promise = Promise(epsilon, 1e-3, spent=(spending,))
    of_here, of_there = everything(here), everything(there)

    def statistics(data: AggregatedData) -> Floats:
        """Log-likelihood ratios of one data set against the other, of many releases."""
        found = []
        for _ in range(trials):
            noisy = noisy_tables(data, spending, promise)
            numbers = np.concatenate(
                [
                    np.concatenate(
                        [
                            np.append(t.counts - t.sums[0], t.unknown[0] - t.unknown[1]),
                            np.append(t.sums[0], t.unknown[1]),
                        ]
                    )
                    for t in noisy.tables.values()
                ]
            )
            a, b = numbers - of_here, numbers - of_there
            if law == "gaussian":
                found.append(float((b**2 - a**2).sum() / (2 * spending.scale**2)))
            else:
                found.append(float((np.abs(b) - np.abs(a)).sum() / spending.scale))
        return np.array(found)

    assert np.abs(of_here - of_there).sum() == 3
    with_it, without_it = statistics(here), statistics(there)
    best = 0.0
    thresholds = (0.25, 0.5, 0.75, 1.0)  # chosen beforehand, so that confidence is what it says
    for threshold in thresholds:
        hits, misses = int((with_it > threshold).sum()), int((without_it > threshold).sum())
        error = 0.001 / len(thresholds) / 2
        low = beta.ppf(error, hits, trials - hits + 1) if hits else 0.0
        high = beta.ppf(1 - error, misses + 1, trials - misses)
        if low > 1e-3:
            best = max(best, float(np.log((low - 1e-3) / high)))
    return best


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_an_audit_cannot_tell_neighbours_apart_by_more_than_was_promised(law: str) -> None:
    assert told_apart(1.0, law) <= 1.0


def test_the_audit_would_notice_noise_that_is_too_little() -> None:
    assert told_apart(0.2, "gaussian") > 1.0


# --- no seed ---------------------------------------------------------------------------------------


def test_a_release_is_never_the_same_twice_and_takes_no_seed() -> None:
    exact = exact_tables(12)
    privacy = PrivacyOptions(epsilon=1.0, delta=1e-6, assume_public_schema=True)
    first, second = api.release_tables(exact, privacy), api.release_tables(exact, privacy)
    assert not first.equals(second)
    assert first.promise is not None
    assert second.promise is not None
    assert first.promise.releases != second.promise.releases
    functions: list[Callable[..., Any]] = [
        api.release_tables,
        api.aggregate_private,
        PrivacyOptions,
        release.noisy_tables,
        mechanism.add_noise,
    ]
    for function in functions:
        assert "seed" not in inspect.signature(function).parameters


def test_a_simulation_is_known_by_its_seed_and_says_that_it_protects_nobody() -> None:
    exact = exact_tables(12)
    a, b, c = (simulate(exact, 1.0, seed=seed) for seed in (1, 1, 2))
    assert a.equals(b)
    assert not a.equals(c)
    assert a.promise is not None
    assert a.promise.simulated
    assert "no privacy" in repr(a)


def test_simulated_noise_is_as_much_as_that_of_a_release() -> None:
    exact = exact_tables(100)
    for law, seed in product(("gaussian", "laplace"), (0, 1)):
        noisy = simulate(exact, 1.0, 1e-6, law, seed)
        [spending], _ = calibrate(
            Budget(epsilon=1.0, delta=1e-6 if law == "gaussian" else None, mechanism=law),
            [ask_for_tables(exact)],
        )
        spread = noise_of(noisy, exact).std()
        sigma = spending.scale * (1 if law == "gaussian" else np.sqrt(2))
        # 20,000 draws: a relative error of 0.5 % (gaussian) or 0.8 % (laplace), four of them
        assert spread == pytest.approx(sigma, rel=0.03)


def test_several_labels_have_the_noise_they_say() -> None:
    exact = exact_tables(80, labels=3)
    noisy = simulate(exact, 1.0, seed=3)
    for scope, table in noisy.tables.items():
        if table.n_cells < 1000:
            continue
        true = exact.tables[scope]
        off_count = (table.counts - true.counts).reshape(-1)
        off_sum = (table.sums - true.sums).reshape(3, -1)
        moments = table.noise_moments
        n = (
            off_count.size
        )  # 6,400: a variance is known to 2 % or so, four of them and rounding to whole numbers
        assert off_count.var() == pytest.approx(moments.count, rel=0.08)
        for row in off_sum:
            assert row.var() == pytest.approx(moments.sum, rel=0.08)
            covariance = np.cov(row, off_count)[0, 1]
            spread = np.sqrt(moments.count * moments.sum / n)
            assert abs(covariance - moments.covariance) < 5 * spread


# --- only common cells -----------------------------------------------------------------------------


def test_a_cell_that_one_record_brought_about_hardly_ever_comes_to_light() -> None:
    # By the law itself: the count is noisy by a discrete Gaussian for either class, whatever the record is.
    for labels, by in product((1, 2), (1, 3)):
        spending = Spending("", "gaussian", 6.0, 0, 4 * labels, by, delta=1e-5)
        floor = selection.threshold(spending, 3, labels)
        p = discrete("gaussian", 6.0, 120)
        law = np.ones(1)
        for _ in range(2 * labels):
            law = np.convolve(law, p)
        values = np.arange(len(law)) - len(law) // 2
        seen = float(law[by + values / labels >= floor].sum())
        assert seen * by * 3 <= 1e-5  # so many cells a person may bring about, in each of three tables
        assert seen * by * 3 > 1e-8  # and the threshold is not far too high


def test_common_cells_are_released_with_their_noise_and_the_others_are_withheld_alike() -> None:
    exact = exact_tables(60)
    privacy = PrivacyOptions(epsilon=2.0, delta=1e-6, cells="common", assume_public_schema=True)
    raised = {scope: replace(t, counts=t.counts * 40, sums=t.sums * 40) for scope, t in exact.tables.items()}
    exact = replace(exact, tables=raised, rows=exact.rows * 40, positives=(exact.positives[0] * 40,))
    noisy = api.release_tables(exact, privacy)
    assert noisy.promise is not None
    [spending] = noisy.promise.spent
    assert spending.moved == 4  # three tables, and the totals
    assert spending.numbers == 0  # how many cells have records is not told
    assert spending.delta == pytest.approx(1e-7)
    assert certified_epsilon([spending], 9e-7) <= 2.0
    assert noisy.floor == pytest.approx(selection.threshold(spending, 3, 1))
    table, true = noisy.tables["a", "b"], exact.tables["a", "b"]
    assert noisy.floor is not None
    assert table.measured is not None
    assert table.measured[true.counts >= noisy.floor + 8 * spending.scale].all()
    assert not table.measured[true.counts == 0].any()
    assert (table.counts[~table.measured] == 0).all()
    off = (table.counts - true.counts)[table.measured]
    assert 0.6 < off.std() / (np.sqrt(2) * spending.scale) < 1.2  # less where it had to reach the threshold
    assert abs(noisy.rows - exact.rows) < 5 * np.sqrt(2) * spending.scale
