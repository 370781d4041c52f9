"""The one way to draw from a fitted model.

Its chains are set in motion again at the final weights: training left them at the last ones, which differ, so
they first settle. Draws of one chain some sweeps apart are nearly independent, and a population knows which
of its members are of one chain. A model that was fitted by enumeration kept no chains, and is drawn from
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from agglearn.errors import InputError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.local import WORKSPACE, LocalEngine, memory_needed, proposals_for
from agglearn.field.kernels.score import Codes, tally
from agglearn.field.population import Chains
from agglearn.field.problem import Problem
from agglearn.model.model import Model
from agglearn.runtime.memory import require
from agglearn.runtime.options import check_seed
from agglearn.runtime.random import Numbers, Use, generator
from agglearn.runtime.speech import option
from agglearn.runtime.threads import thread_count

# With the 10,000 chains of a fit of Adult the chains' part of a score's standard error was 0.003; with these
# 0.001.
MEMBERS = 60_000
SETTLE = 5  # sweeps before the first draw: training left the chains at the last weights, not the final ones
GAP = 3  # sweeps between two draws of a chain
_FEWEST_EXACT = 10_000  # records drawn at a time where all are independent


def population(
    model: Model,
    tables: Problem | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
    members: int = MEMBERS,
) -> Chains:
    """Fresh records of a model's law of X.

    Parameters
    ----------
    model
        The model.
    tables
        Its tables, for Metropolis proposals as in training. Without them every draw would be exact, which
        takes long where a feature has many modalities: there the chains are taken as training left them.
    seed
        Seed of the draws.
    threads
        Threads to use; they change the time, never the result.
    members
        How many are wanted at least; a chain is drawn as often as that takes.
    """
    workers = thread_count(threads)
    if model.still:
        return Chains(model.layout, kept_records(model), threads=workers)
    if model.chains is None:
        return Chains(model.layout, exact_draws(model, members, seed), threads=workers)
    n_chains, n_cells = model.chains.shape[1], model.layout.n_cells
    many = max(model.layout.cards) > model.record.settings.training.exact_up_to
    if tables is None and many and not model.layout.tied.size:
        return Chains(model.layout, model.chains, threads=workers)
    require(
        memory_needed(model.layout, n_chains, threads) + WORKSPACE * n_cells,
        f"drawing from a field of {n_cells:,} cells with {n_chains:,} chains",
        f"fit with fewer chains ({option('chains')}), fewer or hashed tables",
    )
    engine = moving(model, tables, seed=seed, threads=threads)
    draws = max(1, -(-members // n_chains))
    drawn = []
    for sweep in range(SETTLE + GAP * (draws - 1)):
        engine.sweep(model.field, sweep)
        if sweep >= SETTLE - 1 and (sweep - SETTLE + 1) % GAP == 0:
            drawn.append(engine.chains)
    return Chains(model.layout, np.concatenate(drawn, axis=1), draws, workers)


def kept_records(model: Model) -> Codes:
    """The records that stand for a model's law of X, or what to do where it kept none."""
    if model.chains is None:
        raise InputError(
            "the model was fitted with records and keeps none, so it has no law of X to judge by: fit it "
            f"again with {option('keep_records')}"
        )
    return model.chains


def moving(
    model: Model,
    tables: Problem | None = None,
    chains: Codes | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
    use: Use = Use.DRAW,
) -> LocalEngine:
    """Chains of a model (its own, or those given) that move as they did in training."""
    how, start = model.record.settings.training, model.chains if chains is None else chains
    assert start is not None, "a model that kept no chains has none to move"
    check_seed(seed)
    d = None if tables is None else tables.d
    if d is None and model.layout.tied.size:
        # Where rows are not stored, exact draws look up every value: propose what the chains hold instead.
        d = tally(start, np.zeros(start.shape[1]), model.layout, thread_count(threads))[0]
    return LocalEngine(
        model.layout,
        start,
        model.rows,
        Numbers(seed, use),
        threads,
        proposals=None if d is None else proposals_for(model.layout, d, how.exact_up_to),
        exact_up_to=how.exact_up_to,
        proposals_per_feature=how.proposals,
    )


def exact_draws(model: Model, n: int, seed: int) -> Codes:
    """Independent records of a field that kept no chains: it was fitted by enumeration."""
    check_seed(seed)
    return ExactEngine(model.layout, model.rows).sample(n, model.field, seed)[0]


def sample(model: Model, n: int, *, seed: int = 0, threads: int | None = None) -> Iterator[Any]:
    """Draw synthetic records with their label in raw values, as Arrow tables of bounded size.

    Records of one table are independent, and those of different tables nearly so.
    """
    if n < 1:
        raise InputError(f"{n} records cannot be drawn: ask for at least 1")
    if model.still:
        raise InputError(
            "the model was fitted with records, and would give those out: draw from one of tables alone"
        )
    check_seed(seed)
    rng = generator(seed, Use.RECORDS)
    settle = SETTLE
    if model.chains is None:
        chains, settle = exact_draws(model, min(n, _FEWEST_EXACT), seed), 0
    else:
        chains = model.chains[:, rng.permutation(model.chains.shape[1])[:n]]
    engine = moving(model, None, chains, seed=seed, threads=threads, use=Use.RECORDS)
    sweeps = 0
    for start in range(0, n, engine.n_chains):
        for _ in range(GAP if start else settle):
            engine.sweep(model.field, sweeps)
            sweeps += 1
        codes = np.ascontiguousarray(engine.chains[:, : n - start])
        positive = rng.random(codes.shape[1]) < expit(model.field.log_odds(codes, thread_count(threads)))
        records = model.schema.decode(codes, rng)
        yield records.append_column(model.label.name, model.label.decode(positive.astype(np.uint8)))
