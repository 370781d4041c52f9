"""Blocks of chains where they live: in the executors of a cluster.

A block's state after so many moves follows from an earlier state of it and the moves since, by nothing else.
So states are kept in two places, and neither is needed for the result:

- beside the executor, in a file that the next move reads (the block is sent there again as long as the
  executor lives);
- now and then in storage that Spark reaches, from which a block that was lost is brought back and moved anew.

Everything here is plain arrays and files; who sends the work is :mod:`.spark`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.field.engines.local import LocalEngine
from agglearn.field.engines.tallies import Shared, Tally
from agglearn.field.field import Field, Rounded
from agglearn.field.groups import Groups
from agglearn.field.kernels.rounding import folded, unfolded
from agglearn.field.layout import Layout
from agglearn.field.proposals import Proposals
from agglearn.field.start import FirstChains
from agglearn.runtime.arrays import from_numpy, to_numpy
from agglearn.runtime.random import Numbers

_ROW_BYTES = 1 << 24  # of a state that is kept, in one piece


@dataclass(frozen=True, eq=False)
class Plan:
    """What stays the same for a whole fit.

    Attributes
    ----------
    name
        By which the files of this fit are known.
    layout, proposals, exact_up_to, proposals_per_feature, marginal_label, groups
        As for :class:`~.local.LocalEngine`.
    first, n_first
        The chains to begin with, and how many.
    blocks
        How many blocks they are dealt out to.
    """

    name: str
    layout: Layout
    proposals: Proposals | None
    exact_up_to: int
    proposals_per_feature: int
    marginal_label: bool
    groups: Groups | None
    first: FirstChains
    n_first: int
    blocks: int

    def engine(self) -> LocalEngine:
        """What moves a block: the engine of one machine, yet without chains."""
        nobody = np.zeros((self.layout.n_features, 0), np.uint16)
        proposals = None if self.proposals is None else self.proposals.interleaved()
        return LocalEngine(
            self.layout,
            nobody,
            0.0,
            Numbers(0),
            threads=1,
            proposals=proposals,
            exact_up_to=self.exact_up_to,
            proposals_per_feature=self.proposals_per_feature,
            marginal_label=self.marginal_label,
            groups=self.groups,
        )

    def beginning(self, block: int) -> dict[str, npt.NDArray[Any]]:
        """A block's state before the first move."""
        first, last = (self.n_first * k // self.blocks for k in (block, block + 1))
        return {"ids": np.arange(first, last, dtype=np.uint64), "chains": self.first.part(first, last)}


class Move(NamedTuple):
    """One move of all chains: how many there are before and after growth, and the weights.

    The chains follow (μ, θ′, θ₀′), the first two vectors, rounded and folded; where there is no third, labels
    are tallied by θ′ too.
    """

    iteration: int
    numbers: Numbers
    present: int
    n_chains: int
    weights: Shared
    intercept_law: float
    apart: bool
    intercept: float

    @classmethod
    def of(
        cls,
        iteration: int,
        numbers: Numbers,
        present: int,
        n_chains: int,
        field: Field,
        law: Field | None,
        share: Callable[..., Shared],
    ) -> Move:
        """The move of an engine that was asked for these; ``share`` sends vectors to the executors."""
        followed = (law or field).rounded()
        third = () if law is None else (field.rounded(followed.mu).theta,)
        weights = share(*map(folded, (followed.mu, followed.theta, *third)))
        return cls(
            iteration,
            numbers,
            present,
            n_chains,
            weights,
            followed.intercept,
            followed.apart,
            field.intercept,
        )

    def fields(self, layout: Layout) -> tuple[Rounded, Rounded | None]:
        """The field and its law, as an engine is asked for them."""
        mu, theta_law, *theta = map(unfolded, self.weights.value)
        law = Rounded(layout, mu, theta_law, self.intercept_law, self.apart)
        if not theta:
            return law, None
        return Rounded(layout, mu, theta[0], self.intercept, self.apart), law


class LostError(Exception):
    """A block's state is not beside this executor."""


@dataclass(frozen=True, eq=False)
class Trail:
    """How a state is found again: where blocks were last kept, and the moves since.

    Attributes
    ----------
    plan
        What stays the same; one of Spark's broadcasts, or anything with a ``value``.
    era
        How often a state was gone back to: moves after it are others than those before.
    folder, step
        Where the blocks of how many moves are kept; none where they have not been kept yet, and no name where
        they are beside their executors or lost.
    moves
        The moves since.
    """

    plan: Any
    era: int
    folder: str | None
    step: int
    moves: Sequence[Move]

    @property
    def end(self) -> int:
        """How many moves there were in all."""
        return self.step + len(self.moves)

    def since(self, step: int) -> Trail:
        """The same for blocks that have made so many moves; from where they are kept, they are not found.

        It has the weights of the moves since alone: an executor holds no others.
        """
        return replace(self, folder="", step=step, moves=self.moves[step - self.step :])

    def again(self, send: Callable[[Callable[[], Any]], Any]) -> Trail:
        """The same, with the weights of its moves sent anew."""
        moves = [move._replace(weights=move.weights.again(send)) for move in self.moves]
        return replace(self, moves=tuple(moves))

    def leave(self) -> None:
        """Have executors forget the weights of its moves."""
        for move in self.moves:
            move.weights.leave()

    def count(self, block: int) -> Tally:
        """Make the last move of a block, and count it."""
        move = self.moves[-1]
        field, law = move.fields(self.plan.value.layout)
        began = time.perf_counter()
        engine = self.stand(block, self.end - 1)
        self._grow(engine, move)
        tally = Tally.of(engine.count(field, move.iteration, law))
        self._write_beside(engine, block, self.end)
        return replace(tally, seconds=time.perf_counter() - began)

    def stand(self, block: int, step: int | None = None) -> LocalEngine:
        """An engine that holds a block's chains as they stood after so many moves (all by default)."""
        plan: Plan = self.plan.value
        step = self.end if step is None else step
        engine = _engine(self.plan)
        for known in range(step, self.step - 1, -1):
            path = _beside(plan.name, self.era, block, known)
            if path.exists():
                with pa.memory_map(str(path)) as source:
                    engine.set_state(_read(source))
                break
        else:
            if self.folder is not None:
                raise LostError
            known = self.step
            engine.set_state(plan.beginning(block))
        for place in range(known, step):
            move = self.moves[place - self.step]
            self._grow(engine, move)
            field, law = move.fields(engine.layout)
            engine.sweep(law or field, move.iteration)
        if known < step:
            self._write_beside(engine, block, step)
        return engine

    def rows(self, block: int) -> Iterator[tuple[int, int, bytearray]]:
        """A block as it stands, as rows of bytes to keep: the block, which row, and the bytes."""
        sink = pa.BufferOutputStream()
        _write(sink, self.stand(block))
        held = memoryview(sink.getvalue())
        for row, start in enumerate(range(0, len(held), _ROW_BYTES)):
            yield block, row, bytearray(held[start : start + _ROW_BYTES])

    def _grow(self, engine: LocalEngine, move: Move) -> None:
        engine.use(move.numbers)
        engine.grow_part(move.present, move.n_chains, move.iteration)

    def _write_beside(self, engine: LocalEngine, block: int, step: int) -> None:
        """Keep the state for the next move; the one before it stays, for a move that is made again."""
        name = self.plan.value.name
        path = _beside(name, self.era, block, step)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with pa.OSFile(str(unfinished), "wb") as target:
            _write(target, engine)
        unfinished.replace(path)
        for old in path.parent.glob(f"{name}-*-{block}-*.arrow"):
            era, _, of = (int(number) for number in old.stem.split("-")[-3:])
            if era < self.era or of < step - 1:
                old.unlink(missing_ok=True)


def put_beside(
    name: str, era: int, step: int, rows: Iterable[tuple[int, tuple[int, bytes]]]
) -> Iterator[int]:
    """Put blocks that were kept beside this executor; their numbers."""
    found: dict[int, dict[int, bytes]] = {}
    for block, (row, held) in rows:
        found.setdefault(block, {})[row] = held
    for block, parts in found.items():
        path = _beside(name, era, block, step)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with open(unfinished, "wb") as target:
            target.writelines(parts[row] for row in sorted(parts))
        unfinished.replace(path)
        yield block


@lru_cache(maxsize=1)
def _engine_of(plan: Plan) -> LocalEngine:
    return plan.engine()


def _engine(plan: Any) -> LocalEngine:
    """The engine of this process, made once, with as many threads as the task has."""
    from pyspark import TaskContext

    engine, task = _engine_of(plan.value), TaskContext.get()
    engine.threads = task.cpus() if task else 1
    return engine


def _beside(name: str, era: int, block: int, step: int) -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / f"{name}-{era}-{block}-{step}.arrow"


def _write(target: Any, engine: LocalEngine) -> None:
    """A block as an Arrow file: a row for each chain."""
    state: Mapping[str, npt.NDArray[Any]] = engine.get_state()
    columns = {"ids": engine.ids}
    if "labels" in state:
        columns["labels"] = state["labels"]
    columns |= {f"{f}": codes for f, codes in enumerate(state["chains"])}
    batch = pa.record_batch([from_numpy(values) for values in columns.values()], names=list(columns))
    with pa.ipc.new_file(target, batch.schema) as file:
        file.write_batch(batch)


def _read(source: Any) -> dict[str, npt.NDArray[Any]]:
    batch = pa.ipc.open_file(source).get_batch(0)
    columns = {name: to_numpy(batch.column(name)) for name in batch.schema.names}
    codes = [columns[name] for name in columns if name.isdigit()]
    state = {name: columns[name].copy() for name in columns if not name.isdigit()}
    return {**state, "chains": np.stack(codes)}
