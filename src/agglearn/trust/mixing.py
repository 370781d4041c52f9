"""The chains watched at fixed weights: how fast they forget, and what they count.

**Autocorrelation.** Over n stationary chains, with s the log-odds of a chain,

    ρ(k) = Σ_chains Σ_t (s_t − s̄)(s_{t+k} − s̄) / (variance · pairs).

A feature has no number to correlate, so its chance of still (or again) having the value of k sweeps ago is
compared with what independent draws would give: ρ(k) = (P(x_{t+k} = x_t) − Σ_v p_v²) / (1 − Σ_v p_v²),
which is the mean autocorrelation of its values' indicators, weighted by their variances.

**Effective sample size.** The integrated time τ = 1 + 2Σρ(k) says how many sweeps of one chain are worth
one independent draw. The sum stops where a pair ρ(2j−1) + ρ(2j) is no longer positive (Geyer, 1992) or lost
in its noise; where the sweeps end before that, the rest is taken to fall geometrically. So T sweeps of n
chains are worth n·T/τ draws.

A feature that others determine does not move at all: then each chain is worth one draw, and those that
training copied from one another (it begins with a quarter of them) are worth one together.

**Halves.** Two halves of the chains are tallied apart, copies of one chain being in the same half, so that
nothing connects the two. How far they differ, beside what independent draws would differ by, is the noise
that the chains add to the field's tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.engines.local import LocalEngine, memory_needed
from agglearn.field.kernels.score import Codes, tally
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem
from agglearn.model.draw import SETTLE, exact_draws, kept_records, moving
from agglearn.model.model import Model
from agglearn.runtime.memory import require
from agglearn.runtime.random import Numbers

Floats = npt.NDArray[np.float64]

SWEEPS = 48  # times up to about 20 sweeps are told; slower ones are called slow
_TALLY_EVERY = 4  # sweeps between two tallies: what is counted in between is mostly the same
_MOST_CHAINS = 200_000  # more would not tell more of how they move
_TRACED = 10_000  # chains whose every state is kept, as long as that is
_TRACED_CODES = 50_000_000  # codes
_EXACT_DRAWS = 20_000  # chains of a field that was fitted by enumeration and kept none
_NOISE = 2.0  # standard errors below which an autocorrelation is taken for 0


@dataclass(frozen=True)
class Memory:
    """How long the chains remember one thing.

    Attributes
    ----------
    name
        A feature, or ``score`` for the log-odds.
    time
        τ: sweeps of one chain that are worth one independent draw.
    draws
        Independent draws that all sweeps of all chains were worth; no less than the chains that training
        began with.
    """

    name: str
    time: float
    draws: float


@dataclass(frozen=True)
class Mixing:
    """How well the chains move at the fitted weights.

    Attributes
    ----------
    chains, sweeps
        How many were watched, and for how long.
    moves, acceptance
        Share of values that a sweep changes; share of Metropolis proposals that are accepted, if any are
        made.
    score
        The memory of the log-odds.
    features
        That of each feature, the slowest first.
    halves_z
        Difference of the mean log-odds of two halves of the chains, in standard errors.
    """

    chains: int
    sweeps: int
    moves: float
    acceptance: float | None
    score: Memory
    features: tuple[Memory, ...]
    halves_z: float

    def to_json(self) -> dict[str, Any]:
        """The mixing as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class HalfTallies:
    """Chains in each cell and their sum of p, for each half of the chains: arrays of shape (2, cells)."""

    layout: Layout
    chains: Floats
    p: Floats
    records: int  # chains tallied in all, each as often as it was


@dataclass(frozen=True, eq=False)
class Watched:
    """What was seen of the chains.

    Attributes
    ----------
    mixing
        How they moved.
    tallies
        Their tallies over each layout asked for.
    cells, scores
        Where they stood at the end: chains in each cell of the model, and the sum of their log-odds less
        the mean.
    score_variance
        Variance of the log-odds then.
    """

    mixing: Mixing
    tallies: tuple[HalfTallies, ...]
    cells: Floats
    scores: Floats
    score_variance: float


def watch(
    model: Model, tables: Problem, layouts: Sequence[Layout], seed: int, threads: int, sweeps: int = SWEEPS
) -> Watched:
    """Run the chains of a model at its weights, without touching the model.

    Parameters
    ----------
    model
        The model.
    tables
        Its tables, from which Metropolis proposals are made as in training.
    layouts
        What to tally.
    seed, threads
        Seed of the draws; threads change nothing but the time.
    sweeps
        For how long.
    """
    if model.still:
        return _standing(model, layouts, threads)
    engine, second, families = _engine(model, tables, layouts, seed, threads)
    n, n_features = engine.n_chains, model.layout.n_features
    sums = [[np.zeros((2, layout.n_cells)) for _ in range(2)] for layout in layouts]
    most = max(2, min(n, _TRACED, _TRACED_CODES // (sweeps * n_features)))
    traced = np.linspace(0, n - 1, most).astype(np.int64)
    scores = np.empty((sweeps, traced.size))
    codes = np.empty((sweeps, n_features, traced.size), engine.chains.dtype)
    half_means = np.empty((sweeps, 2))
    infos = []
    for sweep in range(-SETTLE, sweeps):
        info = engine.sweep(model.field, SETTLE + sweep)
        if sweep < 0:
            continue
        infos.append(info)
        members = engine.population()
        now = members.scores(model.field.theta, model.field.intercept)
        scores[sweep], codes[sweep] = now[traced], members.codes[:, traced]
        half_means[sweep] = now[~second].mean(), now[second].mean()
        if sweep % _TALLY_EVERY == 0:
            p = expit(now)
            for layout, (counts, positives) in zip(layouts, sums, strict=True):
                for h, half in enumerate((~second, second)):
                    d, c = tally(members.codes[:, half], p[half], layout, threads)
                    counts[h] += d
                    positives[h] += c
    cells, centred = tally(members.codes, now - now.mean(), model.layout, threads)
    tallied = n * len(range(0, sweeps, _TALLY_EVERY))
    return Watched(
        mixing=_mixing(model, n, families, scores, codes, half_means, infos),
        tallies=tuple(HalfTallies(lay, d, c, tallied) for lay, (d, c) in zip(layouts, sums, strict=True)),
        cells=cells,
        scores=centred,
        score_variance=float(now.var()),
    )


def _standing(model: Model, layouts: Sequence[Layout], threads: int) -> Watched:
    """The same of a model whose law of X is one of records: they stand where they are."""
    codes = kept_records(model)
    n = codes.shape[1]
    scores = model.field.log_odds(codes, threads)
    p = expit(scores)
    second = np.arange(n) % 2 == 1
    tallies = []
    for layout in layouts:
        halves = [tally(codes[:, half], p[half], layout, threads) for half in (~second, second)]
        d, c = (np.stack([half[k] for half in halves]) for k in (0, 1))
        tallies.append(HalfTallies(layout, d, c, n))
    cells, centred = tally(codes, scores - scores.mean(), model.layout, threads)
    error = float(np.sqrt(4 * scores.var() / n))
    gap = float(scores[second].mean() - scores[~second].mean()) if n > 1 else 0.0
    apart = tuple(Memory(name, 1.0, n) for name in model.schema.names)
    z = gap / error if error > 0 else 0.0
    mixing = Mixing(n, 0, 0.0, None, Memory("score", 1.0, n), apart, z)
    return Watched(mixing, tuple(tallies), cells, centred, float(scores.var()))


def _engine(
    model: Model, tables: Problem, layouts: Sequence[Layout], seed: int, threads: int
) -> tuple[LocalEngine, npt.NDArray[np.bool_], int]:
    """The chains to watch, which of them are in the second half, and how many of them are no copies."""
    if model.chains is None:
        chains = exact_draws(model, _EXACT_DRAWS, seed)
        second, families = np.arange(_EXACT_DRAWS) % 2 == 1, _EXACT_DRAWS
    else:
        chains = model.chains
        second, families = _second_half(model)
    n = chains.shape[1]
    kept = np.linspace(0, n - 1, min(n, _MOST_CHAINS)).astype(np.int64)
    chains, second = chains[:, kept], second[kept]
    cells = sum(layout.n_cells for layout in layouts)
    largest = max(size for layout in layouts for size in layout.sizes)
    require(
        memory_needed(model.layout, kept.size) + 8 * (6 * (cells + model.layout.n_cells) + 20 * largest),
        f"a diagnosis of {cells:,} cells with {kept.size:,} chains",
        "check fewer or smaller tables",
    )
    engine = moving(model, tables, chains, seed=seed, threads=threads)
    return engine, second, min(families, kept.size)


def _second_half(model: Model) -> tuple[npt.NDArray[np.bool_], int]:
    """Which chains are in the second half, copies with what they were copied from; how many are no copies.

    A chain of one bit that says its half is copied as training copied the chains, by its history.
    """
    assert model.chains is not None
    n = model.chains.shape[1]
    numbers = [entry.chains or n for entry in model.record.history] or [n]
    families = numbers[0]
    bits = (np.arange(families) % 2).astype(np.uint16)
    own = Numbers(model.record.settings.seed)
    engine = LocalEngine(Layout.plain((2,), [(0,)]), bits[None, :], 1.0, own, 1)
    for iteration, now in enumerate(numbers):
        engine.grow(now, iteration)
    if engine.n_chains != n:  # not trained in the usual way
        return np.arange(n) % 2 == 1, n
    return engine.chains[0] == 1, families


def _mixing(
    model: Model,
    n: int,
    families: int,
    scores: Floats,
    codes: Codes,
    half_means: Floats,
    infos: Sequence[dict[str, float]],
) -> Mixing:
    sweeps = len(scores)

    def memory(name: str, correlations: Floats) -> Memory:
        time = integrated_time(correlations, scores.shape[1])
        return Memory(name, time, max(n * sweeps / time, families))

    score = memory("score", autocorrelation(scores))
    features = [memory(name, agreement(codes[:, f])) for f, name in enumerate(model.schema.names)]
    gap = float(np.diff(half_means.mean(axis=0))[0])
    error = float(np.sqrt(4 * scores.var() / max(score.draws, 1.0)))
    return Mixing(
        chains=n,
        sweeps=sweeps,
        moves=float(np.mean([info["moves"] for info in infos])),
        acceptance=(
            float(np.mean([info["acceptance"] for info in infos])) if "acceptance" in infos[0] else None
        ),
        score=score,
        features=tuple(sorted(features, key=lambda m: -m.time)),
        halves_z=gap / error if error > 0 else 0.0,
    )


def autocorrelation(traces: Floats) -> Floats:
    """ρ(0), ρ(1), … of numbers watched over time, a column for each chain, up to half the time."""
    centred = traces - traces.mean()
    variance = float((centred**2).mean())
    lags = range(len(traces) // 2 + 1)
    if variance == 0:  # nothing moves because there is nothing to move to
        return np.array([1.0] + [0.0] * (len(lags) - 1))
    correlations: Floats = np.array([np.mean(centred[k:] * centred[: len(traces) - k]) for k in lags])
    return correlations / variance


def agreement(codes: npt.NDArray[np.unsignedinteger[Any]]) -> Floats:
    """ρ(0), ρ(1), … of values watched over time, a column for each chain, up to half the time."""
    shares = np.bincount(codes.reshape(-1).astype(np.int64)) / codes.size
    by_chance = float(shares @ shares)
    lags = range(len(codes) // 2 + 1)
    if by_chance == 1:
        return np.array([1.0] + [0.0] * (len(lags) - 1))
    same = np.array([np.mean(codes[k:] == codes[: len(codes) - k]) for k in lags], np.float64)
    return (same - by_chance) / (1 - by_chance)


def integrated_time(correlations: Floats, chains: int) -> float:
    """τ = 1 + 2Σρ(k), from the autocorrelations that so many chains told."""
    noise = _NOISE / np.sqrt(chains)
    total, last, rate = 0.0, 1.0, 0.0
    for k in range(1, len(correlations) - 1, 2):
        pair = float(correlations[k] + correlations[k + 1])
        if pair <= 2 * noise:
            return 1.0 + 2 * total
        total += pair
        rate, last = (pair / last if k > 1 else 0.0), pair
    # Still correlated when the sweeps ended: what is left falls by the rate of the last two pairs.
    rate = min(rate, 0.99)
    return 1.0 + 2 * (total + last * rate / (1 - rate))
