"""Blocks of chains where they live: in the executors of a cluster.

A block's state after so many moves follows from an earlier state of it and the moves since, by nothing else.
So states are kept in two places, and neither is needed for the result:

- beside the executor, in a file that the next move reads (the block is sent there again as long as the
  executor lives);
- now and then in storage that all executors reach, from which a block that was lost is moved anew.

Everything here is plain arrays and files; who sends the work is :mod:`.spark`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from agglearn.errors import StoreError
from agglearn.field.engines.local import UNIT, Counts, LocalEngine, Moves
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.proposals import Proposals
from agglearn.field.start import FirstChains
from agglearn.runtime.arrays import from_numpy, to_numpy
from agglearn.runtime.random import Numbers

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Plan:
    """What stays the same for a whole fit.

    Attributes
    ----------
    name
        By which the files of this fit are known.
    layout, proposals, exact_up_to, proposals_per_feature, marginal_label
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
        )

    def beginning(self, block: int) -> dict[str, npt.NDArray[Any]]:
        """A block's state before the first move."""
        first, last = (self.n_first * k // self.blocks for k in (block, block + 1))
        return {"ids": np.arange(first, last, dtype=np.uint64), "chains": self.first.part(first, last)}


class Move(NamedTuple):
    """One move of all chains: how many there are before and after growth, and the weights.

    The chains follow (μ, θ′, θ₀′); where there is no other θ, labels are tallied by θ′ too.
    """

    iteration: int
    numbers: Numbers
    present: int
    n_chains: int
    mu: Floats
    theta_law: Floats
    intercept_law: float
    apart: bool
    theta: Floats | None
    intercept: float

    @classmethod
    def of(
        cls, iteration: int, numbers: Numbers, present: int, n_chains: int, field: Field, law: Field | None
    ) -> Move:
        """The move of an engine that was asked for these."""
        followed = law or field
        return cls(
            iteration,
            numbers,
            present,
            n_chains,
            followed.mu,
            followed.theta,
            followed.intercept,
            followed.apart,
            None if law is None else field.theta,
            field.intercept,
        )

    def fields(self, layout: Layout) -> tuple[Field, Field | None]:
        """The field and its law, as an engine is asked for them."""
        law = Field(layout, self.mu, self.theta_law, self.intercept_law, self.apart)
        if self.theta is None:
            return law, None
        return Field(layout, self.mu, self.theta, self.intercept, self.apart), law


class Tally(NamedTuple):
    """What some blocks count, in whole numbers: of chains, and of multiples of :data:`~.local.UNIT`."""

    d: npt.NDArray[np.int32]
    c: npt.NDArray[np.int64]
    positives: int
    spread: int | None
    chains: int
    moves: Moves
    seconds: float  # that the slowest block's kernels took

    @classmethod
    def of(cls, counts: Counts, seconds: float) -> Tally:
        """The same counts as whole numbers."""
        spread = None if counts.spread is None else int(counts.spread / UNIT)
        c = np.multiply(counts.c, 1 / UNIT, out=counts.c).astype(np.int64)
        positives = int(counts.positives / UNIT)
        return cls(counts.d.astype(np.int32), c, positives, spread, counts.chains, counts.moves, seconds)

    def plus(self, other: Tally) -> Tally:
        """The tally of both together; this one's arrays are used for it."""
        self.d[:] += other.d
        self.c[:] += other.c
        return Tally(
            self.d,
            self.c,
            self.positives + other.positives,
            None if self.spread is None or other.spread is None else self.spread + other.spread,
            self.chains + other.chains,
            Moves(*map(sum, zip(self.moves, other.moves, strict=True))),
            max(self.seconds, other.seconds),
        )

    def counts(self) -> Counts:
        """The counts as the engine of one machine has them."""
        c = self.c.astype(np.float64)
        c *= UNIT
        spread = None if self.spread is None else self.spread * UNIT
        return Counts(self.d.astype(np.float64), c, self.positives * UNIT, spread, self.chains, self.moves)


@dataclass(frozen=True, eq=False)
class Trail:
    """How a state is found again: where blocks were last kept, and the moves since.

    Attributes
    ----------
    plan
        What stays the same; it and the moves are of Spark's broadcasts, or anything with a ``value``.
    folder, step
        Where the blocks of how many moves are kept; none where they have not been kept yet.
    moves
        The moves since.
    """

    plan: Any
    folder: str | None
    step: int
    moves: Sequence[Any]

    @property
    def end(self) -> int:
        """How many moves there were in all."""
        return self.step + len(self.moves)

    def count(self, block: int) -> Tally:
        """Make the last move of a block, and count it."""
        began = time.perf_counter()
        engine = self.stand(block, self.end - 1)
        self._grow(engine, self.moves[-1].value)
        move: Move = self.moves[-1].value
        field, law = move.fields(engine.layout)
        tally = Tally.of(engine.count(field, move.iteration, law), 0.0)
        seconds = time.perf_counter() - began
        self._write_beside(engine, block, self.end)
        return tally._replace(seconds=seconds)

    def stand(self, block: int, step: int | None = None) -> LocalEngine:
        """An engine that holds a block's chains as they stood after so many moves (all by default)."""
        plan: Plan = self.plan.value
        step = self.end if step is None else step
        engine = _engine(self.plan)
        for known in range(step, self.step - 1, -1):
            path = _beside(plan.name, block, known)
            if path.exists():
                with pa.memory_map(str(path)) as source:
                    engine.set_state(_read(source))
                break
        else:
            known = self.step
            engine.set_state(plan.beginning(block) if self.folder is None else _fetch(self.folder, block))
        for place in range(known, step):
            move: Move = self.moves[place - self.step].value
            self._grow(engine, move)
            field, law = move.fields(engine.layout)
            engine.sweep(law or field, move.iteration)
        if known < step:
            self._write_beside(engine, block, step)
        return engine

    def keep(self, folder: str, block: int) -> None:
        """Write a block as it stands to storage that all executors reach."""
        system, path = located(f"{folder}/{_name(block)}")
        unfinished = f"{path}.{os.getpid()}"
        system.create_dir(os.path.dirname(path), recursive=True)
        with system.open_output_stream(unfinished) as target:
            _write(target, self.stand(block))
        system.move(unfinished, path)

    def _grow(self, engine: LocalEngine, move: Move) -> None:
        engine.use(move.numbers)
        engine.grow_part(move.present, move.n_chains, move.iteration)

    def _write_beside(self, engine: LocalEngine, block: int, step: int) -> None:
        """Keep the state for the next move; the one before it stays, for a move that is made again."""
        name = self.plan.value.name
        path = _beside(name, block, step)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with pa.OSFile(str(unfinished), "wb") as target:
            _write(target, engine)
        unfinished.replace(path)
        for old in path.parent.glob(f"{name}-{block}-*"):
            if old.suffix == ".arrow" and int(old.stem.rsplit("-", 1)[1]) < step - 1:
                old.unlink(missing_ok=True)


def located(uri: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    if "://" not in uri:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    system, path = fs.FileSystem.from_uri(uri.replace("s3a://", "s3://", 1))
    return system, path


@lru_cache(maxsize=1)
def _engine_of(plan: Plan) -> LocalEngine:
    return plan.engine()


def _engine(plan: Any) -> LocalEngine:
    """The engine of this process, made once, with as many threads as the task has."""
    from pyspark import TaskContext

    engine, task = _engine_of(plan.value), TaskContext.get()
    engine.threads = task.cpus() if task else 1
    return engine


def _name(block: int) -> str:
    return f"block-{block:05d}.arrow"


def _beside(name: str, block: int, step: int) -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / f"{name}-{block}-{step}.arrow"


def _fetch(folder: str, block: int) -> dict[str, npt.NDArray[Any]]:
    system, path = located(f"{folder}/{_name(block)}")
    try:
        with system.open_input_file(path) as source:
            return _read(source)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path}: chains that were kept there cannot be read ({error})") from None


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
