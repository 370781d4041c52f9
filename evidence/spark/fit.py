"""An iteration on the ads shape, in as many tasks as the row says, and its parts, each measured by itself
with as many tasks: an empty job (*scheduling*), one whose tasks look at weights that were just broadcast,
less the empty one (*broadcast*), one whose tasks give back tallies of zeros, less the empty one (*sum*), and
the time that blocks spend in kernels and with their files (*kernels*, of the slowest block, times the turns
that tasks take on two cores). To hold: an iteration of 1,000,000 chains in two tasks takes at most twice the
local one.
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
from agglearn.field.engines.blocks import Move, Tally
from agglearn.field.engines.local import Moves
from agglearn.field.engines.spark import BLOCKS, SparkEngine, summed
from agglearn.field.problem import Problem, make_problem
from agglearn.runtime.random import Numbers
from agglearn.spark.session import open_session
from agglearn.train.loop import begin, iterate
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.splits import ads_tables
from evidence.timing import THREADS, machine, wall

TITLE = "An iteration"
_TASKS = (1, 2, 4, 8)
_CORES = 2
_WEIGHTS, _TALLY = 24, 12  # bytes a cell
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
    session = open_session(
        f"local-cluster[{_CORES},1,{2048 if config is FULL else 1024}]",
        {"spark.driver.memory": config.memory, "spark.driver.maxResultSize": "0"},
    )
    session.conf.set(BLOCKS, str(tasks))
    problem, settings = _problem(config), replace(_settings(config), engine="spark")
    engine, mu0, state = begin(problem, settings)
    assert isinstance(engine, SparkEngine)
    kernels: list[float] = []
    for _ in iterate(engine, mu0, problem, settings, state, THREADS):
        kernels.append(engine.kernel_seconds - sum(kernels))
    turns = ceil(tasks / _CORES)
    return {
        "machine": machine(),
        "iteration": median(entry.seconds for entry in state.history[1:]),
        "kernels": turns * median(kernels[1:]),
        **_parts(session.sparkContext, tasks, problem.layout.n_cells),
    }


def _parts(context: Any, tasks: int, n_cells: int) -> Value:
    """Seconds of a job that does nothing, and what a broadcast and a sum add to it."""
    blocks = context.parallelize(range(tasks), tasks).persist()
    blocks.count()
    rng = np.random.default_rng(0)
    mu, theta_law, theta = (rng.normal(size=n_cells) for _ in range(3))

    def told() -> None:
        move = context.broadcast(Move(0, Numbers(0), 0, 0, mu, theta_law, 0.0, False, theta, 0.0))
        summed(blocks.map(lambda block: float(move.value.mu[block])), lambda a, b: a + b)

    empty = _median(lambda: summed(blocks, lambda a, b: a + b))
    zeros = partial(_zeros, n_cells)
    return {
        "scheduling": empty,
        "broadcast": max(_median(told) - empty, 0.0),
        "sum": max(_median(lambda: summed(blocks.map(zeros), Tally.plus)) - empty, 0.0),
    }


def _zeros(n_cells: int, block: int) -> Tally:
    return Tally(np.zeros(n_cells, np.int32), np.zeros(n_cells, np.int64), 0, 0, 1, Moves(1, 0, 0, 0), 0.0)


def _median(work: Callable[[], Any]) -> float:
    return median([wall(work) for _ in range(4)][1:])


def section(results: Results, images: Path) -> list[str]:
    """The parts of an iteration, and what they come to at a size that needs a cluster."""
    if "local" not in results or "2-tasks" not in results:
        return []
    local = results["local"]
    parts = ("kernels", "broadcast", "sum", "scheduling")
    rows = [["local engine, two threads", f"{local['iteration']:.2f}", "1.00", "", "", "", ""]]
    for name in sorted(results.starting(""), key=lambda name: (len(name), name)):
        found = results[name]
        if name == "local":
            continue
        ratio = found["iteration"] / local["iteration"]
        rows.append(
            [
                name.replace("-", " "),
                f"{found['iteration']:.2f}",
                f"{ratio:.2f}",
                *(f"{found[part]:.2f}" for part in parts),
            ]
        )
    header = ["", "an iteration, s", "/ local", *(f"{part}, s" for part in parts)]
    met = "met" if results["2-tasks"]["iteration"] <= _TARGET * local["iteration"] else "not met"
    shape = f"{local['cells']:,} cells, {local['tables']} tables, {local['features']} features"
    chains = results.settings("local")["chains"]
    return [
        f"{shape}; {chains:,} chains. At most {_TARGET:g} × local in two tasks: {met}.",
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
    job = job or Job()
    local, two, eight = (results[name] for name in ("local", "2-tasks", "8-tasks"))
    chains = results.settings("local")["chains"]
    # A draw looks at every table of its feature, and a chain is scored and counted in every table.
    a_chain_table = two["kernels"] * _CORES / (chains * local["tables"])
    broadcast_rate = _WEIGHTS * local["cells"] / max(two["broadcast"], 1e-9)
    sum_rate = 2 * _TALLY * local["cells"] / max(two["sum"], 1e-9)
    a_task = max(eight["scheduling"] - two["scheduling"], 0.0) / 6
    rows = []
    for machines in (20, 50, 200):
        seconds = {
            "kernels": a_chain_table * job.chains * job.tables / (machines * job.cores),
            "broadcast": _WEIGHTS * job.cells / broadcast_rate,
            "sum": 2 * ceil(sqrt(machines)) * _TALLY * job.cells / sum_rate,
            "scheduling": two["scheduling"] + a_task * machines,
        }
        largest = max(seconds, key=lambda part: seconds[part])
        rows.append(
            [
                f"{machines} machines",
                *(f"{value:,.1f}" for value in seconds.values()),
                f"{sum(seconds.values()):,.0f}",
                f"{500 * sum(seconds.values()) / 3600:,.1f}",
                largest,
            ]
        )
    return [
        "### What a large fit would take",
        "",
        f"10⁹ records behind the tables, {job.chains:.0e} chains, {job.features} features in all "
        f"{job.tables:,.0f} pairs, {job.cells:.0e} cells, machines of {job.cores} cores with one block each "
        f"(`spark.task.cpus={job.cores}`: a block's kernels use all of them, and a machine holds one tally). "
        "The records have left their mark in the tables: an iteration does not know how many there were. "
        "From the rows above:",
        "",
        f"- *kernels*: {a_chain_table * 1e9:.1f} ns a chain, table and core, times chains × tables / cores;",
        f"- *broadcast*: {broadcast_rate / 1e6:,.0f} MB/s for {_WEIGHTS} bytes a cell; Spark's machines pass "
        "it on to each other, so their number hardly matters;",
        f"- *sum*: {sum_rate / 1e6:,.0f} MB/s for {_TALLY} bytes a cell, √machines tallies at each of two "
        "levels;",
        f"- *scheduling*: {two['scheduling']:.2f} s a job and {a_task * 1e3:.0f} ms a task.",
        "",
        *table(
            [
                "",
                "kernels, s",
                "broadcast, s",
                "sum, s",
                "scheduling, s",
                "iteration, s",
                "500, h",
                "largest",
            ],
            rows,
        ),
    ]
