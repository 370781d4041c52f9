"""What goes between machines arrives as it was, in fewer bytes, and in shards where that pays."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agglearn.field.engines.local import Moves
from agglearn.field.engines.tallies import (
    CELL_SECONDS,
    STAGE_SECONDS,
    TASK_SECONDS,
    Shared,
    Tally,
    cut,
    n_shards,
)
from agglearn.field.kernels.packed import pack, unpack, whole
from agglearn.field.kernels.rounding import folded, rounded, unfolded


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**31 - 1) | st.sampled_from([0, 0, 0, 1, 255, 256]), max_size=40))
def test_whole_numbers_come_back_as_they_were(numbers: list[int]) -> None:
    for values in (np.array(numbers, np.int32), np.array(numbers, np.int64) << 30):
        found = unpack(pack(values))
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=64) | st.sampled_from([0.0, -0.0]), max_size=40))
def test_weights_come_back_bit_for_bit(numbers: list[float]) -> None:
    values = np.array(numbers, np.float64)
    assert unpack(pack(values)).tobytes() == values.tobytes()
    assert unpack(pack(values), np.full(values.size, 7.0)).tobytes() == values.tobytes()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False) | st.floats(-300, 300), max_size=40))
def test_weights_are_rounded_once_and_come_back_as_they_were(numbers: list[float]) -> None:
    values = np.array(numbers, np.float64)
    seen = rounded(values)
    np.testing.assert_array_equal(rounded(seen), seen)
    moderate = np.abs(values) < 256  # where 32 bits hold every step of 2⁻¹⁶
    assert (np.abs(seen[moderate] - values[moderate]) <= 2.0**-17).all()
    np.testing.assert_array_equal(
        seen[np.abs(values) > 8192], np.copysign(8192, values[np.abs(values) > 8192])
    )
    assert unfolded(unpack(pack(folded(seen)))).tobytes() == seen.tobytes()


def test_a_small_weight_takes_a_byte_of_either_sign() -> None:
    weights = rounded(np.tile([0.0, 100.0, -100.0, 1000.0, -1000.0, 70_000.0, 0.0, 0.0], 100) * 2.0**-16)
    # Of a number of steps its sign is the lowest bit: one byte up to 127 steps, two up to 32,767, else four.
    assert pack(folded(weights)).nbytes == 3 * 100 + 100 * (1 + 1 + 2 + 2 + 4)


def test_sums_of_multiples_are_whole_numbers() -> None:
    numbers = np.random.default_rng(0).integers(0, 2**50, 1000)
    sums = numbers.astype(np.float64) * 2.0**-30
    np.testing.assert_array_equal(whole(sums, 2.0**-30, np.int64), numbers)
    counts = numbers >> 20
    np.testing.assert_array_equal(whole(counts.astype(np.float64), 1.0, np.int32), counts)


def test_zeros_and_small_counts_take_less_room() -> None:
    rng = np.random.default_rng(0)
    counts = np.where(rng.random(80_000) < 0.25, rng.integers(1, 100, 80_000), 0).astype(np.int32)
    # A bit for each number in either plane, and a byte for each that is not zero.
    assert pack(counts).nbytes == 2 * 10_000 + np.count_nonzero(counts)


def _tally(seed: int, cells: int = 1000) -> Tally:
    rng = np.random.default_rng(seed)
    d = np.where(rng.random(cells) < 0.4, rng.integers(1, 70_000, cells), 0).astype(np.int32)
    return Tally(d, d * rng.integers(0, 2**30, cells), seed, seed + 1, 10, Moves(1, 2, 3, 4, 5, 6), seed / 10)


def test_tallies_add_up_by_shards_as_they_do_whole() -> None:
    tallies = [_tally(seed) for seed in range(4)]
    whole = {name: sum(getattr(t, name).astype(object) for t in tallies) for name in ("d", "c")}
    shards: dict[int, Tally] = {}
    for tally in tallies:
        for k, shard in enumerate(tally.shards(cut(1000, 7))):
            copy = pickle.loads(pickle.dumps(shard))
            shards[k] = shards[k].plus(copy) if k in shards else copy
    found = Tally.joined([shards[k] for k in range(7)])
    for name, expected in whole.items():
        np.testing.assert_array_equal(getattr(found, name), expected.astype(np.int64))
    assert (found.positives, found.spread, found.chains) == (6, 10, 40)
    assert found.moves == (4, 8, 12, 16, 20, 24)
    assert found.seconds == 0.3


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_vectors_are_shared_whole_by_their_shards(shards: int) -> None:
    rng = np.random.default_rng(1)
    vectors = [np.where(rng.random(23) < 0.5, rng.normal(size=23), 0.0) for _ in range(3)]

    def send(make: Any) -> Any:
        return SimpleNamespace(value=pickle.loads(pickle.dumps(make())))

    shared = Shared.of(vectors, shards, send)
    assert len(shared.pieces) == shards
    for found, vector in zip(shared.value, vectors, strict=True):
        np.testing.assert_array_equal(found, vector)


def test_shards_are_taken_where_a_tree_would_take_longer() -> None:
    assert n_shards(2, 10_000_000) == 1  # the driver takes two tallies: no fewer than by shards
    assert n_shards(200, 10_000) == 1  # a stage takes longer than all of it
    assert n_shards(200, 10_000_000) == 10_000_000 >> 16  # pieces of less are not worth a task
    assert n_shards(100, 100_000_000) == 100
    assert n_shards(2, 1 << 28) == 4  # a tally that no array of Java holds
    for blocks in (8, 20, 50, 200):
        edge = next(n for n in np.geomspace(1e4, 1e9, 400).astype(int).tolist() if n_shards(blocks, n) > 1)
        tree = 2 * np.ceil(np.sqrt(blocks)) * edge * CELL_SECONDS
        shards = 3 * edge * CELL_SECONDS + STAGE_SECONDS + n_shards(blocks, edge) * TASK_SECONDS
        assert shards < tree < 1.1 * shards
