"""Plots of the results page, drawn from stored results alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from evidence.figures import BLUE, GREY, ORANGE, figure
from evidence.speed.targets import Result, number

_ROOM_BELOW = 0.04  # NLLH shown below the best: what comes before is the same rise on any scale
_BAR = 0.27  # inches a bar


def plot_targets(results: Sequence[Result], titles: Mapping[str, str], target: Path) -> None:
    """How far each target is met: the ratio of value and bound, turned so that more is better."""
    rows = [r for r in results if r.sense and r.value is not None and r.bound > 0 and r.value > 0]
    subjects = list(dict.fromkeys(r.subject for r in rows))
    height = _BAR * (len(rows) + 1.2 * len(subjects)) + 0.9
    with figure(target, 9, height) as drawing:
        axes = drawing.subplots()
        at, ticks, labels = 0.0, [], []
        for subject in subjects:
            axes.text(
                -0.01, at, titles[subject], weight="bold", ha="right", va="center", transform=_across(axes)
            )
            at += 1
            for r in (r for r in rows if r.subject == subject):
                margin = _margin(r)
                axes.barh(at, margin - 1, left=1, height=0.62, color=BLUE if margin >= 1 else ORANGE)
                text = f" {number(r.value or 0.0)} {r.unit} ({r.target})".replace(" /s", "/s")
                axes.text(max(margin, 1), at, text, va="center", fontsize=8.5, color=GREY)
                ticks.append(at)
                labels.append(r.what)
                at += 1
            at += 0.2
        axes.set_yticks(ticks, labels, fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(at - 0.4, -0.8)
        axes.set_xscale("log")
        margins = [_margin(r) for r in rows]
        axes.set_xlim(min(0.5, 0.8 * min(margins)), 6 * max(*margins, 2))
        axes.xaxis.set_major_formatter(_plain_ticks)
        axes.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        axes.axvline(1, color="black", lw=1)
        axes.grid(axis="x")
        axes.set_xlabel("times better than the target (left of 1: missed)")


def plot_time_to_quality(results: Sequence[Result], target: Path) -> None:
    """NLLH against time: a panel for each result that has curves, the first curve being ours."""
    rows = [r for r in results if r.curves]
    with figure(target, 1.2 + 4.2 * len(rows), 3.6) as drawing:
        panels = drawing.subplots(1, len(rows), squeeze=False)[0]
        for axes, r in zip(panels, rows, strict=True):
            best = max(score for curve in r.curves.values() for _, score in curve)
            first = min(seconds for curve in r.curves.values() for seconds, _ in curve)
            last = max(seconds for curve in r.curves.values() for seconds, _ in curve)
            for (name, curve), colour in zip(r.curves.items(), (BLUE, ORANGE), strict=False):
                few = len(curve) < 10
                seconds, score = curve[-1]
                axes.plot(*zip(*curve, strict=True), color=colour, lw=1.8, marker="o" if few else "", ms=4)
                axes.plot(
                    seconds, score, "o", color=colour, ms=8, label=f"{name}: {score:.4f} in {seconds:.2g} s"
                )
            if r.sense == "≥" and r.bound < 0:
                aim = list(r.curves.values())[1][-1][1] + r.bound
                axes.axhline(aim, color=GREY, lw=1, ls=(0, (4, 3)))
                axes.text(0.01, aim, "target", color=GREY, va="bottom", transform=_across(axes))
            axes.set_ylim(best - _ROOM_BELOW, best + 0.1 * _ROOM_BELOW)
            axes.set_xscale("log")
            axes.set_xlim(first, 1.3 * last)
            axes.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(_plain_ticks)
            axes.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
            axes.grid()
            axes.set_title(_sentence(r.what.split(",")[0]))
            axes.set_xlabel("seconds of fitting, after compilation")
            axes.legend(loc="lower right", fontsize=9.5)
        panels[0].set_ylabel("NLLH on held-out records")


def _margin(result: Result) -> float:
    value = result.value or 0.0
    return value / result.bound if result.sense == "≥" else result.bound / value


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plain_ticks(value: float, _: Any) -> str:
    return f"{value:g}"


def _across(axes: Any) -> Any:
    """Coordinates with x as a share of the width, and y in data."""
    return axes.get_yaxis_transform()
