"""The one way to draw from a fitted model.

Its chains are set in motion again at the final weights: training left them at the last ones, which differ, so
they first settle. Draws of one chain some sweeps apart are nearly independent, and a population knows which
of its members are of one chain. A model that was fitted by enumeration kept no chains, and is drawn from
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from agglearn.errors import InputError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.local import WORKSPACE, LocalEngine, memory_needed, proposals_for
from agglearn.field.groups import find_groups
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
_BLOCK = 1 << 12  # chains whose labels and raw values are drawn together


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
    if d is None and (model.layout.tied.size or how.groups):
        # What the chains hold tells what to propose together; and where rows are not stored, exact draws look
        # up every value, so that values are proposed too.
        d = tally(start, np.zeros(start.shape[1]), model.layout, thread_count(threads))[0]
    proposes = tables is not None or model.layout.tied.size > 0
    return LocalEngine(
        model.layout,
        start,
        model.rows,
        Numbers(seed, use),
        threads,
        proposals=proposals_for(model.layout, d, how.exact_up_to) if d is not None and proposes else None,
        exact_up_to=how.exact_up_to,
        proposals_per_feature=how.proposals,
        groups=find_groups(model.layout, d) if d is not None and how.groups else None,
    )


def exact_draws(model: Model, n: int, seed: int) -> Codes:
    """Independent records of a field that kept no chains: it was fitted by enumeration."""
    check_seed(seed)
    return ExactEngine(model.layout, model.rows).sample(n, model.field, seed)[0]


@dataclass(frozen=True, eq=False)
class Synthesis:
    """How so many synthetic records are drawn: by chains, which are drawn again in every round.

    Labels and raw values are drawn for a block of chains at a time, by a generator for each block and round,
    so that blocks may be drawn apart from each other.

    Attributes
    ----------
    model, n, seed
        What to draw from, how many, and by which random numbers.
    chains
        Where the chains begin.
    settle
        Sweeps before the first round.
    block
        Chains of a block.
    """

    model: Model
    n: int
    seed: int
    chains: Codes
    settle: int
    block: int

    @classmethod
    def of(cls, model: Model, n: int, seed: int) -> Synthesis:
        """The drawing of so many records."""
        if n < 1:
            raise InputError(f"{n} records cannot be drawn: ask for at least 1")
        if model.still:
            raise InputError(
                "the model was fitted with records, and would give those out: draw from one of tables alone"
            )
        check_seed(seed)
        if model.chains is None:
            return cls(model, n, seed, exact_draws(model, min(n, _FEWEST_EXACT), seed), 0, _BLOCK)
        order = generator(seed, Use.RECORDS).permutation(model.chains.shape[1])
        return cls(model, n, seed, model.chains[:, order[:n]], SETTLE, _BLOCK)

    @property
    def blocks(self) -> int:
        """How many blocks of chains there are."""
        return -(-int(self.chains.shape[1]) // self.block)

    def tables(self, first: int, last: int, threads: int | None = None) -> Iterator[Any]:
        """The records of these blocks of chains, an Arrow table for each round."""
        model, together = self.model, self.chains.shape[1]
        begin, end = first * self.block, min(last * self.block, together)
        engine = moving(model, None, self.chains, seed=self.seed, threads=threads, use=Use.RECORDS)
        engine.set_state({"chains": self.chains[:, begin:end], "ids": np.arange(begin, end)})
        sweeps = 0
        for number, start in enumerate(range(0, self.n, together)):
            for _ in range(GAP if start else self.settle):
                engine.sweep(model.field, sweeps)
                sweeps += 1
            codes, drawn = engine.chains[:, : max(self.n - start - begin, 0)], []
            for at in range(0, codes.shape[1], self.block):
                rng = generator(self.seed, Use.RECORDS, number, (begin + at) // self.block)
                drawn.append(self._raw(np.ascontiguousarray(codes[:, at : at + self.block]), rng, threads))
            if drawn:
                yield pa.concat_tables(drawn)

    def _raw(self, codes: Codes, rng: np.random.Generator, threads: int | None) -> Any:
        """Records of codes, with a label each."""
        model = self.model
        positive = rng.random(codes.shape[1]) < expit(model.field.log_odds(codes, thread_count(threads)))
        records = model.schema.decode(codes, rng)
        return records.append_column(model.label.name, model.label.decode(positive.astype(np.uint8)))


def sample(model: Model, n: int, *, seed: int = 0, threads: int | None = None) -> Iterator[Any]:
    """Draw synthetic records with their label in raw values, as Arrow tables of bounded size.

    Records of one table are independent, and those of different tables nearly so.
    """
    drawing = Synthesis.of(model, n, seed)
    yield from drawing.tables(0, drawing.blocks, threads)
