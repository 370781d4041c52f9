"""Learn a classifier from contingency tables alone.

The public names are loaded when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agglearn.aggregation.api import Aggregation, aggregate, aggregate_split
    from agglearn.classifier import MaxEntClassifier
    from agglearn.errors import AgglearnError
    from agglearn.judge.comparison import Comparison, compare
    from agglearn.model.fitting import fit
    from agglearn.model.model import Model
    from agglearn.opening import load, save
    from agglearn.schema.features import Binned, Categorical, Cut, Encoded
    from agglearn.schema.schema import Label, Schema
    from agglearn.tables.check import CheckReport, check
    from agglearn.tables.data import AggregatedData, merge
    from agglearn.tables.drift import Drift, drift
    from agglearn.tables.format import load_schema, save_schema
    from agglearn.tables.ledger import Part
    from agglearn.tables.noise import Noise
    from agglearn.tables.table import Table
    from agglearn.tables.window import window
    from agglearn.train.settings import FitSettings, TrainingSettings
    from agglearn.trust.diagnosis import diagnose
    from agglearn.trust.findings import Diagnosis
    from agglearn.trust.score import HeldoutScore, score_tables
    from agglearn.trust.suggest import Suggestion, suggest_tables

__version__ = "0.1.0"

_HOMES = {
    "AgglearnError": "errors",
    "AggregatedData": "tables.data",
    "Aggregation": "aggregation.api",
    "Binned": "schema.features",
    "Categorical": "schema.features",
    "CheckReport": "tables.check",
    "Comparison": "judge.comparison",
    "Cut": "schema.features",
    "Diagnosis": "trust.findings",
    "Drift": "tables.drift",
    "Encoded": "schema.features",
    "HeldoutScore": "trust.score",
    "Label": "schema.schema",
    "MaxEntClassifier": "classifier",
    "Model": "model.model",
    "Noise": "tables.noise",
    "Part": "tables.ledger",
    "Schema": "schema.schema",
    "Suggestion": "trust.suggest",
    "Table": "tables.table",
    "aggregate": "aggregation.api",
    "aggregate_split": "aggregation.api",
    "check": "tables.check",
    "compare": "judge.comparison",
    "FitSettings": "train.settings",
    "TrainingSettings": "train.settings",
    "diagnose": "trust.diagnosis",
    "drift": "tables.drift",
    "fit": "model.fitting",
    "load": "opening",
    "load_schema": "tables.format",
    "merge": "tables.data",
    "save": "opening",
    "save_schema": "tables.format",
    "score_tables": "trust.score",
    "suggest_tables": "trust.suggest",
    "window": "tables.window",
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
    "Drift",
    "Encoded",
    "FitSettings",
    "HeldoutScore",
    "Label",
    "MaxEntClassifier",
    "Model",
    "Noise",
    "Part",
    "Schema",
    "Suggestion",
    "Table",
    "TrainingSettings",
    "aggregate",
    "aggregate_split",
    "check",
    "compare",
    "diagnose",
    "drift",
    "fit",
    "load",
    "load_schema",
    "merge",
    "save",
    "save_schema",
    "score_tables",
    "suggest_tables",
    "window",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"agglearn.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'agglearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
