"""The engine of a Spark cluster: the chains of the local engine, in blocks that live in executors.

For each iteration the weights are broadcast, every block is moved and counted where it is
(:mod:`.blocks`), and the counts are summed in a tree. Chains draw by their numbers and counts are whole
numbers, so the results are those of the local engine, bit for bit, however many blocks there are and
whatever becomes of the executors. Nothing as long as there are chains comes to the driver.

**Where blocks are.** Spark sends a task to where its data are cached. The data of these tasks are the blocks'
numbers, cached once: each block goes back to the executor that holds its number, and finds its chains there.
An executor that is lost takes its numbers with it; they are cached elsewhere, and the blocks moved anew.

**What is kept.** Blocks are written to storage that all executors reach as soon as the iterations since the
last time took :data:`_WORTH` times as long as writing takes, so that keeping them costs a twentieth at most,
and a loss no more than a few iterations of one block.
"""

from __future__ import annotations

import tempfile
import time
import uuid
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pyarrow import fs

from agglearn.errors import AgglearnError, InputError, StoreError
from agglearn.field.engines.blocks import Move, Plan, Tally, Trail, located
from agglearn.field.engines.local import LocalEngine, proposals_for
from agglearn.field.engines.protocol import KEPT_CHAINS, EngineOptions, Expectation, State
from agglearn.field.engines.spread import SpreadChains
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.runtime.random import Numbers
from agglearn.runtime.speech import option
from agglearn.spark.session import asked, open_session, require_package

Floats = npt.NDArray[np.float64]

BLOCKS = "spark.agglearn.blocks"  # a setting: how many blocks; by default one for each core
_STORAGE = "spark.checkpoint.dir"
_WORTH = 20.0
_MOST_MOVES = 50  # since blocks were kept: the weights of each stay on the driver's disk
_FEW = 4  # blocks that the driver sums by itself
_NAMED = 2  # states handed out that are there to go back to, as many as there are checkpoints


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
        A folder that all executors and the driver reach.
    """

    longest_step_mu = np.inf
    still = False

    def __init__(self, session: Any, plan: Plan, rows: float, numbers: Numbers, storage: str) -> None:
        self.layout, self.rows, self.numbers = plan.layout, rows, numbers
        self.kernel_seconds = 0.0
        self._context = session.sparkContext
        self._name, self._storage = plan.name, storage
        self._present = self._n_chains = plan.n_first
        self._plan = self._context.broadcast(plan)
        self._trail = Trail(self._plan, None, 0, ())
        self._named: list[str] = []
        began = time.perf_counter()
        self._blocks = self._deal_out(plan.blocks)
        self._since, self._cost = 0.0, time.perf_counter() - began

    def _deal_out(self, blocks: int) -> Any:
        """The blocks' numbers, cached by the executors that are to hold the blocks."""
        self._executors = self._at_work()
        numbers = self._context.parallelize(range(blocks), blocks).persist()
        asked(numbers.count)
        return numbers

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
        tally: Tally = summed(self._blocks.map(self._trail.count), Tally.plus)
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
        move = Move.of(iteration, self.numbers, self._present, self._n_chains, field, law)
        moves = (*self._trail.moves, self._context.broadcast(move))
        self._trail = Trail(self._plan, self._trail.folder, self._trail.step, moves)
        self._present = self._n_chains

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        self.numbers = numbers

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with so many chains, if there are fewer, from the next sweep on."""
        self._n_chains = max(self._n_chains, n_chains)

    def population(self, field: Field | None = None) -> SpreadChains:
        """The chains as they stand, until the engine has moved on by some iterations."""
        return SpreadChains(self.layout, _Standing(self._context, self._blocks, self._trail), self._present)

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Where the blocks are kept: the state itself stays with the executors."""
        folder = self._keep() if self._trail.moves or self._trail.folder is None else self._trail.folder
        if folder not in self._named:
            self._named.append(folder)
            for old in self._named[:-_NAMED]:
                _remove(old)
            self._named = self._named[-_NAMED:]
        numbers = [self._trail.step, self._present, self._plan.value.blocks]
        return {
            "folder": np.frombuffer(folder.encode(), np.uint8),
            "numbers": np.array(numbers, np.int64),
        }

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave, in this process or another."""
        folder = state["folder"].astype(np.uint8).tobytes().decode()
        step, self._present, blocks = (int(number) for number in state["numbers"])
        system, path = located(folder)
        if system.get_file_info(path).type.name != "Directory":
            raise StoreError(
                f"{folder}: the chains that were kept there are gone, begin anew in another folder"
            )
        if blocks != self._plan.value.blocks:
            self._blocks.unpersist()
            self._blocks = self._deal_out(blocks)
        self._n_chains, self._named = self._present, _up_to(folder)
        self._trail = Trail(self._plan, folder, step, ())

    def _keep(self) -> str:
        """Write the blocks where all executors reach them."""
        began, step = time.perf_counter(), self._trail.end
        folder = f"{self._storage}/{self._name}-{step:06d}"
        asked(self._blocks.map(partial(self._trail.keep, folder)).count)
        before = self._trail.folder
        self._trail = Trail(self._plan, folder, step, ())
        if before is not None and before not in self._named:
            _remove(before)
        if self._at_work() != self._executors:  # some came, or went and left their blocks to others
            self._blocks.unpersist()
            self._blocks = self._deal_out(self._plan.value.blocks)
        self._since, self._cost = 0.0, time.perf_counter() - began
        return folder


class _Standing:
    """Blocks as they stand at one moment."""

    def __init__(self, context: Any, blocks: Any, trail: Trail) -> None:
        self._context, self._blocks, self._trail = context, blocks, trail

    def ask(self, work: Callable[[LocalEngine], Any], add: Callable[[Any, Any], Any]) -> Any:
        """The sum of what each block says."""
        trail = self._trail
        return summed(self._blocks.map(lambda block: work(trail.stand(block))), add)

    def share(self, value: Any) -> Any:
        """Something that executors get as its ``value``."""
        return self._context.broadcast(value)


def summed(values: Any, add: Callable[[Any, Any], Any]) -> Any:
    """The sum of one value a block: in a tree, where the driver would be held up by them."""
    few = values.getNumPartitions() <= _FEW
    return asked(partial(values.reduce if few else values.treeReduce, add))


def open_spark(problem: Problem, start: Starter, options: EngineOptions) -> tuple[SparkEngine, Floats]:
    """Chains spread over the session's executors, and μ₀."""
    if problem.records is not None:
        raise InputError(f"records beside tables are in one place: fit them with {option('engine', 'local')}")
    session = open_session()
    require_package(session)
    context = session.sparkContext
    storage = session.conf.get(_STORAGE, None) or options.storage
    temporary = None
    if storage is None:
        if not context.master.startswith("local"):
            raise AgglearnError(
                f"chains on {context.master} need a folder that all its machines reach: set {_STORAGE}, or "
                f"{option('checkpoint')} where that is one"
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
        first=begun.first,
        n_first=begun.size,
        blocks=_n_blocks(session, begun.size),
    )
    engine = SparkEngine(session, plan, problem.rows, options.numbers, storage)
    if temporary is not None:
        weakref.finalize(engine, temporary.cleanup)
    return engine, begun.mu


def _n_blocks(session: Any, chains: int) -> int:
    """How many blocks: as the session is set, or one for each core; none without a chain."""
    setting = session.conf.get(BLOCKS, None)
    if setting is None:
        return int(min(session.sparkContext.defaultParallelism, chains))
    if not setting.isdecimal() or int(setting) < 1:
        raise InputError(f"{BLOCKS} {setting!r} is not a number of blocks: it must be at least 1")
    return min(int(setting), chains)


def _up_to(folder: str) -> list[str]:
    """A kept state and those before it in the same storage; what a killed run wrote after it is removed."""
    parent, _, own = folder.rpartition("/")
    system, path = located(parent)
    names = [
        found.base_name for found in system.get_file_info(fs.FileSelector(path)) if "-" in found.base_name
    ]
    for name in names:
        if _step(name) > _step(own):
            _remove(f"{parent}/{name}")
    return [f"{parent}/{name}" for name in sorted(names, key=_step) if _step(name) <= _step(own)]


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


def _remove(folder: str) -> None:
    system, path = located(folder)
    if system.get_file_info(path).type.name == "Directory":
        system.delete_dir(path)
