"""Learn a classifier from contingency tables alone.

The public names are loaded when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agglearn.aggregation.api import Aggregation, aggregate, aggregate_split
    from agglearn.classifier import MaxEntClassifier
    from agglearn.errors import AgglearnError
    from agglearn.export.formats import ExportOptions, export_model
    from agglearn.field.denoise import denoise
    from agglearn.judge.comparison import Comparison, compare
    from agglearn.model.fitting import fit
    from agglearn.model.model import Model
    from agglearn.opening import load, save
    from agglearn.page.write import write_report
    from agglearn.plan import Plan, plan_records, plan_tables
    from agglearn.privacy.api import aggregate_private, release_tables
    from agglearn.privacy.budget import PrivacyOptions
    from agglearn.schema.by_hand import categorical, make_schema, numeric
    from agglearn.schema.features import Binned, Categorical, Cut, Encoded
    from agglearn.schema.schema import Label, Schema
    from agglearn.tables.check import CheckReport, check
    from agglearn.tables.data import AggregatedData, merge
    from agglearn.tables.drift import Drift, drift
    from agglearn.tables.format import load_schema, save_schema
    from agglearn.tables.ledger import Part
    from agglearn.tables.noise import Noise
    from agglearn.tables.promise import Promise
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
    "ExportOptions": "export.formats",
    "HeldoutScore": "trust.score",
    "Label": "schema.schema",
    "MaxEntClassifier": "classifier",
    "Model": "model.model",
    "Noise": "tables.noise",
    "Part": "tables.ledger",
    "Plan": "plan",
    "PrivacyOptions": "privacy.budget",
    "Promise": "tables.promise",
    "Schema": "schema.schema",
    "Suggestion": "trust.suggest",
    "Table": "tables.table",
    "aggregate": "aggregation.api",
    "aggregate_private": "privacy.api",
    "aggregate_split": "aggregation.api",
    "categorical": "schema.by_hand",
    "check": "tables.check",
    "compare": "judge.comparison",
    "FitSettings": "train.settings",
    "TrainingSettings": "train.settings",
    "denoise": "field.denoise",
    "diagnose": "trust.diagnosis",
    "drift": "tables.drift",
    "export_model": "export.formats",
    "fit": "model.fitting",
    "load": "opening",
    "load_schema": "tables.format",
    "make_schema": "schema.by_hand",
    "merge": "tables.data",
    "numeric": "schema.by_hand",
    "plan_records": "plan",
    "plan_tables": "plan",
    "release_tables": "privacy.api",
    "save": "opening",
    "save_schema": "tables.format",
    "score_tables": "trust.score",
    "suggest_tables": "trust.suggest",
    "window": "tables.window",
    "write_report": "page.write",
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
    "ExportOptions",
    "FitSettings",
    "HeldoutScore",
    "Label",
    "MaxEntClassifier",
    "Model",
    "Noise",
    "Part",
    "Plan",
    "PrivacyOptions",
    "Promise",
    "Schema",
    "Suggestion",
    "Table",
    "TrainingSettings",
    "aggregate",
    "aggregate_private",
    "aggregate_split",
    "categorical",
    "check",
    "compare",
    "denoise",
    "diagnose",
    "drift",
    "export_model",
    "fit",
    "load",
    "load_schema",
    "make_schema",
    "merge",
    "numeric",
    "plan_records",
    "plan_tables",
    "release_tables",
    "save",
    "save_schema",
    "score_tables",
    "suggest_tables",
    "window",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"agglearn.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'agglearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
