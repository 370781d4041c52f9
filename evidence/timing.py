"""Timing: medians of several warm runs, peak memory of a fresh process, what machine this is."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any

THREADS = 2


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
