"""Tables put together into bundles: the same sums, in fewer passes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from agglearn.field.bundles import bundles_of
from agglearn.field.kernels.score import score_codes, tally
from agglearn.field.kernels.sets import score_sets, tally_sets
from agglearn.field.layout import Layout
from agglearn.field.members import Members
from agglearn.schema.features import Codes

CARDS = (3, 30, 2, 7, 100, 5, 11)
SCOPES: dict[str, list[tuple[int, ...]]] = {
    "singles": [(f,) for f in range(7)],
    "pairs": list(combinations(range(7), 2)),
    "some, of every order": [(0,), (0, 1), (2, 3, 5), (1, 4), (6,), (0, 6)],
}


def some_codes(rows: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, card, rows) for card in CARDS]).astype(np.uint16)


LAYOUTS = {name: Layout.plain(CARDS, scopes) for name, scopes in SCOPES.items()}
LAYOUTS["hashed and large ones among them"] = Layout.hashed(
    CARDS, [(0, 1), (1, 4), (2, 3), (1, 3, 4), (2, 5), (5, 6)], [0, 50, 0, 0, 0, 0]
)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("sets", [None, 1, 3])
def test_bundles_score_and_tally_as_the_tables_do(layout: Layout, sets: int | None) -> None:
    codes = some_codes(5_000)
    bundles = bundles_of(layout)
    assert bundles is not None
    assert len(bundles.features) <= layout.n_tables
    assert sorted([*(t for held in bundles.tables for t in held), *bundles.rest]) == [*range(layout.n_tables)]
    rng = np.random.default_rng(1)
    weights: Any
    values: Any
    score: Any
    sums: Any
    if sets is None:
        weights, values = rng.normal(size=layout.n_cells), rng.normal(size=codes.shape[1])
        score, sums = score_codes(codes, layout, weights, 0.0), tally(codes, values, layout)[1]
        near = 1e-11
    else:
        weights, values = (
            rng.normal(size=(n, sets)).astype(np.float32) for n in (layout.n_cells, codes.shape[1])
        )
        score, sums = score_sets(codes, layout, weights), tally_sets(codes, values, layout)
        near = 5e-3  # float32 sums of up to 2,500 numbers of the order of one
    for threads in (1, 3):
        np.testing.assert_allclose(bundles.scores(codes, weights, threads), score, atol=min(near, 1e-4))
        np.testing.assert_allclose(bundles.tally(codes, values, threads), sums, atol=near)
    one, three = (bundles.tally(codes, values, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_wide_codes_are_bundled_too() -> None:
    layout, codes = Layout.plain(CARDS, SCOPES["pairs"]), some_codes(1_000)
    bundles, weights = bundles_of(layout), np.random.default_rng(2).normal(size=layout.n_cells)
    assert bundles is not None
    np.testing.assert_array_equal(
        bundles.scores(codes.astype(np.uint32), weights), bundles.scores(codes, weights)
    )


def test_tables_that_are_not_dense_have_no_bundles() -> None:
    assert bundles_of(Layout.hashed(CARDS, [(0, 1), (2, 3)], [9, 5])) is None
    assert bundles_of(Layout.plain((300, 300), [(0, 1)])) is None  # more cells than a bundle may have


def test_many_members_count_the_same_by_bundles() -> None:
    """Enough of them that bundles are taken: sums of 400,000 numbers in another order."""
    layout, codes = Layout.plain(CARDS, SCOPES["singles"]), some_codes(400_000)
    bundles = bundles_of(layout)
    assert bundles is not None
    assert bundles.pay(400_000)
    assert not bundles.pay(1_000)
    members = Members.evenly(layout, codes)
    weights = np.random.default_rng(3).normal(size=layout.n_cells)
    scores = members.scores(weights, 0.5)
    np.testing.assert_allclose(scores, score_codes(codes, layout, weights, 0.5), atol=1e-12)
    np.testing.assert_allclose(
        members.cells(scores), tally(codes, scores / 400_000, layout)[1], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(members.shares(), tally(codes, scores, layout)[0] / 400_000, rtol=1e-9)
