"""What the tests share: the command line, the data at hand, the paper's toy records and some tables."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Table

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """What a run of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there fails the test."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Cli: TypeAlias = Callable[..., Run]


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run the command line in this process, which is fast."""
    from agglearn.cli import main

    def run(*args: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["agglearn", *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
        return Run(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def run_process() -> Cli:
    """Run the command line in a process of its own, as a user does."""

    def run(*args: object, **environment: str) -> Run:
        command = [str(Path(sys.executable).with_name("agglearn")), *map(str, args)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
        )
        return Run(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data beside the repository."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not (folder / "adult.data.gz").exists():
        pytest.skip(f"no data at hand: {folder} does not hold adult.data.gz")
    return folder


@pytest.fixture(scope="session")
def toy() -> Any:
    """The five records of the paper's Table 1, as an Arrow table."""
    return pa.table(
        {
            "x1": [1, 2, 1, 2, 1],
            "x2": ["B", "A", "B", "B", "A"],
            "x3": ["a", "b", "b", "a", "b"],
            "y": [1, 1, 0, 1, 0],
        }
    )


@pytest.fixture
def random_tables() -> Callable[..., AggregatedData]:
    """Make the pair tables of random records, counted by numpy alone."""

    def make(
        seed: int = 0, cards: tuple[int, ...] = (3, 4, 2), rows: int = 500, labels: tuple[str, ...] = ("y",)
    ) -> AggregatedData:
        rng = np.random.default_rng(seed)
        names = [f"f{i}" for i in range(len(cards))]
        codes = np.array([rng.integers(0, m, rows) for m in cards])
        y = rng.integers(0, 2, (len(labels), rows))
        features = tuple(
            Categorical(name=n, values=tuple(f"{n}v{v}" for v in range(m)), missing=False)
            for n, m in zip(names, cards, strict=True)
        )
        tables: dict[tuple[str, ...], Table] = {}
        for i, j in combinations(range(len(cards)), 2):
            counts = np.zeros((cards[i], cards[j]), np.int64)
            sums = np.zeros((len(labels), cards[i], cards[j]), np.int64)
            np.add.at(counts, (codes[i], codes[j]), 1)
            for layer, positive in zip(sums, y, strict=True):
                np.add.at(layer, (codes[i], codes[j]), positive)
            tables[names[i], names[j]] = Table((names[i], names[j]), counts, sums)
        return AggregatedData(
            schema=Schema(features, tuple(Label(name) for name in labels)),
            tables=tables,
            rows=rows,
            positives=tuple(int(p) for p in y.sum(axis=1)),
        )

    return make
