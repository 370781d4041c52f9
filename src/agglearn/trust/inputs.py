"""What is judged: a model in either form, and tables that go with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.field.problem import Problem, make_problem
from agglearn.model import Model
from agglearn.tables import AggregatedData, Scope

if TYPE_CHECKING:
    from agglearn.classifier import MaxEntClassifier

Floats = npt.NDArray[np.float64]


def model_of(model: Model | MaxEntClassifier) -> Model:
    """The fitted field itself."""
    return model if isinstance(model, Model) else model._fitted()


def problem_of(model: Model, tables: AggregatedData, what: str = "the held-out tables") -> Problem:
    """The tables that the field has, as flat vectors in its order, or why the two do not go together.

    ``what`` names them in an error.
    """
    require_schema(model, tables, what)
    absent = [scope for scope in model.scopes if scope not in tables.tables]
    if absent:
        raise TableError(f"{what} lack {' × '.join(absent[0])}, which the field has")
    kept = {scope: tables.tables[scope] for scope in model.scopes}
    problem = make_problem(replace(tables, tables=kept), model.label.name)
    if problem.layout != model.layout:
        raise TableError(f"{what} are not hashed as the field's are")
    return problem


def require_schema(model: Model, tables: AggregatedData, what: str) -> None:
    """Refuse tables over other features, or over the same with other values."""
    if tables.schema.features != model.schema.features:
        raise TableError(
            f"{what} have another schema than the model: aggregate them with the training tables' (--split, "
            "or --schema TRAIN.agg)"
        )


def noise_of(tables: AggregatedData, scopes: Sequence[Scope]) -> Floats:
    """Standard deviation of the noise declared for each of these tables."""
    held = [tables.tables[scope] for scope in scopes]
    return np.array([t.noise.sigma if t.noise else 0.0 for t in held])
