"""From aggregated data to what a field is fitted on, and the tables that no field can be fitted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from agglearn.errors import InputError, TableError
from agglearn.field.problem import make_problem
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table

COUNTS, SUMS = [[10, 8], [6, 16]], [[4, 8], [0, 3]]


def two_by_two(**changes: Any) -> AggregatedData:
    """One table over a (u, v) and b (p, q): 40 records, 15 of them positive."""
    features = tuple(
        Categorical(name=n, values=v, missing=False) for n, v in (("a", ("u", "v")), ("b", ("p", "q")))
    )
    table = Table(("a", "b"), np.array(COUNTS), np.array([SUMS]))
    data = AggregatedData(Schema(features, (Label("y"),)), {("a", "b"): table}, 40, (15,))
    table_changes = {k: v for k, v in changes.items() if k in Table.__dataclass_fields__}
    changed: dict[str, Any] = {"tables": {("a", "b"): replace(table, **table_changes)}}
    return replace(data, **changed | {k: v for k, v in changes.items() if k not in table_changes})


def test_cells_are_the_tables_row_by_row() -> None:
    problem = make_problem(two_by_two())
    assert problem.d.tolist() == [10, 8, 6, 16]
    assert problem.c.tolist() == [4, 8, 0, 3]
    assert (problem.rows, problem.positives) == (40, 15)
    assert problem.free is None
    assert problem.base_log_odds == pytest.approx(np.log(15 / 25))
    assert problem.rate == pytest.approx(15 / 40)
    assert problem.entropy == pytest.approx(-(0.375 * np.log(0.375) + 0.625 * np.log(0.625)))
    assert problem.measured(0).tolist() == [True] * 4
    assert problem.noise is None


def test_tables_follow_one_another_in_their_order(random_tables: Callable[..., AggregatedData]) -> None:
    data = random_tables(cards=(3, 4, 2))
    problem = make_problem(data)
    assert problem.layout.scopes == ((0, 1), (0, 2), (1, 2))
    assert problem.d.tolist() == [n for t in data.tables.values() for n in t.counts.reshape(-1).tolist()]


def test_the_label_is_the_one_chosen(random_tables: Callable[..., AggregatedData]) -> None:
    data = random_tables(labels=("click", "sale"))
    problem = make_problem(data, "sale")
    assert problem.positives == data.positives[1]
    assert problem.c.tolist() == [n for t in data.tables.values() for n in t.sums[1].reshape(-1).tolist()]


def test_records_with_an_unknown_value_are_spread_like_the_others() -> None:
    # 40 of 50 records have a cell, so each cell stands for 50/40 as many.
    problem = make_problem(two_by_two(unknown=np.array([10, 5]), rows=50, positives=(20,)))
    np.testing.assert_allclose(problem.d, np.array([10, 8, 6, 16]) * 1.25, rtol=1e-12)
    np.testing.assert_allclose(problem.c, np.array([4, 8, 0, 3]) * 1.25, rtol=1e-12)
    assert problem.d.sum() == pytest.approx(50)


@pytest.mark.parametrize(("floor", "each"), [(None, 5.0), (3.0, 3.0), (9.0, 5.0)])
def test_withheld_cells_share_what_is_missing_up_to_the_floor(floor: float | None, each: float) -> None:
    measured = np.array([[True, False], [False, True]])
    problem = make_problem(
        two_by_two(
            counts=np.array([[14, 0], [0, 16]]),
            sums=np.array([[[9, 0], [0, 3]]]),
            measured=measured,
            absent="suppressed",
            floor=floor,
        )
    )
    # 40 records less the 30 that were given leave 10 for two cells; 15 of 40 are positive.
    np.testing.assert_allclose(problem.d, [14, each, each, 16])
    np.testing.assert_allclose(problem.c, [9, each * 15 / 40, each * 15 / 40, 3])
    assert problem.free is not None
    assert problem.free.tolist() == [True, False, False, True]
    assert problem.measured(0).tolist() == [True, False, False, True]


def test_more_records_in_the_cells_given_than_in_all_leave_nothing_for_the_withheld() -> None:
    noisy = two_by_two(
        counts=np.array([[30.0, 0.0], [0.0, 16.0]]),
        sums=np.array([[[9.0, 0.0], [0.0, 3.0]]]),
        measured=np.array([[True, False], [True, True]]),
        noise=Noise("gaussian", 3.0),
    )
    assert make_problem(noisy).d.tolist() == [30, 0, 0, 16]


def test_declared_noise_may_leave_negative_counts_and_more_positives_than_records() -> None:
    counts, sums = np.array([[-2.5, 8.0], [6.0, 16.0]]), np.array([[[4.0, 8.0], [-1.0, 3.0]]])
    problem = make_problem(two_by_two(counts=counts, sums=sums, noise=Noise("laplace", 2.0)))
    assert problem.d.tolist() == counts.reshape(-1).tolist()
    assert problem.c.tolist() == sums.reshape(-1).tolist()


def test_declared_noise_is_known_table_by_table(random_tables: Callable[..., AggregatedData]) -> None:
    data = random_tables(cards=(3, 4, 2))
    first, second, third = data.tables
    noisy = {
        first: replace(data.tables[first], noise=Noise("laplace", 2.0)),
        second: data.tables[second],
        third: replace(data.tables[third], noise=Noise("gaussian", 3.0)),
    }
    problem = make_problem(replace(data, tables=noisy))
    assert problem.noise is not None
    # A Laplace law of scale b has the variance 2b².
    variances = [8.0, 0.0, 9.0]
    np.testing.assert_allclose(problem.noise.counts**2, variances)
    np.testing.assert_allclose(problem.noise.sums**2, variances)
    for cells in ("counts", "sums"):
        by_cell = problem.noise.variance_of(cells, problem.layout)
        np.testing.assert_allclose(by_cell, [8.0] * 12 + [0.0] * 6 + [9.0] * 8)
    np.testing.assert_allclose(problem.noise.rate_variance(2, np.array([0.0, 0.5])), [9.0, 9.0 * 1.25])


def test_tables_are_known_again_by_the_checksum_of_the_first_version() -> None:
    data = two_by_two()
    problem = make_problem(data)
    words = b"(Layout(cards=(2, 2), scopes=((0, 1),), hash_sizes=(0,)), 40.0, 15.0)"
    numbers = np.array([10, 8, 6, 16, 4, 8, 0, 3], np.float64)
    assert problem.fingerprint == sha256(words + numbers.tobytes()).hexdigest()
    free = np.array([True, True, True, False])
    changes: list[dict[str, Any]] = [
        {"d": problem.d + 1},
        {"c": problem.c * 0.5},
        {"rows": 41.0},
        {"positives": 16.0},
        {"free": free},
        {"free": ~free},
    ]
    seen = {replace(problem, **change).fingerprint for change in ({}, *changes)}
    assert len(seen) == 1 + len(changes)


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "negative counts": (
        {"counts": np.array([[-1, 8], [6, 16]])},
        "table a × b has negative counts: declare its noise",
    ),
    "negative sums": ({"sums": np.array([[[4, 8], [-1, 3]]])}, "table a × b has negative counts"),
    "more positives than records": (
        {"sums": np.array([[[11, 8], [0, 3]]])},
        "table a × b has more positives than records",
    ),
    "a count that is not a number": (
        {"counts": np.array([[np.nan, 8], [6, 16]])},
        "table a × b holds numbers that are missing or infinite",
    ),
    "an infinite sum": (
        {"sums": np.array([[[4, 8], [0, np.inf]]])},
        "table a × b holds numbers that are missing or infinite",
    ),
    "noise does not excuse what is not a number": (
        {"counts": np.array([[np.nan, 8], [6, 16]]), "noise": Noise("gaussian", 1.0)},
        "table a × b holds numbers that are missing or infinite",
    ),
    "a table that counts nothing": (
        {"counts": np.zeros((2, 2), int), "sums": np.zeros((1, 2, 2), int)},
        "table a × b counts no record",
    ),
    "a table of unknown values only": (
        {"counts": np.zeros((2, 2), int), "sums": np.zeros((1, 2, 2), int), "unknown": np.array([40, 15])},
        "table a × b counts no record",
    ),
    "no table": ({"tables": {}}, "there is no table to learn from"),
    "all positive": ({"positives": (40,)}, "label y: every record is positive"),
    "all negative": ({"positives": (0,)}, "label y: every record is negative"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_learnt_from_is_refused_with_its_table(case: str) -> None:
    changes, message = IMPOSSIBLE[case]
    with pytest.raises(TableError, match=message) as caught:
        make_problem(two_by_two(**changes))
    assert "\n" not in str(caught.value)


def test_a_table_without_a_cell_is_refused() -> None:
    data = two_by_two()
    nothing = Categorical(name="b", values=(), missing=False)
    schema = Schema((data.schema.feature("a"), nothing), data.schema.labels)
    empty = Table(("a", "b"), np.zeros((2, 0), int), np.zeros((1, 2, 0), int))
    with pytest.raises(TableError, match="table a × b has no cell"):
        make_problem(replace(data, schema=schema, tables={("a", "b"): empty}))


@pytest.mark.parametrize(
    ("label", "message"),
    [(None, "several labels.*choose one with label"), ("view", "label 'view' is not in these tables")],
)
def test_the_label_must_be_one_of_the_tables(
    random_tables: Callable[..., AggregatedData], label: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_problem(random_tables(labels=("click", "sale")), label)


def test_noise_on_negatives_and_positives_is_twice_as_much_on_counts(
    random_tables: Callable[..., AggregatedData],
) -> None:
    data = random_tables(cards=(3, 4))
    [scope] = data.tables
    noisy = {scope: replace(data.tables[scope], noise=Noise("gaussian", 3.0, "classes"))}
    problem = make_problem(replace(data, tables=noisy))
    assert problem.noise is not None
    np.testing.assert_allclose([problem.noise.counts[0] ** 2, problem.noise.sums[0] ** 2], [18.0, 9.0])
