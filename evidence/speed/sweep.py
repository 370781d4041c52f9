# mypy: disallow-untyped-decorators=False
"""The sweep beside a roofline: how many float32 additions a second a plain loop over rows does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt
from numba import njit

from agglearn.errors import InputError
from agglearn.field.engines.local import LocalEngine
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.problem import make_problem
from agglearn.runtime.random import Numbers
from agglearn.runtime.threads import in_threads
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings
from evidence.speed.parts import watching
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_least, not_measured, plain
from evidence.splits import TITLES, Split, split
from evidence.timing import own_times, seconds, wall

TITLE = "Sweep"
SECTION = "sweep"
_SHORT, _LONG = 10, 100  # floats in a row: modalities of a feature
_ROWS_A_SUM = 16  # rows added up for one chain: about the tables of a feature
_IN_CACHE, _OUT_OF_CACHE = 1 << 14, 1 << 28  # bytes of all rows: L1 holds the first, no cache the other
_LONG_FEATURES = 10  # of the shape with many modalities
_STEPS = 20_000_000  # of arithmetic in registers
_ITERATIONS = 30  # of a fit, after which the weights are no longer those of the start


@dataclass(frozen=True, eq=False)
class _Shape:
    """A field, chains to move, and the length of rows that their sweep is compared with."""

    name: str
    row: int
    field: Field
    chains: npt.NDArray[np.uint16]

    @property
    def n_chains(self) -> int:
        return int(self.chains.shape[1])

    @property
    def adds(self) -> int:
        """Additions of one sweep: each table adds a number to each logit of each of its features."""
        layout = self.field.layout
        return self.n_chains * sum(layout.cards[f] for scope in layout.scopes for f in scope)


def run(config: Sizes) -> list[Result]:
    """Measure the roofline, then the sweep on each shape with one and with two threads."""
    roof = {}
    results = []
    for row in (_SHORT, _LONG):
        for place, size in (("in cache", _IN_CACHE), ("out of cache", _OUT_OF_CACHE)):
            adds = roofline(row, size, config)
            roof[row, place] = adds
            what = f"roofline, rows of {row}, {place}"
            results.append(plain(SECTION, what, adds / 1e9, "G adds/s", setting="one thread"))
    results.append(_second_core(config))
    shapes = [_of_split(split("adult", "quantile", 0), config), _many_modalities(config)]
    try:
        shapes.insert(1, _of_split(split("bank", "quantile", 0), config))
    except InputError as error:
        results.append(not_measured(SECTION, "Bank", str(error)))
    for shape in shapes:
        results += _compare(shape, roof[shape.row, "in cache"], config)
    return results


def _compare(shape: _Shape, roof: float, config: Sizes) -> list[Result]:
    sweeps = [partial(_sweep, shape, _engine(shape, threads), iter(range(10**6))) for threads in (1, 2)]
    one, two = own_times(sweeps, config.sweep_repeat)
    adds = shape.adds / one
    setting = f"{shape.n_chains:,} chains"
    return [
        at_least(
            SECTION,
            f"{shape.name}, additions / roofline in cache",
            adds / roof,
            0.3,
            setting=f"{setting}, rows of {shape.row}",
            gadds_per_s=adds / 1e9,
            ns_a_draw=1e9 * one / shape.chains.size,
        ),
        at_least(
            SECTION,
            f"{shape.name}, speed of two threads / one",
            one / two,
            1.8,
            setting=setting,
            one_s=one,
            two_s=two,
        ),
    ]


def _second_core(config: Sizes) -> Result:
    """What the machine itself gives a second thread: arithmetic in registers shares nothing but the cores."""
    works = [partial(wall, partial(in_threads, n, lambda _: _in_registers(_STEPS))) for n in (1, 2)]
    one, two = own_times(works, config.sweep_repeat)
    what = "arithmetic in registers, speed of two threads / one"
    return plain(SECTION, what, 2 * one / two, "×", setting="the most a second thread can gain here")


@njit(nogil=True)
def _in_registers(steps):  # type: ignore[no-untyped-def]
    state = np.uint64(88172645463325252)
    for _ in range(steps):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
    return state


def _engine(shape: _Shape, threads: int) -> LocalEngine:
    return LocalEngine(shape.field.layout, shape.chains, shape.n_chains, Numbers(0), threads)


def _sweep(shape: _Shape, engine: LocalEngine, iterations: Iterator[int]) -> float:
    """Seconds of the draws of all features, without the preparation of the weights."""
    with watching() as parts:
        engine.sweep(shape.field, next(iterations))
        return parts.lap()["sweep"]


def _of_split(parts: Split, config: Sizes) -> _Shape:
    """A short fit of a data set, its chains repeated up to the number asked for."""
    fitted = fit(make_problem(parts.whole.data), FitSettings(iterations=_ITERATIONS))
    rng = np.random.default_rng(0)
    codes = parts.whole.codes
    chains = codes[:, rng.integers(0, codes.shape[1], config.sweep_chains)]
    return _Shape(TITLES[parts.name], _SHORT, fitted.field, chains)


def _many_modalities(config: Sizes) -> _Shape:
    """Weights and chains at random."""
    scopes = list(combinations(range(_LONG_FEATURES), 2))
    layout = Layout.plain([_LONG] * _LONG_FEATURES, scopes)
    rng = np.random.default_rng(0)
    chains = rng.integers(0, _LONG, (config.sweep_chains, _LONG_FEATURES)).astype(np.uint16).T
    mu, theta = 0.3 * rng.standard_normal((2, layout.n_cells))
    return _Shape(f"{_LONG_FEATURES} × {_LONG} modalities", _LONG, Field(layout, mu, theta, -1.0), chains)


def roofline(row: int, size: int, config: Sizes) -> float:
    """Additions a second of the faster of two plain loops that sum rows drawn at random."""
    weights = np.random.default_rng(0).standard_normal(size // 4, dtype=np.float32)
    n = config.roofline_adds // (row * _ROWS_A_SUM)
    numbers = np.random.default_rng(1).integers(0, weights.size // row, (n, _ROWS_A_SUM), dtype=np.uint32)
    out = np.zeros(row, np.float32)
    works = [partial(loop, weights, numbers, out) for loop in (_one_row_at_a_time, _four_rows_at_a_time)]
    return numbers.size * row / min(seconds(work, config.repeat) for work in works)


@njit(cache=True, nogil=True)
def _one_row_at_a_time(weights, rows, out):  # type: ignore[no-untyped-def]
    length = np.uint64(out.size)
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            start = np.uint64(rows[i, k]) * length
            for v in range(length):
                out[v] += weights[start + v]


@njit(cache=True, nogil=True)
def _four_rows_at_a_time(weights, rows, out):  # type: ignore[no-untyped-def]
    length = np.uint64(out.size)
    for i in range(rows.shape[0]):
        for k in range(0, rows.shape[1], 4):
            a, b = np.uint64(rows[i, k]) * length, np.uint64(rows[i, k + 1]) * length
            c, d = np.uint64(rows[i, k + 2]) * length, np.uint64(rows[i, k + 3]) * length
            for v in range(length):
                out[v] += (weights[a + v] + weights[b + v]) + (weights[c + v] + weights[d + v])
