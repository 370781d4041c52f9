"""Pictures of a model for a notebook, with matplotlib, made as scikit-learn's display objects are.

A display holds what it shows; ``plot`` draws it on axes (given, or new ones) and keeps them as ``ax_`` and
``figure_``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.report.characters import cut, visible

_LABEL = 32  # places of a name on an axis
_TICKS = 40  # names on an axis, of a feature of many values
_BAR_HEIGHT = 0.28  # inches


class _Display:
    """What all displays have."""

    ax_: Any
    figure_: Any

    def _axes(self, ax: Any, size: tuple[float, float]) -> Any:
        """Axes to draw on: those given, or new ones."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise InputError("plots need matplotlib: pip install 'agglearn[plots]'") from None
        if ax is None:
            _, ax = plt.subplots(figsize=size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def _label(text: str) -> str:
    # A dollar sign would begin a formula.
    return cut(visible(text), _LABEL).replace("$", r"\$")


class ImportanceDisplay(_Display):
    """How far each term moves the log-odds."""

    def __init__(self, terms: Sequence[str], spread: Sequence[float]) -> None:
        self.terms, self.spread = list(terms), list(spread)

    def plot(self, ax: Any = None) -> ImportanceDisplay:
        """Draw a bar for each term, the largest at the top."""
        axes = self._axes(ax, (7, 1 + _BAR_HEIGHT * len(self.terms)))
        places = np.arange(len(self.terms))
        axes.barh(places, self.spread)
        axes.set_yticks(places, [_label(term) for term in self.terms])
        axes.invert_yaxis()
        axes.set_xlabel("spread of the log-odds")
        return self


class EffectDisplay(_Display):
    """What each value of a feature adds to the log-odds.

    ``columns`` are those of ``effects``; with ``lower`` and ``upper`` among them intervals are drawn.
    """

    def __init__(self, feature: str, columns: Mapping[str, Any]) -> None:
        self.feature, self.columns = feature, dict(columns)

    def plot(self, ax: Any = None) -> EffectDisplay:
        """Draw steps over the bins of a number, or a point for each value, the most frequent ones first."""
        effect = np.asarray(self.columns["effect"], float)
        axes = self._axes(
            ax, (7, 4) if "low" in self.columns else (7, 1.2 + _BAR_HEIGHT * len(effect[:_TICKS]))
        )
        if "low" in self.columns:
            self._curve(axes, effect)
        else:
            self._points(axes, effect)
        return self

    def _ends(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
        if "lower" not in self.columns:
            return None
        return np.asarray(self.columns["lower"], float), np.asarray(self.columns["upper"], float)

    def _curve(self, axes: Any, effect: npt.NDArray[np.float64]) -> None:
        low, high = (np.asarray(self.columns[name], float) for name in ("low", "high"))
        bins = np.isfinite(low)
        edges = np.append(low[bins], high[bins][-1:])
        axes.stairs(effect[bins], edges, baseline=None, linewidth=2, color="C0")
        ends = self._ends()
        if ends is not None:
            axes.stairs(ends[1][bins], edges, baseline=ends[0][bins], fill=True, alpha=0.25, color="C0")
        for k in np.flatnonzero(~bins):
            axes.axhline(effect[k], linestyle=":", label=str(self.columns["value"][k]))
            axes.legend()
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set_xlabel(_label(self.feature))
        axes.set_ylabel("adds to the log-odds")

    def _points(self, axes: Any, effect: npt.NDArray[np.float64]) -> None:
        most = np.argsort(-np.asarray(self.columns["share"], float), kind="stable")[:_TICKS]
        shown = most[np.argsort(effect[most], kind="stable")]
        places = np.arange(len(shown))
        ends = self._ends()
        if ends is not None:
            axes.hlines(places, ends[0][shown], ends[1][shown], alpha=0.5)
        axes.plot(effect[shown], places, "o")
        axes.set_yticks(places, [_label(str(self.columns["value"][k])) for k in shown])
        axes.axvline(0, color="0.6", linewidth=0.8)
        axes.set_xlabel("adds to the log-odds")
        axes.set_title(_label(self.feature))


class InteractionDisplay(_Display):
    """What two features add to the log-odds together, beyond their single effects."""

    def __init__(
        self,
        first: str,
        second: str,
        first_values: Sequence[str],
        second_values: Sequence[str],
        interaction: npt.NDArray[np.float64],
    ) -> None:
        self.first, self.second = first, second
        self.first_values, self.second_values = list(first_values), list(second_values)
        self.interaction = interaction

    def plot(self, ax: Any = None) -> InteractionDisplay:
        """Draw a heat map: a row for each value of the first feature, a column for each of the second."""
        axes = self._axes(ax, (8, 6))
        most = float(np.abs(self.interaction).max()) or 1.0
        image = axes.imshow(self.interaction, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
        self.figure_.colorbar(image, ax=axes, label="adds to the log-odds")
        for axis, values in ((axes.yaxis, self.first_values), (axes.xaxis, self.second_values)):
            step = -(-len(values) // _TICKS)
            axis.set_ticks(range(0, len(values), step), [_label(v) for v in values[::step]])
        axes.tick_params(axis="x", rotation=90)
        axes.set_ylabel(_label(self.first))
        axes.set_xlabel(_label(self.second))
        return self
