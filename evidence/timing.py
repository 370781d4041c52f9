"""Measuring: medians of several warm runs, peak memory of a fresh process, what machine this is."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any

THREADS = 2


@dataclass
class Result:
    """One thing measured.

    Attributes
    ----------
    subject, what, setting
        The file that measured it, what it is in a few words, and on what sizes.
    value
        What the target speaks of, mostly a ratio measured in one run; None where it could not be measured.
    unit
        Of the value and of the bound.
    sense, bound
        The target: ``≥`` or ``≤``, and a number; none where the sense is empty.
    detail
        Numbers behind the value.
    curves
        Lines to plot, as (x, y) points by name.
    note
        Why the value could not be measured.
    """

    subject: str
    what: str
    value: float | None
    unit: str = "×"
    setting: str = ""
    sense: str = ""
    bound: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the target was met; None where there is none, or no value."""
        if self.value is None or not self.sense:
            return None
        return self.value >= self.bound if self.sense == "≥" else self.value <= self.bound

    @property
    def target(self) -> str:
        """The target as text."""
        return f"{self.sense} {number(self.bound)}" if self.sense else ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def number(value: float) -> str:
    """A number to read."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def at_least(
    subject: str, what: str, value: float, bound: float, unit: str = "×", setting: str = "", **detail: Any
) -> Result:
    """A result that should be at least ``bound``."""
    return Result(subject, what, value, unit, setting, "≥", bound, detail)


def at_most(
    subject: str, what: str, value: float, bound: float, unit: str = "×", setting: str = "", **detail: Any
) -> Result:
    """A result that should be at most ``bound``."""
    return Result(subject, what, value, unit, setting, "≤", bound, detail)


def plain(subject: str, what: str, value: float, unit: str, setting: str = "", **detail: Any) -> Result:
    """A result that has no target."""
    return Result(subject, what, value, unit, setting, detail=detail)


def not_measured(subject: str, what: str, why: str) -> Result:
    """A thing that could not be measured here."""
    return Result(subject, what, None, "", note=" ".join(why.split()))


def wall(work: Callable[[], Any]) -> float:
    """Wall time of one run."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """Median wall time of several runs, after one that is not counted."""
    return in_turns([work], repeat)[0]


def each_warm(works: Sequence[Callable[[], Any]], repeat: int = 3) -> list[float]:
    """Median wall times of rivals one after the other, each warm: none begins with another's memory."""
    return [seconds(work, repeat) for work in works]


def in_turns(works: Sequence[Callable[[], Any]], repeat: int = 3) -> list[float]:
    """Median wall times of rivals that take turns, so that a slow moment of the machine hits all."""
    return own_times([partial(wall, work) for work in works], repeat)


def own_times(works: Sequence[Callable[[], float]], repeat: int = 3) -> list[float]:
    """The same for rivals that each return the seconds to count, where part of their work is not."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(repeat + 1):
        for k, work in enumerate(works):
            taken = work()
            if turn:  # the first turn warms up
                times[k].append(taken)
    return [median(t) for t in times]


def in_process(code: str) -> dict[str, Any]:
    """Run code in a fresh process; it leaves its findings in ``result``. Adds its peak memory and time."""
    script = (
        "import json, re, sys, time\nresult = {}\nbegan = time.perf_counter()\n"
        + code
        + "\nresult.setdefault('seconds', time.perf_counter() - began)"
        # The kernel's own high-water mark: getrusage would count the parent's memory before exec.
        + "\npeak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())"
        + "\nresult['peak_bytes'] = int(peak[1]) * 1024"
        + "\nprint(json.dumps(result))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    packages = ("agglearn", "numpy", "numba", "pyarrow", "scikit-learn", "duckdb", "polars")
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
