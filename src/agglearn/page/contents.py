"""All that a report says of a model, as plain values, in the order in which it is said."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agglearn.errors import AgglearnError
from agglearn.model.model import Model
from agglearn.page import learnt, quality
from agglearn.page.whatif import whatif
from agglearn.records.sources import Source
from agglearn.report.html import fragment
from agglearn.report.json import plain
from agglearn.tables.data import AggregatedData
from agglearn.trust.diagnosis import diagnose
from agglearn.trust.findings import suggestion_blocks
from agglearn.trust.intervals import Posterior, check_level, model_posterior
from agglearn.trust.kept import kept_posterior
from agglearn.trust.suggest import suggest_tables

_SUGGESTED_CELLS = 100_000
_SUGGESTED = 5
_LIBRARIES = ("numpy", "numba", "pyarrow", "scipy")

Progress = Callable[[str], None]


def report_contents(
    model: Model,
    name: str,
    tables: AggregatedData | None = None,
    valid: AggregatedData | Source | None = None,
    *,
    compare: bool = False,
    level: float = 0.9,
    folder: str | Path | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress = lambda doing: None,
) -> dict[str, Any]:
    """What a report says: the parameters are those of :func:`agglearn.page.write.write_report`."""
    check_level(level)
    progress("judging")
    judged: dict[str, Any] | None = None
    fitted_to = tables if compare else None
    doubts: list[str] = []
    if isinstance(valid, AggregatedData):
        judged, score = quality.on_tables(model, valid, fitted_to, threads, seed)
        doubts = [note.text for note in score.document().warnings]
    elif valid is not None:
        judged = quality.on_records(model, valid, fitted_to, threads)
    progress("intervals")
    posterior, no_intervals = _posterior(model, folder, threads, seed, progress)
    progress("what was learnt")
    found = model.explanation()
    return plain(  # type: ignore[no-any-return]
        {
            "name": name,
            "label": vars(model.label),
            "facts": _facts(model, tables),
            "features": [
                {"name": f.name, "kind": f.kind, "values": f.n_modalities} for f in model.schema.features
            ],
            "quality": judged,
            "doubts": doubts,
            "level": level,
            "no_intervals": no_intervals,
            "base": found.parts.base,
            "terms": learnt.terms(found),
            "effects": learnt.effects(model, posterior, level),
            "pairs": learnt.pairs(model, tables),
            "whatif": whatif(model, posterior, level),
            "trust": None if tables is None else _trust(model, tables, threads, seed, progress),
            "history": _history(model),
            "fit": {
                "iterations": model.record.iterations,
                "chains": model.record.chains,
                "seconds": model.record.seconds,
                "stopped_because": model.record.stopped_because,
            },
            "reproduce": _reproduce(model),
        }
    )


def _facts(model: Model, tables: AggregatedData | None) -> list[list[str]]:
    record = model.record
    positive = model.label.positive
    label = model.label.name if positive is None else f"{model.label.name} = {positive}"
    facts = [
        ["Predicts", label],
        ["Learnt from", f"{len(model.tables):,} tables of {len(model.schema.features):,} features"],
        ["Records behind them", f"{model.rows:,.0f}"],
        ["Positive", f"{model.positives:,.0f} ({model.positives / model.rows:.2%})"],
        ["Weights", f"{model.layout.n_cells:,}"],
        ["Noise on the tables", _noise(model)],
    ]
    if tables is not None:
        facts.append(["The tables", tables.summary])
        facts.extend(_privacy(tables))
    if record.choice is not None:
        facts.append(["Penalties", f"chosen on held-out tables ({record.choice.folds} folds)"])
    return facts


def _privacy(tables: AggregatedData) -> Iterator[list[str]]:
    """What private tables promise, what was spent, and what the promise leaves out."""
    promise = tables.promise
    if promise is None:
        return
    yield ["Privacy", str(promise)]
    spent = (f"{s.what} ({s.share:.0%}, {s.mechanism} noise of scale {s.scale:.4g})" for s in promise.spent)
    yield ["Spent on", ", ".join(spent)]
    if promise.schema == "assumed public":
        yield ["Not in the promise", "vocabularies and bins, which are only assumed to be public"]


def _noise(model: Model) -> str:
    noise = model.record.noise
    if noise is None or not (noise.counts.any() or noise.sums.any()):
        return "none declared"
    low, high = float(noise.counts.min()), float(noise.counts.max())
    spread = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return f"standard deviation {spread} on each count"


def _posterior(
    model: Model, folder: str | Path | None, threads: int | None, seed: int, progress: Progress
) -> tuple[Posterior | None, str]:
    """What the tables leave open, or why that is not known."""
    try:
        if folder is not None:
            return kept_posterior(model, folder, seed=seed, threads=threads, say=progress), ""
        return model_posterior(model, seed=seed, threads=threads), ""
    except AgglearnError as error:
        return None, str(error)


def _trust(
    model: Model, tables: AggregatedData, threads: int | None, seed: int, progress: Progress
) -> dict[str, Any]:
    """The diagnosis as a fragment of a page, with further tables worth asking for."""
    progress("diagnosis")
    found = diagnose(model, tables, threads=threads, seed=seed)
    progress("further tables")
    further = suggest_tables(model, tables, _SUGGESTED_CELLS, 3, _SUGGESTED, threads=threads, seed=seed)
    document = found.document().followed_by(*suggestion_blocks(further, _SUGGESTED_CELLS))
    return {"html": fragment(document), "warnings": [note.text for note in found.warnings]}


def _history(model: Model) -> list[dict[str, Any]]:
    keys = (
        "iteration",
        "misfit_d",
        "misfit_c",
        "moves",
        "acceptance",
        "moved",
        "valid_nllh",
        "valid_nllh_se",
    )
    every = max(1, len(model.record.history) // 400)
    entries = [e for e in model.record.history if e.iteration % every == 0 or e.valid_nllh is not None]
    return [{key: value for key in keys if (value := getattr(entry, key)) is not None} for entry in entries]


def _reproduce(model: Model) -> list[list[str]]:
    settings = model.record.settings.to_json()
    training = settings.pop("training")
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return [
        ["agglearn", version("agglearn")],
        ["Python", f"{platform.python_version()}, {versions}"],
        ["Fingerprint of the tables", model.record.tables],
        ["Settings", ", ".join(f"{k}={v}" for k, v in settings.items())],
        ["Training", ", ".join(f"{k}={v}" for k, v in training.items())],
        ["Penalty it ended with", f"λ_θ {model.record.lambda_theta:.4g}, λ_μ {model.record.lambda_mu:.4g}"],
    ]
