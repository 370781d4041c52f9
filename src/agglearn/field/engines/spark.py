"""The engine of a Spark cluster: the chains of the local engine, in blocks that live in executors.

For each iteration the weights are broadcast, every block is moved and counted where it is
(:mod:`.blocks`), and the counts are summed in a tree, or by shards of cells (:mod:`.tallies`). Chains draw by
their numbers and counts are whole numbers, so the results are those of the local engine, bit for bit, however
many blocks and shards there are and whatever becomes of the executors. Nothing as long as there are chains
comes to the driver.

**Where blocks are.** Spark sends a task to where its data are cached. The data of these tasks are the blocks'
numbers, cached once: each block goes back to the executor that holds its number, and finds its chains there.
An executor that is lost takes its numbers with it; they are cached elsewhere, and a block that is asked there
says that it is lost. Then all blocks are dealt out anew from where they were kept, each number cached where
its block was put, and asked again.

**What is kept.** Blocks are written by Spark, to any storage that it reaches, as soon as the iterations since
the last time took :data:`_WORTH` times as long as writing takes, so that keeping them costs a twentieth at
most, and a loss no more than a few iterations.
"""

from __future__ import annotations

import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import AgglearnError, InputError, StoreError
from agglearn.field.engines.blocks import LostError, Move, Plan, Trail, put_beside
from agglearn.field.engines.local import LocalEngine, proposals_for
from agglearn.field.engines.protocol import KEPT_CHAINS, EngineOptions, Expectation, State
from agglearn.field.engines.spread import SpreadChains
from agglearn.field.engines.tallies import FEW, Shared, Tally, Vector, cut, n_shards
from agglearn.field.field import Field
from agglearn.field.groups import find_groups
from agglearn.field.kernels.score import Codes
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.runtime.random import Numbers
from agglearn.runtime.speech import option
from agglearn.spark.session import asked, open_session, require_package
from agglearn.spark.storage import Storage, is_uri

Floats = npt.NDArray[np.float64]

BLOCKS = "spark.agglearn.blocks"  # a setting: how many blocks; by default one for each core
SHARDS = "spark.agglearn.shards"  # a setting: how many shards; by default as is fastest
_STORAGE = "spark.checkpoint.dir"
_WORTH = 20.0
_MOST_MOVES = 50  # since blocks were kept: the weights of each stay on the driver's disk
_NAMED = 2  # states handed out that are there to go back to, as many as there are checkpoints
_LOSSES = 20  # times that blocks of one move may get lost
_SENDERS = 4  # shards that are broadcast at a time


class SparkEngine:
    """Chains in the executors of a cluster.

    Parameters
    ----------
    session
        The Spark session.
    plan
        What stays the same for all blocks.
    rows
        Number of records that expectations are scaled to.
    numbers
        The random numbers: with the iteration they decide every draw.
    storage
        A folder that Spark reaches.
    shards
        In how many shards weights and tallies go.
    """

    longest_step_mu = np.inf
    still = False

    def __init__(
        self, session: Any, plan: Plan, rows: float, numbers: Numbers, storage: str, shards: int = 1
    ) -> None:
        self.layout, self.rows, self.numbers, self.shards = plan.layout, rows, numbers, shards
        self.kernel_seconds = 0.0
        self._session, self._context = session, session.sparkContext
        self._name, self._n_blocks = plan.name, plan.blocks
        self._storage = Storage(session, storage)
        self._present = self._n_chains = plan.n_first
        self._plan = self._context.broadcast(plan)
        self._trail = Trail(self._plan, 0, None, 0, ())
        self._made = 0  # moves that all blocks have made
        self._named: list[_Named] = []
        self._dealt_from: str | None = None
        self._blocks: Any = None
        began = time.perf_counter()
        self._deal_out(self._trail)
        self._since, self._cost = 0.0, time.perf_counter() - began

    def _deal_out(self, trail: Trail) -> None:
        """Cache the blocks' numbers in the executors that are to hold the blocks, and bring these there."""
        from pyspark import StorageLevel

        if self._blocks is not None:
            self._blocks.unpersist()
        self._executors = self._at_work()
        if trail.folder is None:
            numbers = self._context.parallelize(range(self._n_blocks), self._n_blocks)
        else:
            rows = self._session.read.parquet(trail.folder).rdd
            dealt = rows.map(lambda row: (row[0], (row[1], bytes(row[2])))).partitionBy(self._n_blocks, int)
            numbers = dealt.mapPartitions(partial(put_beside, self._name, trail.era, trail.step))
        self._blocks = numbers.persist(StorageLevel.MEMORY_AND_DISK)
        self._dealt_from = trail.folder
        asked(self._blocks.count)

    def _at_work(self) -> set[tuple[str, int]]:
        """The executors there are."""
        found = self._context._jsc.sc().statusTracker().getExecutorInfos()
        return {(executor.host(), executor.port()) for executor in found}

    @property
    def n_chains(self) -> int:
        return self._n_chains

    @property
    def chains(self) -> Codes:
        """The chains to keep with a model."""
        return self.population().some(KEPT_CHAINS)

    def expect(self, field: Field, iteration: int, law: Field | None = None) -> Expectation:
        """Move the chains one sweep at these weights (or a law's), then tally them."""
        began = time.perf_counter()
        self._follow(field, iteration, law)
        tally: Tally = self.ask(self._trail, Trail.count, Tally.plus, TALLIES)
        for move in self._trail.moves[-2:-1]:  # the last one may be made again, others where a block is lost
            move.weights.leave()
        self.kernel_seconds += tally.seconds
        self._since += time.perf_counter() - began
        if self._since > _WORTH * self._cost or len(self._trail.moves) >= _MOST_MOVES:
            self._keep()
        return tally.counts().expectation(self.rows)

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Bring the chains to these weights, by random numbers of their own."""
        self.use(numbers)
        for number in range(sweeps):
            self._follow(field, number, None)

    def _follow(self, field: Field, iteration: int, law: Field | None) -> None:
        """Lay down the next move; blocks make it when they are asked for anything."""
        move = Move.of(iteration, self.numbers, self._present, self._n_chains, field, law, self.share)
        self._trail = replace(self._trail, moves=(*self._trail.moves, move))
        self._present = self._n_chains

    def share(self, *vectors: Vector) -> Shared:
        """Vectors over cells that executors get as ``value``."""
        shards = max(1, min(self.shards, vectors[0].size))
        if shards == 1:
            return Shared.of(vectors, 1, self._broadcast)
        with ThreadPoolExecutor(min(shards, _SENDERS), thread_name_prefix="agglearn-share") as pool:
            sent = Shared.of(vectors, shards, lambda make: pool.submit(self._broadcast, make))
        return replace(sent, pieces=tuple(piece.result() for piece in sent.pieces))

    def _broadcast(self, make: Callable[[], Any]) -> Any:
        return self._context.broadcast(make())

    def send(self, value: Any) -> Any:
        """Anything else that executors get as its ``value``."""
        return self._context.broadcast(value)

    def ask(
        self,
        trail: Trail,
        work: Callable[[Trail, int], Any],
        add: Callable[[Any, Any], Any],
        by_cell: _ByCell | None = None,
    ) -> Any:
        """The sum of what each block says; of values by cell also by shards.

        Blocks are first sent the moves that they have not made, and all moves only where one is lost.
        """
        asked_of = self._latest(trail)
        for attempt in range(_LOSSES):
            told = self._blocks.map(partial(_told, asked_of, work))
            found = summed(told, partial(_plus, add), self.shards if by_cell else 1, by_cell)
            if attempt:
                asked_of.leave()
            if not isinstance(found, _Lost):
                if trail.era == self._trail.era:
                    self._made = max(self._made, trail.end)
                return found
            if trail.folder is not None:
                self._deal_out(trail)
            asked_of = trail.again(self._broadcast)
        raise AgglearnError(f"executors were lost {_LOSSES} times while one thing was asked of them")

    def _latest(self, trail: Trail) -> Trail:
        """The trail from the last move on, or from the first that blocks have not made."""
        made = min(self._made, trail.end - 1)
        return trail.since(made) if made > trail.step else trail

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        self.numbers = numbers

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with so many chains, if there are fewer, from the next sweep on."""
        self._n_chains = max(self._n_chains, n_chains)

    def population(self, field: Field | None = None) -> SpreadChains:
        """The chains as they stand, until the engine has moved on by some iterations."""
        return SpreadChains(self.layout, _Standing(self, self._trail), self._present)

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Where the blocks are kept: the state itself stays with the executors."""
        kept = self._trail.folder is not None and not self._trail.moves
        folder = str(self._trail.folder) if kept else self._keep()
        state: dict[str, npt.NDArray[Any]] = {
            "folder": np.frombuffer(folder.encode(), np.uint8),
            "numbers": np.array([self._trail.step, self._present, self._n_blocks], np.int64),
        }
        self._named.append(_Named(folder, state["folder"]))
        self._forget()
        return state

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave, in this process or another."""
        folder = state["folder"].astype(np.uint8).tobytes().decode()
        step, self._present, self._n_blocks = (int(number) for number in state["numbers"])
        if not Storage(self._session, folder).exists():
            raise StoreError(
                f"{folder}: the chains that were kept there are gone, begin anew in another folder"
            )
        self._n_chains = self._present
        if not any(named.folder == folder for named in self._named):  # of another process: it was killed
            self._named = [_Named(kept, handed_out=True) for kept in _up_to(self._session, folder)]
        self._trail, self._made = Trail(self._plan, self._trail.era + 1, folder, step, ()), step
        self._deal_out(self._trail)

    def _keep(self) -> str:
        """Write the blocks where Spark reaches them."""
        began, step = time.perf_counter(), self._trail.end
        folder = f"{self._storage.uri}/{self._name}-{self._trail.era}-{step:06d}"
        for _ in range(_LOSSES):
            self.ask(self._trail, _stands, max)  # what was lost is brought back before it is written
            try:
                self._write(folder)
                break
            except AgglearnError as error:
                if LostError.__name__ not in str(error.__cause__):
                    raise
        before, moves = self._trail.folder, self._trail.moves
        self._trail = Trail(self._plan, self._trail.era, folder, step, ())
        if before is not None:
            self._named.insert(0, _Named(before))  # the oldest of all: it goes unless someone needs it
        if self._at_work() != self._executors:  # some came, or went and left their blocks to others
            self._deal_out(self._trail)
        self._forget()
        for move in moves[:-1]:  # the last one may be made again
            move.weights.leave()
        self._since, self._cost = 0.0, time.perf_counter() - began
        return folder

    def _write(self, folder: str) -> None:
        rows = self._blocks.flatMap(self._latest(self._trail).rows)
        frame = self._session.createDataFrame(rows, "block int, row int, state binary", verifySchema=False)
        asked(partial(frame.write.mode("overwrite").parquet, folder))

    def _forget(self) -> None:
        """Remove kept states that nobody can go back to."""
        newest = [named.folder for named in self._named if named.handed_out][-_NAMED:]
        needed = {*newest, self._trail.folder, self._dealt_from}
        needed |= {named.folder for named in self._named if named.held}
        for folder in {named.folder for named in self._named} - needed:
            Storage(self._session, folder).remove()
        self._named = [named for named in self._named if named.folder in needed]


class _Named:
    """A kept state: in use as long as the array that names it is, if that was handed out."""

    def __init__(self, folder: str, array: npt.NDArray[Any] | None = None, handed_out: bool = False) -> None:
        self.folder, self.handed_out = folder, handed_out or array is not None
        self._array = None if array is None else weakref.ref(array)

    @property
    def held(self) -> bool:
        """Whether somebody has the array still."""
        return self._array is not None and self._array() is not None


class _Standing:
    """Blocks as they stand at one moment."""

    def __init__(self, engine: SparkEngine, trail: Trail) -> None:
        self._engine, self._trail = engine, trail

    def ask(self, work: Callable[[LocalEngine], Any], add: Callable[[Any, Any], Any]) -> Any:
        """The sum of what each block says."""
        return self._engine.ask(self._trail, partial(_standing, work), add)

    def ask_cells(self, work: Callable[[LocalEngine], Floats]) -> Floats:
        """The sum of vectors over cells."""
        found: Floats = self._engine.ask(self._trail, partial(_standing, work), np.add, _VECTORS)
        return found

    def share(self, vector: Floats) -> Shared:
        """A vector over cells that executors get as the only one of its ``value``."""
        return self._engine.share(vector)

    def send(self, value: Any) -> Any:
        """Anything else that executors get as its ``value``."""
        return self._engine.send(value)


class _Lost:
    """Said instead of an answer where a block is lost."""


def _told(trail: Trail, work: Callable[[Trail, int], Any], block: int) -> Any:
    """What a block says, or that it is lost."""
    try:
        return work(trail, block)
    except LostError:
        return _Lost()


def _standing(work: Callable[[LocalEngine], Any], trail: Trail, block: int) -> Any:
    return work(trail.stand(block))


def _stands(trail: Trail, block: int) -> int:
    trail.stand(block)
    return block


def _plus(add: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    return _Lost() if isinstance(one, _Lost) or isinstance(other, _Lost) else add(one, other)


class _ByCell:
    """How values by cell come apart into shards, and together again."""

    def __init__(
        self, cells: Callable[[Any], int], split: Callable[..., Sequence[Any]], join: Callable[..., Any]
    ) -> None:
        self._cells, self._split, self.join = cells, split, join

    def shards(self, n: int, value: Any) -> Iterable[tuple[int, Any]]:
        """A value's shards, with their numbers."""
        if isinstance(value, _Lost):
            return [(0, value)]
        return enumerate(self._split(value, cut(self._cells(value), n)))


def _vector_parts(vector: Floats, parts: Sequence[slice]) -> list[Floats]:
    return [vector[part] for part in parts]


TALLIES = _ByCell(lambda tally: int(tally.d.size), Tally.shards, Tally.joined)
_VECTORS = _ByCell(len, _vector_parts, np.concatenate)


def summed(
    values: Any, add: Callable[[Any, Any], Any], shards: int = 1, by_cell: _ByCell | None = None
) -> Any:
    """The sum of one value a block: in a tree, where the driver would be held up by them, or by shards."""
    if shards > 1 and by_cell is not None:
        parts = values.flatMap(partial(by_cell.shards, shards)).reduceByKey(add, shards, int)
        found = dict(asked(parts.collect))
        lost = next((part for part in found.values() if isinstance(part, _Lost)), None)
        return lost or by_cell.join([found[k] for k in sorted(found)])
    few = values.getNumPartitions() <= FEW
    return asked(partial(values.reduce if few else values.treeReduce, add))


def open_spark(problem: Problem, start: Starter, options: EngineOptions) -> tuple[SparkEngine, Floats]:
    """Chains spread over the session's executors, and μ₀."""
    session = open_session()
    require_package(session)
    context = session.sparkContext
    storage = session.conf.get(_STORAGE, None) or options.storage
    temporary = None
    if storage is None:
        if not context.master.startswith("local"):
            raise AgglearnError(
                f"chains on {context.master} need a folder that all its machines reach: set {_STORAGE}, or "
                f"{option('checkpoint')} where that is one, such as hdfs://…"
            )
        temporary = tempfile.TemporaryDirectory(prefix="agglearn-")
        storage = temporary.name
    begun = start(problem.layout, problem.d, problem.rows, options.first_chains, options.numbers)
    plan = Plan(
        name=f"agglearn-{uuid.uuid4().hex[:12]}",
        layout=problem.layout,
        proposals=proposals_for(problem.layout, problem.d, options.exact_up_to),
        exact_up_to=options.exact_up_to,
        proposals_per_feature=options.proposals,
        marginal_label=options.marginal_label,
        groups=find_groups(problem.layout, problem.d) if options.groups else None,
        first=begun.first,
        n_first=begun.size,
        blocks=_n_blocks(session, begun.size),
    )
    if not is_uri(storage) and not session.conf.get(_STORAGE, None):
        storage = Path(storage).absolute().as_uri()  # a folder of this machine, or one that all have
    shards = _setting(session, SHARDS, "shards") or n_shards(plan.blocks, problem.layout.n_cells)
    engine = SparkEngine(session, plan, problem.rows, options.numbers, storage, shards)
    if temporary is not None:
        weakref.finalize(engine, temporary.cleanup)
    return engine, begun.mu


def _n_blocks(session: Any, chains: int) -> int:
    """How many blocks: as the session is set, or one for each core; none without a chain."""
    return min(_setting(session, BLOCKS, "blocks") or int(session.sparkContext.defaultParallelism), chains)


def _setting(session: Any, name: str, what: str) -> int | None:
    """A number that the session is set to."""
    setting = session.conf.get(name, None)
    if setting is None:
        return None
    if not setting.isdecimal() or int(setting) < 1:
        raise InputError(f"{name} {setting!r} is not a number of {what}: it must be at least 1")
    return int(setting)


def _up_to(session: Any, folder: str) -> list[str]:
    """A kept state and those before it in the same storage; what a killed run wrote after it is removed."""
    parent, _, own = folder.rpartition("/")
    storage = Storage(session, parent)
    names = [name for name in storage.names() if name.startswith("agglearn-")]
    for name in names:
        if _step(name) > _step(own):
            storage.remove(name)
    return [f"{parent}/{name}" for name in sorted(names, key=_step) if _step(name) <= _step(own)]


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])
