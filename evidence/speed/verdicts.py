"""The results page, made from stored results and never typed by hand."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.timing import Result, machine, number

_IMAGES = "images"
_TARGETS = "benchmarks-targets.svg"
_CURVES = {  # of subjects that have them: what the plot shows
    "training": "NLLH on held-out records against seconds of fitting, for the field and the logistic",
    "ads_shape": "NLLH on fresh records against seconds of fitting, Metropolis and exact Gibbs",
}


def show(results: Sequence[Result], judge: bool) -> None:
    """Print results for a person watching, judged by their targets or not."""
    for r in results:
        parts = [f"  {r.what}: {_value(r)}"]
        if judge and r.passed is not None:
            parts += [r.target, "ok" if r.passed else "MISSED"]
        if r.setting:
            parts.append(f"({r.setting})")
        print(" ".join(parts), flush=True)


def store_results(folder: Path, subject: str, about: str, results: Sequence[Result]) -> None:
    """Keep what was measured, with what it was measured on and what the subject is about."""
    folder.mkdir(exist_ok=True)
    document = {
        "about": inspect.cleandoc(about),
        "machine": machine(),
        "results": [r.to_json() for r in results],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / f"{subject}.json").write_text(text + "\n", encoding="utf-8")


def write_page(folder: Path, titles: Mapping[str, str], target: Path) -> None:
    """Write the page and its plots from the results on disk."""
    documents = {
        subject: json.loads(path.read_text(encoding="utf-8"))
        for subject in titles
        if (path := folder / f"{subject}.json").exists()
    }
    results = {subject: [Result(**r) for r in d["results"]] for subject, d in documents.items()}
    _draw(results, titles, target.parent / _IMAGES)
    lines = [
        "# Benchmarks",
        "",
        "Ratios measured in one run, rivals side by side, two threads, after compilation, medians of several",
        "runs. This page and its plots are made by `make bench` from what it measured; `make bench-quick`",
        "runs small sizes in two minutes.",
        "",
        *_summary([r for part in results.values() for r in part]),
        "",
        f"![How many times better than its target each measurement is]({_IMAGES}/{_TARGETS})",
        "",
        "Differences of NLLH are no ratios, and stand only in the table of their section.",
    ]
    for subject, document in documents.items():
        lines += _section(subject, titles[subject], document, results[subject])
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _draw(results: Mapping[str, Sequence[Result]], titles: Mapping[str, str], folder: Path) -> None:
    from evidence.speed.plots import plot_targets, plot_time_to_quality

    plot_targets([r for part in results.values() for r in part], titles, folder / _TARGETS)
    for subject in _CURVES:
        if any(r.curves for r in results.get(subject, ())):
            plot_time_to_quality(results[subject], folder / f"benchmarks-{subject}.svg")


def _summary(results: Sequence[Result]) -> list[str]:
    judged = [r for r in results if r.passed is not None]
    missed = [r for r in judged if not r.passed]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets are met"
    if not missed:
        return [f"{text}."]
    return [f"{text}; missed:", "", *(f"- {r.what}: {_value(r)}, target {r.target}" for r in missed)]


def _section(subject: str, title: str, document: dict[str, Any], results: Sequence[Result]) -> list[str]:
    machine = document["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine.items() if k not in ("processor", "cores"))
    lines = [
        "",
        f"## {title}",
        "",
        document["about"],
        "",
        f"`python -m evidence.speed {subject}` on {machine['processor']}, {machine['cores']} cores; {versions}.",
        "",
        "| what | measured | target | | on |",
        "|---|---|---|---|---|",
    ]
    for r in results:
        verdict = {True: "met", False: "**missed**", None: ""}[r.passed]
        lines.append(f"| {r.what} | {_value(r)} | {r.target} | {verdict} | {r.setting} |")
    if any(r.curves for r in results):
        lines += ["", f"![{_CURVES[subject]}]({_IMAGES}/benchmarks-{subject}.svg)"]
    details = [r for r in results if r.detail]
    if details:
        lines += ["", "<details><summary>Numbers behind these</summary>", ""]
        for r in details:
            parts = "; ".join(f"{k} {_show(v)}" for k, v in r.detail.items())
            lines.append(f"- {r.what}: {parts}")
        lines += ["", "</details>"]
    return lines


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
