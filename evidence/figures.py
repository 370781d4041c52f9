"""One look for all figures of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

BLUE, ORANGE, GREEN, GREY = "#1f5fa8", "#d9772b", "#3b8f5a", "#6b6b6b"
_STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "agglearn",  # the same results give the same file
}


@contextmanager
def figure(target: Path, width: float, height: float) -> Iterator[Any]:
    """A figure of so many inches, saved where it is said once it is drawn."""
    with mpl.rc_context(_STYLE):
        drawing = plt.figure(figsize=(width, height), layout="constrained")
        yield drawing
        target.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None, dpi=160)
        plt.close(drawing)
