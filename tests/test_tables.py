"""What tables can do: add up, be summed over, be chosen from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agglearn.errors import InputError, SchemaError, TableError
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.cells import HashedCells
from agglearn.tables.data import AggregatedData, merge
from agglearn.tables.noise import Noise
from agglearn.tables.scopes import parse_scopes
from agglearn.tables.table import Table

Make = Callable[..., AggregatedData]


def one_table(counts: Any, sums: Any, **options: Any) -> Table:
    counts, sums = np.array(counts), np.array(sums)
    return Table(("a", "b"), counts, sums[None], **options)


# --- noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sigma"), [("gaussian:17", 17), ("laplace:2", 8**0.5), ("rounding:3", 3**0.5)]
)
def test_the_standard_deviation_of_a_noise_law_is_known(text: str, sigma: float) -> None:
    assert Noise.parse(text).sigma == pytest.approx(sigma)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gaussian",
        "gaussian:",
        "gaussian:x",
        "gaussian:0",
        "gaussian:-1",
        "cauchy:1",
        "laplace:inf",
        "laplace:nan",
    ],
)
def test_noise_that_is_no_law_with_a_scale_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as gaussian:17"):
        Noise.parse(text)


# --- one table -------------------------------------------------------------------------------------


def test_adding_tables_adds_every_number() -> None:
    a = one_table([[1, 2], [3, 4]], [[0, 1], [1, 0]], unknown=np.array([5, 1]))
    b = one_table([[10, 0], [0, 10]], [[10, 0], [0, 5]], unknown=np.array([1, 1]))
    total = a + b
    assert total.counts.tolist() == [[11, 2], [3, 14]]
    assert total.sums.tolist() == [[[10, 1], [1, 5]]]
    assert total.unknown.tolist() == [6, 2]
    assert total.total == 36


def test_gaussian_noises_add_up_in_squares() -> None:
    a = one_table([[1.0]], [[0.0]], noise=Noise("gaussian", 3))
    b = one_table([[1.0]], [[0.0]], noise=Noise("gaussian", 4))
    exact = one_table([[1]], [[0]])
    assert (a + b).noise == Noise("gaussian", 5)
    assert (a + exact).noise == (exact + a).noise == Noise("gaussian", 3)


def test_noises_whose_sum_has_no_known_law_are_not_added() -> None:
    a = one_table([[1.0]], [[0.0]], noise=Noise("laplace", 3))
    with pytest.raises(TableError, match="a × b with noise laplace:3 and laplace:3 cannot be added"):
        a + a


def test_a_sum_is_measured_only_where_both_parts_are() -> None:
    a = one_table([[1, 2]], [[0, 1]], measured=np.array([[True, False]]))
    b = one_table([[1, 2]], [[0, 1]], measured=np.array([[True, True]]))
    whole = one_table([[1, 2]], [[0, 1]])
    for total in (a + b, b + a, a + whole, whole + a):
        assert total.measured is not None
        assert total.measured.tolist() == [[True, False]]


def test_tables_of_other_shapes_are_not_added() -> None:
    with pytest.raises(TableError, match="differ in shape"):
        one_table([[1]], [[0]]) + one_table([[1, 2]], [[0, 0]])


def test_counts_and_sums_of_different_shapes_are_refused() -> None:
    with pytest.raises(TableError, match="table a × b: counts and sums differ in shape"):
        Table(("a", "b"), np.zeros((2, 2)), np.zeros((1, 2, 3)))


def test_marginals_of_a_table_are_its_sums_along_axes() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (2, 3, 4))
    sums = rng.integers(0, 9, (2, 2, 3, 4))
    table = Table(("a", "b", "c"), counts, sums, unknown=np.array([7, 1, 2]))
    middle = table.marginalise(["b"])
    assert middle.features == ("b",)
    assert middle.counts.tolist() == [int(counts[:, j].sum()) for j in range(3)]
    assert middle.sums.tolist() == [[int(s[:, j].sum()) for j in range(3)] for s in sums]
    outer = table.marginalise(["c", "a"])
    assert outer.features == ("a", "c")
    assert outer.counts.tolist() == counts.sum(axis=1).tolist()
    assert outer.total == table.total


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": HashedCells(4)}, "is hashed"),
        ({"noise": Noise("gaussian", 1)}, "is noisy"),
        ({"measured": np.ones((2, 2), bool)}, "lacks cells"),
    ],
)
def test_a_table_that_cannot_be_summed_over_says_why(options: dict[str, Any], message: str) -> None:
    shape = (4,) if "cells" in options else (2, 2)
    table = Table(("a", "b"), np.ones(shape), np.ones((1, *shape)), **options)
    with pytest.raises(TableError, match=f"table a × b {message}"):
        table.marginalise(["a"])
    assert table.marginalise(["b", "a"]) is table


def test_a_margin_over_a_feature_the_table_lacks_is_refused() -> None:
    with pytest.raises(TableError, match="does not hold all of 'a', 'z'"):
        one_table([[1]], [[0]]).marginalise(["a", "z"])


# --- many tables -----------------------------------------------------------------------------------


def test_merging_adds_rows_positives_and_tables(random_tables: Make) -> None:
    a, b, c = (random_tables(seed, labels=("y", "z")) for seed in (1, 2, 3))
    total = merge([a, b, c])
    assert total.equals(sum([a, b, c]))  # type: ignore[arg-type]
    assert total.rows == 1500
    assert total.positives == tuple(np.sum([a.positives, b.positives, c.positives], axis=0).tolist())
    scope = ("f0", "f2")
    expected = a.tables[scope].sums + b.tables[scope].sums + c.tables[scope].sums
    np.testing.assert_array_equal(total.tables[scope].sums, expected)


def test_merging_forgets_which_part_of_a_split_it_was(random_tables: Make) -> None:
    part = replace(random_tables(), split={"part": "valid", "seed": 0})
    assert (part + random_tables(seed=2)).split is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda d, m: m(cards=(3, 4)),
            SchemaError,
            "different schemas cannot be merged.*schema=first.schema",
        ),
        (lambda d, m: d.select(tables=[("f0", "f1")]), TableError, "f0 × f2 is in one of the aggregations"),
        (lambda d, m: replace(d, floor=5, absent="suppressed"), TableError, "different suppression"),
    ],
    ids=["schema", "tables", "suppression"],
)
def test_tables_that_do_not_belong_together_are_not_merged(
    random_tables: Make, change: Any, error: type[Exception], message: str
) -> None:
    data = random_tables()
    with pytest.raises(error, match=message):
        data + change(data, random_tables)


def test_a_margin_is_taken_from_the_smallest_table_that_holds_it(random_tables: Make) -> None:
    data = random_tables(cards=(3, 4, 2))
    counts = data.table("f1").counts
    for scope in (("f0", "f1"), ("f1", "f2")):
        np.testing.assert_array_equal(counts, data.tables[scope].marginalise(["f1"]).counts)
    # f1 × f2 has 8 cells and f0 × f1 has 12: with f1 × f2 changed, the margin changes.
    table = data.tables["f1", "f2"]
    data = replace(data, tables={**data.tables, ("f1", "f2"): replace(table, counts=table.counts + 1)})
    assert (data.table("f1").counts == counts + 2).all()


def test_a_table_that_nobody_counted_is_refused(random_tables: Make) -> None:
    data = random_tables()
    with pytest.raises(TableError, match="no table holds f0 × f1 × f2"):
        data.table("f0", "f1", "f2")
    with pytest.raises(SchemaError, match="no feature is called 'g'"):
        data.table("g")


def test_a_hashed_table_stands_for_its_own_features_only(random_tables: Make) -> None:
    data = random_tables(cards=(3, 4))
    hashed = Table(("f0", "f1"), np.ones(5), np.ones((1, 5)), cells=HashedCells(5))
    data = replace(data, tables={("f0", "f1"): hashed})
    assert data.table("f1", "f0") is hashed
    with pytest.raises(TableError, match="no table holds f0"):
        data.table("f0")


def test_selecting_features_keeps_the_tables_within_them(random_tables: Make) -> None:
    data = random_tables(cards=(2, 3, 4, 5))
    kept = data.select(features=["f3", "f1", "f0"])
    assert kept.schema.names == ("f0", "f1", "f3")
    assert list(kept.tables) == [("f0", "f1"), ("f0", "f3"), ("f1", "f3")]
    assert kept.rows == data.rows
    two = data.select(tables=[("f3", "f0"), ("f1", "f2")])
    assert set(two.tables) == {("f0", "f3"), ("f1", "f2")}
    assert two.schema == data.schema


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["f0", "nope"]}, "no feature is called 'nope'"),
        ({"features": ["f0"]}, "no table is left"),
        ({"tables": [("f0", "nope")]}, "there is no table f0 × nope"),
    ],
)
def test_a_selection_that_leaves_nothing_or_names_nothing_is_refused(
    random_tables: Make, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((InputError, SchemaError, TableError), match=message):
        random_tables().select(**options)


def test_a_label_need_not_be_named_where_there_is_one(random_tables: Make) -> None:
    assert random_tables().label_index() == 0
    two = random_tables(labels=("click", "sale"))
    assert two.label_index("sale") == 1
    with pytest.raises(InputError, match="several labels \\('click', 'sale'\\): choose one with label"):
        two.label_index()
    with pytest.raises(InputError, match="'buy' is not in these tables, which have 'click', 'sale'"):
        two.label_index("buy")


@pytest.mark.parametrize(
    "tables",
    [
        {("f0", "f1"): Table(("f0", "f1"), np.ones((3, 3)), np.ones((1, 3, 3)))},
        {("f1", "f0"): Table(("f0", "f1"), np.ones((3, 4)), np.ones((1, 3, 4)))},
        {("f0", "f1"): Table(("f0", "f1"), np.ones((3, 4)), np.ones((2, 3, 4)))},
    ],
    ids=["shape", "scope", "labels"],
)
def test_tables_that_do_not_fit_the_schema_are_refused(random_tables: Make, tables: Any) -> None:
    with pytest.raises(TableError, match="table f0 × f1 does not have"):
        replace(random_tables(cards=(3, 4)), tables=tables)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: replace(d, rows=d.rows + 1),
        lambda d: replace(d, positives=(d.positives[0] + 1,)),
        lambda d: replace(d, floor=3.0),
        lambda d: d.select(tables=[("f0", "f1")]),
        lambda d: with_table(d, counts=d.tables["f0", "f1"].counts + np.eye(3, 4, dtype=np.int64)),
        lambda d: with_table(d, sums=d.tables["f0", "f1"].sums * 2),
        lambda d: with_table(d, unknown=np.array([1, 0])),
        lambda d: with_table(d, noise=Noise("gaussian", 1)),
        lambda d: with_table(d, measured=np.eye(3, 4, dtype=bool)),
    ],
    ids=["rows", "positives", "floor", "tables", "counts", "sums", "unknown", "noise", "measured"],
)
def test_data_that_differ_anywhere_are_not_equal(random_tables: Make, change: Any) -> None:
    data = random_tables()
    assert data.equals(random_tables())
    assert not data.equals(change(data))


def with_table(data: AggregatedData, **changes: Any) -> AggregatedData:
    table = replace(data.tables["f0", "f1"], **changes)
    return replace(data, tables={**data.tables, ("f0", "f1"): table})


# --- which tables ----------------------------------------------------------------------------------

LETTERS = Schema(
    tuple(Categorical(name=n, values=("0", "1"), missing=False) for n in ("b", "a", "c d", "e")),
    (Label("y"),),
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("singles", [("b",), ("a",), ("c d",), ("e",)]),
        ("a*b", [("b", "a")]),
        (" e * c d , b", [("c d", "e"), ("b",)]),
        ("singles,a", [("b",), ("a",), ("c d",), ("e",)]),
        ("e*a*b,triples", [("b", "a", "e"), ("b", "a", "c d"), ("b", "c d", "e"), ("a", "c d", "e")]),
        ([("e", "a")], [("a", "e")]),
    ],
)
def test_tables_are_named_in_words_or_by_their_features(spec: Any, expected: list[tuple[str, ...]]) -> None:
    assert parse_scopes(spec, LETTERS) == expected


def test_pairs_are_all_pairs_and_one_feature_has_its_own_table() -> None:
    assert len(parse_scopes("pairs", LETTERS)) == 6
    assert parse_scopes("pairs", LETTERS.select(["a"])) == [("a",)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("a*nope", "'nope'"),
        ("quads", "'quads'"),
        ("a*a", "twice"),
        ("", "''"),
        ("a,", "''"),
        ([], "no table"),
    ],
)
def test_tables_that_make_no_sense_are_refused(spec: Any, message: str) -> None:
    with pytest.raises((InputError, SchemaError), match=message):
        parse_scopes(spec, LETTERS)
