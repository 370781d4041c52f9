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
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from agglearn.tables.data import AggregatedData
from tests import fields
from tests.browser import browser as browser
from tests.servers import postgresql as postgresql
from tests.servers import spark as spark

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
    from agglearn.cli import run as run_here

    def run(*args: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["agglearn", *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run_here()
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
    return fields.random_tables
