"""Learn a classifier from contingency tables alone.

The public names are loaded when they are first used, so that the command line starts at once.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agglearn.aggregate import Aggregation, aggregate, aggregate_split
    from agglearn.check import CheckReport, check
    from agglearn.classifier import MaxEntClassifier
    from agglearn.compare import Comparison, compare
    from agglearn.errors import AgglearnError
    from agglearn.features import Binned, Categorical, Cut, Encoded
    from agglearn.model import Model
    from agglearn.schema import Label, Schema
    from agglearn.store import load, load_schema, save, save_schema
    from agglearn.tables import AggregatedData, Noise, Table, merge
    from agglearn.trust.diagnosis import Diagnosis, diagnose
    from agglearn.trust.extra import Suggestion, suggest_tables
    from agglearn.trust.score import HeldoutScore, score_tables

__version__ = "0.1.0"

_HOMES = {
    "AggregatedData": "tables",
    "Aggregation": "aggregate",
    "AgglearnError": "errors",
    "Binned": "features",
    "Categorical": "features",
    "CheckReport": "check",
    "Comparison": "compare",
    "Cut": "features",
    "Diagnosis": "trust.diagnosis",
    "Encoded": "features",
    "HeldoutScore": "trust.score",
    "Label": "schema",
    "MaxEntClassifier": "classifier",
    "Model": "model",
    "Noise": "tables",
    "Schema": "schema",
    "Suggestion": "trust.extra",
    "Table": "tables",
    "aggregate": "aggregate",
    "aggregate_split": "aggregate",
    "check": "check",
    "compare": "compare",
    "diagnose": "trust.diagnosis",
    "load": "store",
    "load_schema": "store",
    "merge": "tables",
    "save": "store",
    "save_schema": "store",
    "score_tables": "trust.score",
    "suggest_tables": "trust.extra",
}

__all__ = [
    "AgglearnError",
    "AggregatedData",
    "Aggregation",
    "Binned",
    "Categorical",
    "CheckReport",
    "Comparison",
    "Cut",
    "Diagnosis",
    "Encoded",
    "HeldoutScore",
    "Label",
    "MaxEntClassifier",
    "Model",
    "Noise",
    "Schema",
    "Suggestion",
    "Table",
    "aggregate",
    "aggregate_split",
    "check",
    "compare",
    "diagnose",
    "load",
    "load_schema",
    "merge",
    "save",
    "save_schema",
    "score_tables",
    "suggest_tables",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"agglearn.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'agglearn' has no attribute {name!r}")


class _Package(ModuleType):
    """Importing the module ``agglearn.check`` must not hide the function ``agglearn.check``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
