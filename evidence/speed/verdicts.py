"""The subject whose sections measure this machine: what they found is judged by targets.

A section's module has ``run(config)``, which gives results to judge, in place of cells and lines of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evidence.page import picture, table
from evidence.runner import Cell, Results, Value
from evidence.speed.sizes import FULL, QUICK, Sizes
from evidence.speed.targets import Result, number
from evidence.subject import Subject
from evidence.timing import machine

_CELL = "measured"
_TARGETS = "benchmarks-targets.svg"
_CURVES = {  # of sections that have them: what the plot shows
    "training": "NLLH on held-out records against seconds of fitting, for the field and the logistic",
    "ads_shape": "NLLH on fresh records against seconds of fitting, Metropolis and exact Gibbs",
}


class Measured(Subject):
    """A subject of measurements: one cell a section, measured anew whenever it is asked for."""

    def sizes(self, section: str, quick: bool) -> Sizes:
        """The sizes, which all sections share."""
        return QUICK if quick else FULL

    def cells(self, section: str, quick: bool, cases: int | None = None) -> list[Cell]:
        """All that a section measures, in one run."""
        config = self.sizes(section, quick)

        def measure() -> Value:
            results = self.module(section).run(config)
            return {"machine": machine(), "results": [r.to_json() for r in results]}

        return [Cell(_CELL, asdict(config), measure, again=True)]

    def told(self, section: str, results: Results, quick: bool) -> list[str]:
        """What was measured; small sizes are not judged."""
        return [_in_a_line(r, judge=not quick) for r in _measured(results)] if _CELL in results else []

    def opening(self, stored: Mapping[str, Results], images: Path) -> list[str]:
        """How many targets are met, and a plot of all."""
        from evidence.speed.plots import plot_targets

        found = [r for results in stored.values() for r in _measured(results)]
        titles = {section: self.module(section).TITLE for section in stored}
        plot_targets(found, titles, images / _TARGETS)
        return [
            *super().opening(stored, images),
            "",
            *_summary(found),
            *picture(_TARGETS, "How many times better than its target each measurement is"),
            "Differences of NLLH are no ratios, and stand only in the table of their section.",
        ]

    def body(self, section: str, results: Results, images: Path) -> list[str]:
        """What was measured on what, each beside its target."""
        found, on = _measured(results), results[_CELL]["machine"]
        versions = ", ".join(f"{k} {v}" for k, v in on.items() if k not in ("processor", "cores"))
        rows = [(r.what, _value(r), r.target, _verdict(r), r.setting) for r in found]
        lines = [
            f"`{self.command(section)}` on {on['processor']}, {on['cores']} cores; {versions}.",
            "",
            *table(("what", "measured", "target", "", "on"), rows, numbers=False),
        ]
        if any(r.curves for r in found):
            lines += _curves(section, found, images)
        return lines + _numbers_behind(found)


def _measured(results: Results) -> list[Result]:
    return [Result(**r) for r in results[_CELL]["results"]]


def _in_a_line(result: Result, judge: bool) -> str:
    parts = [f"{result.what}: {_value(result)}"]
    if judge and result.passed is not None:
        parts += [result.target, "ok" if result.passed else "MISSED"]
    if result.setting:
        parts.append(f"({result.setting})")
    return " ".join(parts)


def _summary(results: Sequence[Result]) -> list[str]:
    judged = [r for r in results if r.passed is not None]
    missed = [r for r in judged if not r.passed]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets are met"
    if not missed:
        return [f"{text}."]
    return [f"{text}; missed:", "", *(f"- {r.what}: {_value(r)}, target {r.target}" for r in missed)]


def _curves(section: str, results: Sequence[Result], images: Path) -> list[str]:
    from evidence.speed.plots import plot_time_to_quality

    name = f"benchmarks-{section}.svg"
    plot_time_to_quality(results, images / name)
    return picture(name, _CURVES[section])[:-1]


def _numbers_behind(results: Sequence[Result]) -> list[str]:
    details = [r for r in results if r.detail]
    if not details:
        return []
    lines = ["", "<details><summary>Numbers behind these</summary>", ""]
    for r in details:
        parts = "; ".join(f"{k} {_show(v)}" for k, v in r.detail.items())
        lines.append(f"- {r.what}: {parts}")
    return [*lines, "", "</details>"]


def _verdict(result: Result) -> str:
    return {True: "met", False: "**missed**", None: ""}[result.passed]


def _value(result: Result) -> str:
    if result.value is None:
        return f"not measured: {result.note}"
    return f"{number(result.value)} {result.unit}".strip()


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {_show(v)}" for k, v in value.items()) + ")"
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(float(value))
    return str(value)
