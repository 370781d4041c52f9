"""The results page, made from stored results and never typed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Result


def show(results: Sequence[Result]) -> None:
    """Print results for a person watching."""
    for r in results:
        verdict = {True: "ok", False: "MISSED", None: ""}[r.passed]
        found = f"{_number(r.value)} {r.unit}" if r.value is not None else f"not measured: {r.note}"
        print(" ".join(f"  {r.what}: {found} {r.target} {verdict}".rstrip().split(" ")), flush=True)


def write_page(results: Path, subjects: Sequence[str], target: Path) -> None:
    """Write the page from the results on disk."""
    lines = [
        "# Benchmarks",
        "",
        "Ratios measured in one run, rivals taking turns, two threads, after compilation, medians of several",
        "runs. Made by `make bench`; `make bench-quick` runs small sizes in two minutes.",
    ]
    for subject in subjects:
        path = results / f"{subject}.json"
        if path.exists():
            lines += _section(subject, json.loads(path.read_text(encoding="utf-8")))
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _section(subject: str, document: dict[str, Any]) -> list[str]:
    machine = document["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine.items() if k not in ("processor", "cores"))
    lines = [
        "",
        f"## {subject.replace('_', ' ').capitalize()}",
        "",
        f"`python -m benchmarks {subject}` on {machine['processor']}, {machine['cores']} cores; {versions}.",
        "",
        "| what | measured | target | |",
        "|---|---|---|---|",
    ]
    for r in document["results"]:
        verdict = {True: "met", False: "**missed**", None: ""}[r["passed"]]
        lines.append(f"| {r['what']} | {_number(r['value'])} {r['unit']} | {r['target']} | {verdict} |")
    details = [r for r in document["results"] if r["detail"]]
    if details:
        lines += ["", "<details><summary>Details</summary>", ""]
        for r in details:
            parts = "; ".join(f"{k} {_show(v)}" for k, v in r["detail"].items())
            lines.append(f"- {r['what']}: {parts}")
        lines += ["", "</details>"]
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {_show(v)}" for k, v in value.items()) + ")"
    if isinstance(value, float | int) and not isinstance(value, bool):
        return _number(float(value))
    return str(value)
