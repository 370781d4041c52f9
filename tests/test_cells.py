"""Which cell a combination has: everything that holds tables asks their cells, and only them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agglearn.errors import TableError
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.cells import Cells, DenseCells, HashedCells, cells_for, stored_cells
from agglearn.tables.check import check
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load, save
from agglearn.tables.table import Table

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@given(shapes)
def test_dense_cells_number_the_combinations_in_order(shape: tuple[int, ...]) -> None:
    cells = DenseCells(shape)
    every = list(product(*(range(n) for n in shape)))
    assert cells.size == len(every)
    assert cells.find(np.array(every, np.uint16).T).tolist() == list(range(len(every)))
    assert [cells.codes(i) for i in range(len(every))] == every
    assert cells.all_codes(np.arange(len(every))).T.tolist() == [list(codes) for codes in every]


@given(shapes, st.data())
def test_a_margin_of_dense_cells_is_the_sum_of_the_cells_it_covers(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1).map(sorted))
    numbers = np.arange(2 * np.prod(shape)).reshape(2, *shape)
    found = DenseCells(shape).margin(numbers, kept)
    assert found.shape == (2, *(shape[i] for i in kept))
    by_hand: dict[tuple[int, ...], int] = {}
    for index in product(range(2), *(range(n) for n in shape)):
        short = (index[0], *(index[1 + i] for i in kept))
        by_hand[short] = by_hand.get(short, 0) + int(numbers[index])
    assert {index: int(found[index]) for index in by_hand} == by_hand


def test_cells_are_buckets_where_there_would_be_too_many() -> None:
    assert (
        cells_for((3, 4), None) == cells_for((3, 4), 12) == stored_cells((3, 4), None) == DenseCells((3, 4))
    )
    assert cells_for((3, 4), 11) == stored_cells((3, 4), 11) == HashedCells(11)


def test_buckets_tell_no_features_apart() -> None:
    cells: Cells = HashedCells(5)
    assert not cells.apart
    assert cells.shape == (5,)
    assert cells.codes(3) is None
    for ask in (lambda: cells.margin(np.ones(5), [0]), lambda: cells.all_codes(np.arange(5))):
        with pytest.raises(TypeError, match="features apart"):
            ask()


def test_a_table_has_the_cells_it_was_counted_in() -> None:
    assert Table(("a", "b"), np.ones((2, 3)), np.ones((1, 2, 3))).cells == DenseCells((2, 3))
    with pytest.raises(TableError, match="table a × b: counts do not have the shape of its cells"):
        Table(("a", "b"), np.ones((2, 3)), np.ones((1, 2, 3)), cells=HashedCells(6))


def test_buckets_are_not_added_to_cells_that_happen_to_be_as_many() -> None:
    plain = Table(("a",), np.ones(4), np.ones((1, 4)))
    hashed = Table(("a",), np.ones(4), np.ones((1, 4)), cells=HashedCells(4))
    with pytest.raises(TableError, match="cannot be added"):
        _ = plain + hashed


# --- a kind that the library does not have ---------------------------------------------------------


@dataclass(frozen=True)
class Listed(Cells):
    """Cells for the combinations in a list only."""

    cards: tuple[int, ...]
    combinations: tuple[tuple[int, ...], ...]
    apart = True

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.combinations),)

    def fits(self, cards: Sequence[int]) -> bool:
        return self.cards == tuple(cards)

    def find(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        return np.array([self.combinations.index(tuple(c)) for c in codes.T.tolist()], np.int64)

    def codes(self, cell: int) -> tuple[int, ...]:
        return self.combinations[cell]

    def all_codes(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array(self.combinations).T[:, cells]

    def margin(self, numbers: npt.NDArray[Any], kept: Sequence[int]) -> npt.NDArray[Any]:
        total = np.zeros((*numbers.shape[:-1], *(self.cards[i] for i in kept)), numbers.dtype)
        for cell, codes in enumerate(self.combinations):
            index: Any = (..., *(codes[i] for i in kept))
            total[index] += numbers[..., cell]
        return total


def test_a_further_kind_of_cells_needs_no_more_than_its_class(tmp_path: Path) -> None:
    features = tuple(Categorical(n, False, tuple("abc"[:m])) for n, m in (("f", 2), ("g", 3)))
    counts = np.array([[5, 0, 2], [0, 7, 0]])
    dense = Table(("f", "g"), counts, (counts // 2)[None])
    seen = tuple((int(i), int(j)) for i, j in np.argwhere(counts))
    listed = Table(
        ("f", "g"),
        counts[counts > 0],
        (counts // 2)[counts > 0][None],
        cells=Listed((2, 3), seen),
    )
    schema = Schema(features, (Label("y"),))
    data = AggregatedData(schema, {("f", "g"): listed}, 14, (6,))
    assert data.cells == {("f", "g"): listed.cells}
    for name in ("f", "g"):
        assert data.table(name).counts.tolist() == dense.marginalise([name]).counts.tolist()
        assert data.table(name).sums.tolist() == dense.marginalise([name]).sums.tolist()
    report = check(data)
    assert report.ok
    assert [f["seen"] for f in report.features] == [2, 3]
    save(data, tmp_path / "listed.agg")
    assert load(tmp_path / "listed.agg").tables["f", "g"].counts.tolist() == counts.tolist()
