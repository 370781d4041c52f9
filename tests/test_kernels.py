# mypy: disallow-untyped-decorators=False, check-untyped-defs=False
"""Kernels against plain numpy and Python: random numbers, exponentials, scores, tallies, proposals."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit

from agglearn.field.kernels.lanes import LANES, NEVER, WIDTH, exp_row, greatest_of_row, pick_value
from agglearn.field.kernels.rng import random_bits, uniform32, uniform64
from agglearn.field.kernels.score import score_codes, tally
from agglearn.field.layout import Layout
from agglearn.field.proposals import Proposals, build_proposals
from agglearn.runtime.random import Numbers, Stream
from tests.fields import cells_of

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]

CARDS = (3, 40, 2, 5, 130)
SCOPES = ((0,), (4,), (0, 1), (1, 4), (2, 3), (0, 2, 3), (1, 2, 3), (0, 3, 4))
MIXED = Layout.hashed(CARDS, SCOPES, (0, 0, 0, 0, 0, 0, 11, 501))


def cells(layout: Layout, t: int, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The cell of each record in table ``t``, from the words of agglearn.cells alone."""
    known = np.minimum(codes, np.array(layout.cards)[:, None] - 1)
    return np.asarray(cells_of(layout, known.T)[t])


def random_codes(rng: np.random.Generator, n: int, unknown: float = 0.0) -> Codes:
    codes = np.stack([rng.integers(0, m, n) for m in CARDS]).astype(np.uint16)
    for f, m in enumerate(CARDS):
        codes[f, rng.random(n) < unknown] = rng.choice([m, m + 7, 65535])
    return codes


def test_random_numbers_are_those_of_splitmix64() -> None:
    # the first outputs from state 0, as published with the generator (Vigna, 2015)
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(random_bits(np.uint64(0), np.uint64(k))) for k in range(3)] == published


def test_streams_differ_in_every_part_of_their_key() -> None:
    parts = [(s, i, k) for s in (0, 1, -1, 2**40) for i in range(3) for k in Stream]
    assert len({int(Numbers(s).key(i, k)) for s, i, k in parts}) == len(parts)


def test_uniform_numbers_stay_below_one() -> None:
    key = Numbers(3).key(1, Stream.LABELS)
    for draw in (uniform32, uniform64):
        numbers = np.array([draw(key, np.uint64(k)) for k in range(4000)])
        assert numbers.min() >= 0
        assert numbers.max() < 1
        # the mean of n uniforms has standard deviation 1/√(12 n): five of them
        assert abs(numbers.mean() - 0.5) < 5 / np.sqrt(12 * numbers.size)


@njit
def _exponentials(logits, sums):  # type: ignore[no-untyped-def]
    vectors = np.uint64(logits.size // LANES)
    top = greatest_of_row(logits, np.uint64(0), vectors)
    exp_row(logits, np.uint64(0), vectors, top, sums, np.uint64(0))
    return top


@njit
def _picks(exps, sums, uniforms, picked):  # type: ignore[no-untyped-def]
    vectors = np.uint64(exps.size // LANES)
    for i in range(uniforms.size):
        again = sums.copy()
        picked[i] = pick_value(exps, np.uint64(0), vectors, again, np.uint64(0), uniforms[i])


@pytest.mark.parametrize("lines", [1, 3])
def test_exponentials_of_a_row_match_numpy(lines: int) -> None:
    rng = np.random.default_rng(lines)
    logits = rng.uniform(-80, 30, lines * WIDTH).astype(np.float32)
    logits[-1] = NEVER
    row, sums = logits.copy(), np.zeros(LANES, np.float32)
    assert _exponentials(row, sums) == logits.max()
    # in float32, where the difference is exact up to one rounding; the argument times log2(e) is
    # off by up to 110·2⁻²⁴, and the polynomial by 1e-7
    expected = np.exp((logits - logits.max()).astype(np.float64))
    np.testing.assert_allclose(row, expected, rtol=1.5e-5, atol=1e-38)
    near = expected > np.exp(-8)
    np.testing.assert_allclose(row[near], expected[near], rtol=1.2e-6)
    assert row[-1] == 0
    np.testing.assert_allclose(sums, row.reshape(-1, LANES).sum(axis=0), rtol=1e-6)


def test_picks_follow_the_weights_and_never_fall_on_a_zero() -> None:
    exps = np.zeros(2 * WIDTH, np.float32)
    exps[[0, 3, 8, 11, 20]] = [1, 2, 3, 4, 10]
    sums = exps.reshape(-1, LANES).sum(axis=0)
    # uniforms on a grid: each value must get its share to within the grid
    uniforms = ((np.arange(20_000) + 0.5) / 20_000).astype(np.float32)
    picked = np.empty(uniforms.size, np.int64)
    _picks(exps, sums, uniforms, picked)
    shares = np.bincount(picked, minlength=exps.size) / uniforms.size
    np.testing.assert_allclose(shares, exps / exps.sum(), atol=2 / uniforms.size)
    edges = np.array([0, 2**-24, 1 - 2**-24], np.float32)
    _picks(exps, sums, edges, picked)
    assert set(picked[:3]) <= {0, 3, 8, 11, 20}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
def test_scores_are_sums_of_weights_and_unknown_codes_silence_their_tables(dtype: type, threads: int) -> None:
    rng = np.random.default_rng(5)
    codes = np.hstack([random_codes(rng, 3000), random_codes(rng, 2500, unknown=0.1)])
    theta: npt.NDArray[np.floating[Any]] = rng.normal(size=MIXED.n_cells).astype(dtype)
    expected = np.full(codes.shape[1], -1.5)
    known = codes < np.array(CARDS)[:, None]
    for t, scope in enumerate(MIXED.scopes):
        here = known[list(scope)].all(axis=0)
        expected += np.where(here, theta[cells(MIXED, t, codes)].astype(float), 0.0)
    assert (~known).any(axis=0).sum() > 500
    # the same additions in the same order, up to rounding of float64
    np.testing.assert_allclose(score_codes(codes, MIXED, theta, -1.5, threads), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_tally_counts_records_and_sums_their_probabilities(threads: int) -> None:
    rng = np.random.default_rng(6)
    codes = random_codes(rng, 5000)
    p = np.floor(rng.random(5000) * 2**30) / 2**30  # sums of these are exact in any order
    d, c = np.zeros(MIXED.n_cells), np.zeros(MIXED.n_cells)
    for t in range(MIXED.n_tables):
        np.add.at(d, cells(MIXED, t, codes), 1.0)
        np.add.at(c, cells(MIXED, t, codes), p)
    got_d, got_c = tally(codes, p, MIXED, threads)
    np.testing.assert_array_equal(got_d, d)
    np.testing.assert_array_equal(got_c, c)


def _laws(layout: Layout, proposals: Proposals, f: int, rows: int) -> tuple[Floats, Floats]:
    """What the alias tables of ``f`` draw, and what they say they draw; a row for each condition."""
    card = layout.cards[f]
    start = int(proposals.start[f])
    part = slice(start, start + rows * card)
    spots = proposals.spots[part].reshape(rows, card)
    threshold = (spots >> 16) / 65536.0
    alias = spots & 65535
    drawn = threshold / card
    for z in range(rows):
        np.add.at(drawn[z], alias[z], (1 - threshold[z]) / card)
    return drawn, np.exp(proposals.log_density[part].astype(np.float64).reshape(rows, card))


def test_proposals_mix_the_best_neighbours_conditional_with_the_marginal() -> None:
    cards = (6, 4, 30)
    layout = Layout.plain(cards, list(combinations(range(3), 2)))
    rng = np.random.default_rng(7)
    n = 4000
    x2 = rng.integers(0, 30, n)
    codes = np.stack([x2 // 5, rng.integers(0, 4, n), x2]).astype(np.uint16)  # 0 follows from 2
    d, _ = tally(codes, np.zeros(n), layout)
    d[d == 0] = -0.5  # as noise would make it
    proposals = build_proposals(layout, d, exact_up_to=5)
    assert (proposals.start >= 0).tolist() == [True, False, True]
    assert proposals.neighbour.tolist() == [2, -1, 0]
    drawn, declared = _laws(layout, proposals, 2, rows=6)
    np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-12)
    # log densities are rounded to float32: |log q| < 16 leaves 16·2⁻²⁴
    np.testing.assert_allclose(drawn, declared, rtol=1e-6)
    assert (drawn > 0).all()
    joint = np.zeros((6, 30))
    np.add.at(joint, (codes[0], codes[2]), 1)
    mixture = 0.8 * joint / joint.sum(axis=1, keepdims=True) + 0.2 * joint.sum(axis=0) / n
    # smoothing moves one example in a row of about 670, and 1 % of the marginal
    assert np.abs(drawn - mixture).sum(axis=1).max() < 2 * (0.8 / 500 + 0.2 * 0.01)


def test_proposals_without_a_pair_come_from_the_marginal_or_are_uniform() -> None:
    layout = Layout.hashed((8, 8, 8), ((0,), (0, 1), (1, 2)), (0, 50, 60))
    d = np.zeros(layout.n_cells)
    d[:8] = np.arange(8)
    proposals = build_proposals(layout, d, exact_up_to=4)
    assert proposals.neighbour.tolist() == [-1, -1, -1]
    single, _ = _laws(layout, proposals, 0, rows=1)
    # each of the eight thresholds is rounded by at most 1/65536, and stands for one draw in eight
    np.testing.assert_allclose(single[0], 0.99 * np.arange(8) / 28 + 0.01 / 8, rtol=0, atol=1 / 65536)
    hashed, _ = _laws(layout, proposals, 1, rows=1)
    np.testing.assert_allclose(hashed[0], 1 / 8, rtol=1e-6)
