"""What is judged: a model in either form, and tables that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agglearn.errors import TableError
from agglearn.field.problem import Problem, make_problem, matching
from agglearn.model.model import Model
from agglearn.tables.data import AggregatedData

if TYPE_CHECKING:
    from agglearn.classifier import MaxEntClassifier


def model_of(model: Model | MaxEntClassifier) -> Model:
    """The fitted field itself."""
    return model if isinstance(model, Model) else model._fitted()


def problem_of(model: Model, tables: AggregatedData, what: str = "the held-out tables") -> Problem:
    """The tables that the field has, as flat vectors in its order, or why the two do not go together.

    ``what`` names them in an error.
    """
    kept = matching(tables, model.schema, model.scopes, what)
    problem = make_problem(kept, model.label.name)
    if problem.layout != model.layout:
        raise TableError(f"{what} are not hashed as the field's are")
    return problem
