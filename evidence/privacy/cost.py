"""What drawing noise takes: numbers through `add_noise`, which calls OpenDP in one process or in two, on a
machine with two cores that does nothing else. The target is that for ten million numbers two take at most
half of the 200 s that OpenDP takes on one thread at 20 µs a number.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from agglearn.privacy.mechanism import add_noise, measurement
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import wall

TITLE = "What noise costs"

_SCALE = 40.3


@dataclass(frozen=True)
class Sizes:
    """Numbers to draw."""

    numbers: tuple[int, ...]


FULL = Sizes((1_000_000, 10_000_000))
QUICK = Sizes((100_000,))


def cells(config: Sizes) -> list[Cell]:
    """Each size with one process and with two, and OpenDP alone in this one."""
    return [
        Cell(
            f"{how}-{n}",
            {"how": how, "numbers": n, "scale": _SCALE},
            partial(measure, how, n),
            again=True,
        )
        for n in config.numbers
        for how in ("opendp", "1", "2")
    ]


def measure(how: str, n: int) -> Value:
    """Seconds, and how busy the machine was with other things."""
    zeros = np.zeros(n, np.int64)
    if how == "opendp":
        noisy = measurement("gaussian", _SCALE)
        seconds = wall(lambda: noisy(zeros.tolist()))
    else:
        seconds = wall(lambda: add_noise(zeros, "gaussian", _SCALE, processes=int(how)))
    return {"seconds": seconds, "load": os.getloadavg()[0], "cores": os.cpu_count()}


def section(results: Results, images: Path) -> list[str]:
    """A row a size and way, beside OpenDP alone."""
    rows = []
    for name in results:
        settings, found = results.settings(name), results[name]
        alone = f"opendp-{settings['numbers']}"
        ratio = found["seconds"] / results[alone]["seconds"] if alone in results else float("nan")
        told = {"opendp": "OpenDP alone", "1": "one process", "2": "two processes"}[settings["how"]]
        rows.append(
            [
                f"{settings['numbers']:,}, {told}",
                f"{found['seconds']:.1f}",
                f"{1e6 * found['seconds'] / settings['numbers']:.1f}",
                f"{ratio:.2f}",
                f"{found['load']:.1f}",
            ]
        )
    return table(["numbers", "seconds", "µs a number", "beside OpenDP alone", "load"], rows)
