"""Triples that pairs cannot tell are found and counted, the same whatever the order of the records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import agglearn
from agglearn.aggregation.api import aggregate_split
from agglearn.aggregation.triples import Sample, telling_triples
from agglearn.errors import AgglearnError
from agglearn.schema.features import Codes
from agglearn.tables.format import save


def with_weekday(n: int, seed: int = 0) -> pa.Table:
    """Records of which one feature follows from two others, and two more that follow from nothing."""
    rng = np.random.default_rng(seed)
    month, day = rng.integers(0, 6, n), rng.integers(0, 6, n)
    return pa.table(
        {
            "month": [f"m{k}" for k in month],
            "day": [f"d{k}" for k in day],
            "weekday": [f"w{k}" for k in (month + day) % 6],
            "colour": rng.choice(["red", "green", "blue"], n),
            "size": rng.choice(["S", "M", "L"], n),
            "late": (rng.random(n) < 0.2 + 0.1 * (month % 2)).astype(int),
        }
    )


def sample_of(codes: Codes, batch: int) -> Sample:
    sample = Sample()
    for start in range(0, codes.shape[1], batch):
        sample.add(codes[:, start : start + batch])
    return sample


def test_a_feature_that_follows_from_two_others_is_counted_with_them() -> None:
    found = aggregate_split(with_weekday(3000), "late")
    assert found.beside == [("month", "day", "weekday")]
    assert ("month", "day", "weekday") in found.train.tables
    assert len(found.train.tables) == 10 + 1
    counted = found.train.tables["month", "day", "weekday"]
    assert counted.counts.sum() == 3000
    assert (counted.counts > 0).sum() == 36
    assert "month × day × weekday" in str(found.document().blocks)


def test_features_that_pairs_tell_need_no_triple() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 5, 20_000)
    b = (a + (rng.random(20_000) < 0.2)) % 5  # a chain: each depends on the one before
    c = (b + (rng.random(20_000) < 0.2)) % 5
    codes = np.stack([a, b, c, rng.integers(0, 40, 20_000)]).astype(np.uint16)
    assert telling_triples(sample_of(codes, 4096), (5, 5, 5, 40), 20_000) == []


def test_few_records_do_not_make_a_triple_of_noise() -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 12, (8, 300)).astype(np.uint16)
    assert telling_triples(sample_of(codes, 300), (12,) * 8, 300) == []


def test_the_distance_is_that_of_the_closest_law_with_the_same_pairs() -> None:
    """XOR of two fair bits: every pair is uniform, and the triple tells log 2."""
    bits = np.array(np.meshgrid([0, 1], [0, 1])).reshape(2, -1)
    codes = np.repeat(np.vstack([bits, bits[:1] ^ bits[1:]]), 2000, axis=1).astype(np.uint16)
    assert telling_triples(sample_of(codes, 999), (2, 2, 2), 8000) == [(0, 1, 2)]
    flipped = codes.copy()
    flipped[2, np.random.default_rng(3).random(8000) < 0.35] ^= 1  # log 2 − h(0.35) = 0.046
    assert telling_triples(sample_of(flipped, 999), (2, 2, 2), 8000) == [(0, 1, 2)]
    flipped[2, np.random.default_rng(4).random(8000) < 0.35] ^= 1  # once more: 0.004
    assert telling_triples(sample_of(flipped, 999), (2, 2, 2), 8000) == []


@pytest.mark.parametrize("kinds", [100, 1 << 18])
def test_the_sample_depends_neither_on_order_nor_on_batches(kinds: int) -> None:
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 7, (4, 30_000)).astype(np.uint16)

    def drawn(codes: Codes, batch: int) -> Codes:
        sample = Sample(kinds)
        for start in range(0, codes.shape[1], batch):
            sample.add(codes[:, start : start + batch])
        return sample.records(5000)

    first = drawn(codes, 30_000)
    np.testing.assert_array_equal(first, drawn(codes[:, rng.permutation(30_000)], 777))
    if kinds > 7**4:  # all kinds are kept: shares are those of the records, within one of each kind
        assert first.shape[1] == 5000
        np.testing.assert_allclose(np.bincount(first[0]) / 5000, np.bincount(codes[0]) / 30_000, atol=0.02)


def test_parts_of_a_split_have_the_same_triples_and_the_train_part_chooses_them() -> None:
    found = aggregate_split(with_weekday(4000), "late", split={"valid": 0.25})
    assert set(found.parts["valid"].tables) == set(found.train.tables)
    assert found.beside


def test_tables_by_an_earlier_aggregation_are_those_it_has(tmp_path: Path) -> None:
    first = agglearn.aggregate(with_weekday(3000), "late")
    save(first, tmp_path / "first.agg")
    for like in (first, tmp_path / "first.agg"):
        second = agglearn.aggregate(with_weekday(50, seed=1), "late", schema=like)
        assert set(second.tables) == set(first.tables)
        assert (first + second).rows == 3050
    alone = agglearn.aggregate(with_weekday(50, seed=1), "late", schema=first.schema)
    assert len(alone.tables) == 10
    with pytest.raises(AgglearnError, match="month × day × weekday is in one of the aggregations only"):
        first + alone


def test_pairs_are_pairs_when_asked_for() -> None:
    assert len(agglearn.aggregate(with_weekday(3000), "late", tables="pairs").tables) == 10


def test_which_tables_a_private_release_has_does_not_depend_on_the_records() -> None:
    pytest.importorskip("opendp")
    from agglearn.privacy.api import aggregate_private
    from agglearn.privacy.budget import PrivacyOptions

    how = PrivacyOptions(epsilon=1.0, delta=1e-6, assume_public_schema=True)
    released = aggregate_private(with_weekday(3000), "late", how)
    assert len(released.train.tables) == 10
