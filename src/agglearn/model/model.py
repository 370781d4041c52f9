"""A fitted field, as a value. What can be done with it stands beside it, a job a module."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError, TableError
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.levels import Levels
from agglearn.field.problem import Problem, make_problem, matching, ordered_codes
from agglearn.model.explanation import Explainable, Explanation
from agglearn.model.fit_report import FitReport
from agglearn.model.record import FitRecord
from agglearn.model.transform import transform
from agglearn.report.html import fragment
from agglearn.runtime.speech import option
from agglearn.schema.schema import Label, Schema
from agglearn.spark.session import is_frame
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope
from agglearn.train.mains import with_mains


@dataclass(frozen=True, eq=False)
class Model(Explainable):
    """A fitted field.

    Attributes
    ----------
    schema, label
        How raw records are coded, and what is predicted.
    scopes
        The features of each table of the field: those it was fitted to, and main effects beside them.
    field
        The field itself.
    chains
        The chains at the end of training, a row for each feature, or None where none were kept.
    rows, positives
        Records and positives behind the tables.
    record
        How it was fitted, how that ended, and every iteration.
    prior
        The weights of an earlier model that the penalty pulled θ to, or None where it pulled to 0.
    """

    schema: Schema
    label: Label
    scopes: tuple[Scope, ...]
    field: Field
    chains: Codes | None
    rows: float
    positives: float
    record: FitRecord
    prior: npt.NDArray[np.float64] | None = None

    @property
    def layout(self) -> Layout:
        """Features, tables and the order of the cells."""
        return self.field.layout

    @cached_property
    def levels(self) -> Levels | None:
        """The coarser tables that stood beside its tables, where any did."""
        return Levels.of(self.layout, ordered_codes(self.schema)) if self.record.levels else None

    @property
    def tables(self) -> tuple[Scope, ...]:
        """The features of each table it was fitted to."""
        return self.scopes[: len(self.scopes) - self.record.mains]

    @cached_property
    def _explanation(self) -> Explanation:
        if self.still and self.chains is None:
            raise InputError(
                "the model was fitted with records and keeps none of them, so it has no law of X to weigh "
                f"its parts by: fit it again with {option('keep_records')}"
            )
        return Explanation.of(self.schema, self.field, self.chains, self.rows)

    def explanation(self) -> Explanation:
        """The model in parts, made when first asked for."""
        return self._explanation

    def transform(self, frame: Any, name: str = "probability") -> Any:
        """A Spark DataFrame with P(Y=1) of each record in a further column.

        Parameters
        ----------
        frame
            The records, of a table or of a stream; columns that are no features stay as they are.
        name
            The column to add.
        """
        if not is_frame(frame):
            raise InputError("transform takes a Spark DataFrame: other records are scored by predict_proba")
        return transform(self.schema, self.field, frame, name)

    @property
    def still(self) -> bool:
        """Whether its law of X is one of records, which its weights μ do not describe."""
        return "records" in self.record.used

    def __repr__(self) -> str:
        size = f"{len(self.tables):,} tables, {self.layout.n_cells:,} cells"
        return f"<Model of {self.label.name}: {size}, {self.rows:,.0f} records>"

    def _repr_html_(self) -> str:
        return fragment(FitReport.of(self.record).document().named(repr(self).strip("<>")))


class Fitted(Protocol):
    """Whatever holds a model once it is fitted, such as a :class:`~agglearn.classifier.MaxEntClassifier`."""

    model_: Model


def model_of(model: Model | Fitted) -> Model:
    """The model itself."""
    if isinstance(model, Model):
        return model
    if not hasattr(model, "model_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit(tables) first")
    return model.model_


def problem_of(model: Model, tables: AggregatedData, what: str = "the held-out tables") -> Problem:
    """The tables that the field has, as flat vectors in its order, or why the two do not go together.

    ``what`` names them in an error.
    """
    kept = matching(tables, model.schema, model.tables, what)
    problem = make_problem(kept, model.label.name)
    if model.record.mains:
        problem = with_mains(problem)
    if problem.layout.buckets != model.layout.buckets:
        raise TableError(f"{what} are not hashed as the field's are")
    return problem.over(model.layout)
