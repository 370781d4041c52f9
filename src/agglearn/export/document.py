"""A model as one JSON document: how raw values become codes, and what each cell weighs.

The form is described in ``docs/export.md``. The two reference scorers beside this module, ``scorer.py`` and
``scorer.js``, are all that is needed to read it.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from agglearn.export.scorer import FORMAT, VERSION
from agglearn.model.model import Model
from agglearn.schema.features import Feature
from agglearn.schema.rules import Cuts


def scorer_document(model: Model) -> dict[str, Any]:
    """Everything that predictions need of a model, as plain JSON values."""
    layout = model.layout
    return {
        "format": FORMAT,
        "version": VERSION,
        "label": vars(model.label),
        "features": [_feature(feature) for feature in model.schema.features],
        "intercept": float(model.field.intercept),
        "tables": [
            {
                "features": list(scope),
                "buckets": layout.buckets[t],
                "weights": model.field.theta[layout.part(t)].tolist(),
            }
            for t, scope in enumerate(layout.scopes)
        ],
    }


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
