"""Features that determine one another hardly move one at a time, and are redrawn together ([method](
method.md#training)). The chains of the default fit of the first split, watched for 48 sweeps at its weights,
without such redraws and with them: independent draws that a sweep of all chains is worth by the log-odds and
by the slowest feature, and how many of them a second gives. *Together* are the groups, of how many features,
and how many of the proposals are accepted.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import agglearn
from agglearn.field.groups import find_groups
from agglearn.field.problem import Problem
from agglearn.model.draw import moving
from agglearn.model.model import Model
from agglearn.train.mains import with_mains
from agglearn.trust.mixing import watch
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.sets import SETS, Sizes

TITLE = "How chains move"
FULL, QUICK = replace(sets.FULL, splits=1), sets.QUICK
_TIMED = 10  # sweeps


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set."""
    return sets.fitted(config, measure)


def measure(name: str, seed: int, config: Sizes) -> Value:
    """Chains with redraws of groups and without."""
    parts = sets.split(name, seed, config)
    model = agglearn.fit(parts.data, threads=THREADS)
    tables = with_mains(parts.problem)
    groups = find_groups(tables.layout, tables.d)
    found: Value = {
        "features": len(parts.schema.features),
        "groups": np.diff(groups.first).tolist(),
    }
    for word, together in (("alone", False), ("together", True)):
        settings = model.record.settings
        how = replace(settings, training=replace(settings.training, groups=together))
        found[word] = _watched(replace(model, record=replace(model.record, settings=how)), tables)
    return found


def _watched(model: Model, tables: Problem) -> Value:
    mixing = watch(model, tables, [tables.layout], 0, THREADS).mixing
    engine = moving(model, tables, threads=THREADS)
    engine.sweep(model.field, 0)
    began = time.perf_counter()
    infos = [engine.sweep(model.field, 1 + k) for k in range(_TIMED)]
    sweep = (time.perf_counter() - began) / _TIMED
    slowest = mixing.features[0]
    return {
        "chains": mixing.chains,
        "sweep": sweep,
        "score_draws": mixing.score.draws / mixing.sweeps,
        "slowest": slowest.name,
        "slowest_draws": slowest.draws / mixing.sweeps,
        "accepted": float(np.mean([info.get("group_acceptance", 0.0) for info in infos])),
    }


def section(results: Results, images: Path) -> list[str]:
    """Draws a sweep and a second, before and after."""
    rows = []
    for cell, found in results.items():
        name = cell.rsplit("-seed", 1)[0]
        alone, together, groups = found["alone"], found["together"], found["groups"]
        gains = [
            together[key] / together["sweep"] / (alone[key] / alone["sweep"])
            for key in ("score_draws", "slowest_draws")
        ]
        rows.append(
            [
                SETS[name].title,
                ", ".join(map(str, groups)) + f" of {found['features']}" if groups else "none",
                f"{together['accepted']:.0%}" if groups else "–",
                f"{1e3 * alone['sweep']:.1f}, {1e3 * together['sweep']:.1f}",
                f"{alone['score_draws']:,.0f}, {together['score_draws']:,.0f}",
                f"{alone['slowest_draws']:,.0f}, {together['slowest_draws']:,.0f}",
                f"{gains[0]:.2f}, {gains[1]:.2f}",
            ]
        )
    header = [
        "",
        "together",
        "accepted",
        "a sweep, ms",
        "draws a sweep, log-odds",
        "slowest feature",
        "draws a second, times",
    ]
    return table(header, rows)
