"""A model as one JSON document: how raw values become codes, and what each cell weighs.

The form is described in ``docs/export.md``. The two reference scorers beside this module, ``scorer.py`` and
``scorer.js``, are all that is needed to read it.
"""

from __future__ import annotations

from importlib import resources
from math import prod
from typing import Any

from agglearn.errors import InputError
from agglearn.export.scorer import FORMAT, VERSION
from agglearn.model.model import Model
from agglearn.schema.features import Feature
from agglearn.schema.rules import Cuts
from agglearn.tables.cells import Cells, SparseCells
from agglearn.tables.table import Scope

_LARGEST_INTEGER = 2**53


def scorer_document(model: Model) -> dict[str, Any]:
    """Everything that predictions need of a model, as plain JSON values."""
    layout = model.layout
    return {
        "format": FORMAT,
        "version": VERSION if layout.tied.size else VERSION - 1,
        "label": vars(model.label),
        "features": [_feature(feature) for feature in model.schema.features],
        "intercept": float(model.field.intercept),
        "tables": [
            {
                "features": list(scope),
                "buckets": layout.buckets[t],
                **_listed(layout.cells[t], model.scopes[t]),
                "weights": model.field.theta[layout.part(t)].tolist(),
            }
            for t, scope in enumerate(layout.scopes)
        ],
    }


def _listed(cells: Cells, scope: Scope) -> dict[str, list[int]]:
    """The ranks of the combinations that a sparse table lists."""
    if not isinstance(cells, SparseCells):
        return {}
    if prod(cells.cards) > _LARGEST_INTEGER:
        raise InputError(
            f"JSON cannot carry this model: table {' × '.join(scope)} has {prod(cells.cards):,} "
            f"combinations, and numbers beyond {_LARGEST_INTEGER:,} are not exact in every language"
        )
    return {"listed": cells.listed.tolist()}


def _feature(feature: Feature) -> dict[str, Any]:
    return {"name": feature.name, "modalities": list(feature.modalities), "rule": _rule(feature)}


def _rule(feature: Feature) -> dict[str, Any]:
    rule = feature.rule
    if isinstance(rule, Cuts):
        cuts = [[cut.value, cut.after] for cut in rule.cuts]
        return {"kind": "cuts", "cuts": cuts, "missing": rule.missing, "unknown": rule.unknown}
    return {
        "kind": "lookup",
        "codes": dict(rule.codes),
        "default": rule.default,
        "missing": rule.missing,
        "value_type": rule.value_type,
    }


def scorer_source(name: str) -> str:
    """The text of a reference scorer, ``scorer.py`` or ``scorer.js``."""
    return resources.files("agglearn.export").joinpath(name).read_text(encoding="utf-8")
