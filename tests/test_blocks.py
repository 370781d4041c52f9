"""What is counted in parts, taken apart into blocks and summed, is what is counted at once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agglearn.aggregation import blocks
from agglearn.aggregation.blocks import Block, listed_blocks, start_of, whole_blocks
from agglearn.aggregation.stream import Counted
from agglearn.records.first_pass import FirstLook
from agglearn.records.survey import ColumnSurvey
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema


def summed(folds: list[Any], whole: Any) -> Any:
    """What the folds hold, piece by piece, by way of bytes as between machines."""
    total: dict[Any, Any] = {}
    for fold in folds:
        for key, piece in fold.pieces():
            copy = pickle.loads(pickle.dumps(piece))
            if key in total:
                total[key].merge(copy)
            else:
                total[key] = copy
    whole.take(total.items())
    return whole


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 39), st.integers(1, 2**32 - 1), max_size=40), min_size=1, max_size=4
    )
)
def test_blocks_add_up_as_arrays_do(parts: list[dict[int, int]]) -> None:
    arrays = []
    for part in parts:
        array = np.zeros((40, 2), np.uint32)
        for place, n in part.items():
            array[place, place % 2] = n
        arrays.append(array)
    total: Block | None = None
    for array in arrays:
        places = np.flatnonzero(array.any(axis=1))
        block = Block.listed(40, places, array[places])
        if total is None:
            total = block
        else:
            total.merge(block)
    assert total is not None
    found = np.zeros((40, 2), np.uint64)
    places, counters = total.rows()
    found[places] = counters
    np.testing.assert_array_equal(found, np.sum(arrays, axis=0, dtype=np.uint64))


def test_a_block_of_few_counts_lists_them_and_one_of_many_does_not() -> None:
    few = Block.listed(1000, np.array([3, 900]), np.ones((2, 2), np.uint32))
    many = Block.listed(1000, np.arange(999), np.ones((999, 2), np.uint32))
    assert few.places is not None
    assert many.places is None
    assert len(pickle.dumps(few)) < len(pickle.dumps(many)) / 10


def test_blocks_of_a_table_cover_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_FEW_BITS", 4)
    rng = np.random.default_rng(0)
    counters = rng.integers(0, 2, (1000, 2)).astype(np.uint32)
    places = np.flatnonzero(counters.any(axis=1))
    for found in (whole_blocks(counters), listed_blocks(1000, places, counters[places])):
        copy = np.zeros_like(counters)
        numbers = []
        for number, block in found:
            at, own = block.rows()
            copy[start_of(number, 1000) + at] = own
            numbers.append(number)
        assert len(numbers) > 10
        np.testing.assert_array_equal(copy, counters)


def wide(n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return pa.record_batch(
        {
            "a": [f"a{i}" for i in rng.zipf(1.2, n) % 400],
            "b": [f"b{i}" for i in rng.integers(0, 400, n)],
            "c": [f"c{i}" for i in rng.integers(0, 3, n)],
            "y": rng.integers(0, 2, n),
            "z": rng.integers(0, 2, n),
        }
    )


# Of 160,000 combinations of a and b few come up in the first case; in the second more than every third does,
# though not in any one part.
@pytest.mark.parametrize(("n", "dense"), [(400, False), (60_000, True)])
def test_tables_counted_in_parts_are_those_counted_at_once(n: int, dense: bool) -> None:
    features = tuple(
        Categorical(name=f, values=tuple(f"{f}{i}" for i in range(m)), missing=False)
        for f, m in (("a", 399), ("b", 400), ("c", 2))
    )
    schema = Schema(features, (Label("y"), Label("z")))
    scopes: Any = [("a", "b"), ("a", "c"), ("c",)]
    rng = np.random.default_rng(0)

    def make() -> Counted:
        return Counted(schema, scopes, 300 if dense else None, 2)

    whole, parts = make(), [make() for _ in range(4)]
    for k, own in enumerate([*parts, parts[0]]):
        batch, part = wide(n, k), rng.integers(0, 3, n).astype(np.uint8)
        own.add(batch, part)
        whole.add(batch, part)
    found = summed(parts, make())
    np.testing.assert_array_equal(found.unknown, whole.unknown)
    assert found.unknown.sum() > 0
    for one, other in zip(found.tallies, whole.tallies, strict=True):
        assert one.rows == other.rows
        for scope, table in other.tables().items():
            own_table = one.tables()[scope]
            assert type(own_table.cells) is type(table.cells)
            np.testing.assert_array_equal(own_table.counts, table.counts)
            np.testing.assert_array_equal(own_table.sums, table.sums)
            np.testing.assert_array_equal(own_table.unknown, table.unknown)


def test_a_table_that_fills_up_only_in_the_sum_has_all_cells() -> None:
    values = tuple(str(i) for i in range(300))
    schema = Schema(tuple(Categorical(name=f, values=values, missing=False) for f in "ab"), (Label("y"),))

    def make() -> Counted:
        return Counted(schema, [("a", "b")], None, 1)

    whole, parts = make(), [make(), make(), make()]
    for k, own in enumerate(parts):
        i = np.arange(k, 90_000, 3)[:20_000]  # 20,000 of 90,000 combinations each
        batch = pa.record_batch(
            {"a": [values[j] for j in i // 300], "b": [values[j] for j in i % 300], "y": i % 2}
        )
        own.add(batch, None)
        whole.add(batch, None)
        assert parts[k].tallies[0].tables()["a", "b"].n_cells == 20_001
    found = summed(parts, make()).tallies[0].tables()["a", "b"]
    expected = whole.tallies[0].tables()["a", "b"]
    assert found.n_cells == expected.n_cells == 90_000
    np.testing.assert_array_equal(found.counts, expected.counts)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["1", "01", "1.0", " 1", "a", "", None, "7e+0", "007"]), max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_a_survey_of_parts_in_any_order_is_that_of_the_whole(parts: list[list[Any]], order: Any) -> None:
    def make() -> FirstLook:
        return FirstLook(["x"])

    whole, looks = make(), []
    for part in parts:
        batch = pa.record_batch({"x": pa.array(part, pa.string())})
        looks.append(make())
        looks[-1].add(batch, None)
        whole.add(batch, None)
    order.shuffle(looks)
    found = summed(looks, make())
    assert found.rows == whole.rows
    one, other = found.surveys["x"], whole.surveys["x"]
    assert (one.rows, one.missing, one.value_type) == (other.rows, other.missing, other.value_type)
    texts, counts = one.texts()
    assert (texts, counts.tolist()) == (other.texts()[0], other.texts()[1].tolist())


def test_surveys_of_columns_of_several_types_agree_on_one() -> None:
    whole, parts = ColumnSurvey("x"), []
    for values in ([1, 2], [2.0, 0.5], [None, None], ["b", "2"]):
        parts.append(ColumnSurvey("x"))
        parts[-1].add(pa.array(values))
        whole.add(pa.array(values))
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    assert total.value_type == whole.value_type == "string"
    assert total.texts()[0] == whole.texts()[0] == ["0.5", "1", "2", "b"]
    assert total.texts()[1].tolist() == whole.texts()[1].tolist() == [1, 1, 3, 1]
    assert total.missing == 2
