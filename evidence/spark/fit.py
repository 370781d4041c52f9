"""An iteration on the ads shape, in as many tasks as the row says, and its parts, each measured by itself
with as many tasks: an empty job (*scheduling*), one whose tasks look at weights that were just broadcast,
less the empty one (*broadcast*), one whose tasks give back tallies as such a block counts them, less the
empty one (*sum*, in a tree and by as many shards as there are tasks), the time that blocks spend in kernels
and with their files (*kernels*, of the slowest block, times the turns that tasks take on two cores), and the
driver's step on the weights (*step*). To hold: an iteration of 1,000,000 chains in two tasks takes at most
twice the local one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from math import ceil, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from agglearn.datasets import AdsLog
from agglearn.field.engines.blocks import Trail
from agglearn.field.engines.protocol import Expectation
from agglearn.field.engines.spark import BLOCKS, TALLIES, SparkEngine, summed
from agglearn.field.engines.tallies import FEW, Tally
from agglearn.field.kernels.packed import pack
from agglearn.field.kernels.rounding import folded
from agglearn.field.problem import Problem, make_problem
from agglearn.train.loop import begin, iterate
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.train.state import FitState
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.spark.cluster import CORES, open_cluster
from evidence.splits import ads_tables
from evidence.timing import THREADS, machine, wall

TITLE = "An iteration"
_TASKS = (1, 2, 4, 8)
_TARGET = 2.0


@dataclass(frozen=True)
class Sizes:
    """Modalities and records of the ads log, chains, iterations that are timed, and the driver's memory."""

    modalities: int
    rows: int
    chains: int
    iterations: int
    memory: str


FULL, QUICK = Sizes(1000, 4_000_000, 1_000_000, 6, "4g"), Sizes(100, 20_000, 5_000, 2, "1g")


def cells(config: Sizes) -> list[Cell]:
    """The local engine, and a cell for each number of tasks."""
    settings = asdict(config)
    local = Cell("local", settings, partial(measure_local, config), again=True)
    return [
        local,
        *(
            Cell(f"{tasks}-tasks", {**settings, "tasks": tasks}, partial(measure, config, tasks), again=True)
            for tasks in _TASKS
        ),
    ]


@lru_cache(maxsize=1)
def _problem(config: Sizes) -> Problem:
    return make_problem(ads_tables(AdsLog(max_modalities=config.modalities, seed=1), config.rows))


def _settings(config: Sizes) -> FitSettings:
    training = TrainingSettings(growth=1)
    return FitSettings(
        chains=config.chains, iterations=config.iterations + 1, tolerance=0.0, training=training
    )


def measure_local(config: Sizes) -> Value:
    """Seconds of an iteration of the local engine."""
    problem = _problem(config)
    engine, mu0, state = begin(problem, _settings(config), THREADS)
    for _ in iterate(engine, mu0, problem, _settings(config), state, THREADS):
        pass
    layout = problem.layout
    return {
        "machine": machine(),
        "cells": layout.n_cells,
        "tables": layout.n_tables,
        "features": layout.n_features,
        "iteration": median(entry.seconds for entry in state.history[1:]),
    }


def measure(config: Sizes, tasks: int) -> Value:
    """Seconds of an iteration in so many tasks, and of its parts."""
    session = open_cluster(__name__, 2048 if config is FULL else 1024, config.memory)
    session.conf.set(BLOCKS, str(tasks))
    problem, settings = _problem(config), replace(_settings(config), engine="spark")
    engine, mu0, state = begin(problem, settings)
    assert isinstance(engine, SparkEngine)
    kernels: list[float] = []
    asking: list[float] = []
    expect = engine.expect

    def timed(*words: Any) -> Expectation:
        found: list[Expectation] = []
        asking.append(wall(lambda: found.append(expect(*words))))
        return found[0]

    vars(engine)["expect"] = timed
    for _ in iterate(engine, mu0, problem, settings, state, THREADS):
        kernels.append(engine.kernel_seconds - sum(kernels))
    turns = ceil(tasks / CORES)
    iterations = [entry.seconds for entry in state.history]
    return {
        "machine": machine(),
        "iteration": median(iterations[1:]),
        "kernels": turns * median(kernels[1:]),
        "step": median(whole - part for whole, part in zip(iterations[1:], asking[1:], strict=True)),
        **_parts(engine, tasks, state),
    }


def _parts(engine: SparkEngine, tasks: int, state: FitState) -> Value:
    """Seconds of a job that does nothing, what a broadcast and a sum add to it, and what goes each way."""
    context, layout = engine._context, engine.layout
    blocks = context.parallelize(range(tasks), tasks).persist()
    blocks.count()
    law, now = state.weights.law.rounded(), state.weights.now.rounded()
    weights = [folded(vector) for vector in (law.mu, law.theta, now.theta)]  # as a move has them
    engine._follow(state.weights.now, state.iteration, state.weights.law)
    everything: Tally = engine.ask(engine._trail, Trail.count, Tally.plus)
    rng = np.random.default_rng(0)
    d = rng.binomial(everything.d, 1 / tasks).astype(np.int32)  # as a block of so many counts
    c = (everything.c / np.maximum(everything.d, 1) * d).astype(np.int64)
    one = replace(everything, d=d, c=c)
    counted = context.broadcast(one)

    def told() -> None:
        shared = engine.share(*weights)
        summed(blocks.map(lambda block: float(shared.value[0][block])), lambda a, b: a + b)

    def came_back(shards: int) -> None:
        summed(blocks.map(lambda block: _own(counted.value)), Tally.plus, shards, TALLIES)

    empty = _median(lambda: summed(blocks, lambda a, b: a + b))
    return {
        "scheduling": empty,
        "broadcast": max(_median(told) - empty, 0.0),
        "sum": max(_median(lambda: came_back(1)) - empty, 0.0),
        "shards": max(_median(lambda: came_back(max(tasks, 2))) - empty, 0.0),
        "weights_bytes": sum(pack(vector).nbytes for vector in weights) / layout.n_cells,
        "tally_bytes": (pack(one.d).nbytes + pack(one.c).nbytes) / layout.n_cells,
    }


def _own(tally: Tally) -> Tally:
    """A tally whose arrays may be added to."""
    return replace(tally, d=tally.d.copy(), c=tally.c.copy())


def _median(work: Callable[[], Any]) -> float:
    return median([wall(work) for _ in range(4)][1:])


_PARTS = ("kernels", "broadcast", "sum", "shards", "step", "scheduling")
_TOLD = {"sum": "sum in a tree", "shards": "sum by shards"}


def section(results: Results, images: Path) -> list[str]:
    """The parts of an iteration, and what they come to at a size that needs a cluster."""
    if "local" not in results or "2-tasks" not in results:
        return []
    local = results["local"]
    rows = [["local engine, two threads", f"{local['iteration']:.2f}", "1.00", *[""] * len(_PARTS)]]
    for name in sorted(results.starting(""), key=lambda name: (len(name), name)):
        found = results[name]
        if name == "local":
            continue
        ratio = found["iteration"] / local["iteration"]
        seconds = [f"{found['iteration']:.2f}", f"{ratio:.2f}", *(f"{found[part]:.2f}" for part in _PARTS)]
        rows.append([name.replace("-", " "), *seconds])
    header = ["", "an iteration, s", "/ local", *(f"{_TOLD.get(part, part)}, s" for part in _PARTS)]
    two = results["2-tasks"]
    met = "met" if two["iteration"] <= _TARGET * local["iteration"] else "not met"
    shape = f"{local['cells']:,} cells, {local['tables']} tables, {local['features']} features"
    chains = results.settings("local")["chains"]
    return [
        f"{shape}; {chains:,} chains. At most {_TARGET:g} × local in two tasks: {met}. There a broadcast has "
        f"{two['weights_bytes']:.1f} bytes a cell, a tally {two['tally_bytes']:.1f}.",
        "",
        *table(header, rows),
        "",
        *projection(results),
    ]


@dataclass(frozen=True)
class Job:
    """A fit that needs a cluster."""

    chains: float = 1e8
    features: int = 100
    cells: float = 1e8
    cores: int = 16  # of a machine

    @property
    def tables(self) -> float:
        """All pairs."""
        return self.features * (self.features - 1) / 2


def projection(results: Results, job: Job | None = None) -> list[str]:
    """Seconds of an iteration of a large fit on more and more machines, from the rates measured."""
    if "8-tasks" not in results:
        return []
    job = job or Job()
    local, two, eight = (results[name] for name in ("local", "2-tasks", "8-tasks"))
    chains = results.settings("local")["chains"]
    # A draw looks at every table of its feature, and a chain is scored and counted in every table.
    a_chain_table = two["kernels"] * CORES / (chains * local["tables"])
    told = two["broadcast"] / local["cells"]
    counted = two["sum"] / (2 * local["cells"])  # the driver takes in two
    stepped = two["step"] * THREADS / local["cells"]
    a_task = max(eight["scheduling"] - two["scheduling"], 0.0) / 6
    rows = []
    for machines in (20, 50, 200):
        in_a_row = machines if machines <= FEW else 2 * ceil(sqrt(machines))
        stage = two["scheduling"] + a_task * machines
        seconds = {
            "kernels": a_chain_table * job.chains * job.tables / (machines * job.cores),
            "broadcast": told * job.cells,
            "sum in a tree": in_a_row * counted * job.cells,
            "sum by shards": 3 * counted * job.cells + stage,
            "step": stepped * job.cells / job.cores,
            "scheduling": stage,
        }
        slower = max(("sum in a tree", "sum by shards"), key=lambda part: seconds[part])
        taken = {part: value for part, value in seconds.items() if part != slower}
        total = sum(taken.values())
        cells = [f"{machines} machines", *(f"{value:,.1f}" for value in seconds.values())]
        rows.append(
            [*cells, f"{total:,.0f}", f"{500 * total / 3600:,.1f}", max(taken, key=taken.__getitem__)]
        )
    parts = ["kernels", "broadcast", "sum in a tree", "sum by shards", "step", "scheduling"]
    return [
        "### What a large fit would take",
        "",
        f"10⁹ records behind the tables, {job.chains:.0e} chains, {job.features} features in all "
        f"{job.tables:,.0f} pairs, {job.cells:.0e} cells, machines of {job.cores} cores with one block each "
        f"(`spark.task.cpus={job.cores}`: a block's kernels use all of them, and a machine holds one tally). "
        "The records have left their mark in the tables: an iteration does not know how many there were. "
        "From the rows above, where all machines are two cores and the network is one machine's memory:",
        "",
        f"- *kernels*: {a_chain_table * 1e9:.1f} ns a chain, table and core, times chains × tables / cores;",
        f"- *broadcast*: {told * 1e9:.0f} ns a cell; Spark's machines pass it on to each other, so their "
        "number hardly matters;",
        f"- *sum in a tree*: {counted * 1e9:.0f} ns a cell for a tally that is sent and added, √machines of "
        "them one after the other at each of two levels;",
        "- *sum by shards*: three such tallies (one out, one in, one to the driver), and one more stage;",
        f"- *step*: {stepped * 1e9:.1f} ns a cell and core of the driver;",
        f"- *scheduling*: {two['scheduling']:.2f} s a job and {a_task * 1e3:.0f} ms a task.",
        "",
        "An iteration takes the faster of the two sums:",
        "",
        *table(["", *(f"{part}, s" for part in parts), "iteration, s", "500, h", "largest"], rows),
    ]
