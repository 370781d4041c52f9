"""The scikit-learn face of the field."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from agglearn.aggregate.sources import open_source
from agglearn.errors import InputError
from agglearn.field.checkpoint import Checkpoints, FitState
from agglearn.field.settings import FitSettings
from agglearn.model import Model
from agglearn.score import RecordScore, score_predictions
from agglearn.tables import AggregatedData


class UnknownValuesWarning(UserWarning):
    """Records had values that the model knows nothing of; they added nothing to the scores."""


class MaxEntClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Maximum-entropy classifier learnt from contingency tables.

    Fits the field π(x,y) ∝ exp(φ(x)·(μ + yθ) + yθ₀), whose sufficient statistics are the tables, by
    minimising

        −log π(A=a) + λ_θ‖θ‖² + λ_μ‖μ − μ₀‖²

    with persistent contrastive divergence, and predicts P(Y=1|x) = σ(φ(x)·θ + θ₀).

    Parameters
    ----------
    lambda_theta, lambda_mu
        Penalties on θ (None finds one from the tables), and on how far μ goes from its start μ₀.
    iterations
        The most iterations; training stops earlier when the predictions have come to rest.
    chains
        Number of chains; None chooses by the number of records.
    growth, step_mu, step_theta, first_step_theta, rate_memory, gradient, preconditioned, \
marginal_label, start, averaging, engine, exact_up_to, proposals, tolerance
        How the training goes about it: see :class:`~agglearn.field.settings.FitSettings`.
    label
        The label to predict, where the tables have several.
    threads
        Threads to use, all cores by default.
    seed
        Seed of the chains: the same tables, settings and seed give the same model bit for bit.

    Attributes
    ----------
    model_ : Model
        The fitted field with its weights, chains and history.
    classes_ : ndarray of shape (2,)
        0 and 1, or the label's negative and positive value where both are known.
    feature_names_in_ : ndarray of str
        The features.
    n_features_in_ : int
        How many there are.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        Misfit, gradient norms, acceptance, step sizes and time of each iteration.

    Examples
    --------
    >>> import agglearn
    >>> records = {"colour": ["red", "blue"] * 50, "size": ["S", "S", "L", "L"] * 25,
    ...            "click": [1, 0, 1, 1] * 25}
    >>> model = agglearn.MaxEntClassifier(lambda_theta=0.1).fit(agglearn.aggregate(records, "click"))
    >>> model.predict({"colour": ["red", "blue"], "size": ["S", "S"]})
    array([1, 0])
    """

    def __init__(
        self,
        *,
        lambda_theta: float | None = FitSettings.lambda_theta,
        lambda_mu: float = FitSettings.lambda_mu,
        iterations: int = FitSettings.iterations,
        chains: int | None = FitSettings.chains,
        growth: int = FitSettings.growth,
        step_mu: float = FitSettings.step_mu,
        step_theta: float = FitSettings.step_theta,
        first_step_theta: float = FitSettings.first_step_theta,
        rate_memory: float = FitSettings.rate_memory,
        gradient: str = FitSettings.gradient,
        preconditioned: bool = FitSettings.preconditioned,
        marginal_label: bool = FitSettings.marginal_label,
        start: str = FitSettings.start,
        averaging: bool = FitSettings.averaging,
        engine: str = FitSettings.engine,
        exact_up_to: int = FitSettings.exact_up_to,
        proposals: int = FitSettings.proposals,
        tolerance: float = FitSettings.tolerance,
        seed: int = FitSettings.seed,
        label: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.lambda_theta = lambda_theta
        self.lambda_mu = lambda_mu
        self.iterations = iterations
        self.chains = chains
        self.growth = growth
        self.step_mu = step_mu
        self.step_theta = step_theta
        self.first_step_theta = first_step_theta
        self.rate_memory = rate_memory
        self.gradient = gradient
        self.preconditioned = preconditioned
        self.marginal_label = marginal_label
        self.start = start
        self.averaging = averaging
        self.engine = engine
        self.exact_up_to = exact_up_to
        self.proposals = proposals
        self.tolerance = tolerance
        self.seed = seed
        self.label = label
        self.threads = threads

    def fit(
        self,
        X: AggregatedData,
        y: None = None,
        *,
        on_iteration: Callable[[FitState], None] | None = None,
        checkpoints: Checkpoints | None = None,
        valid: AggregatedData | None = None,
    ) -> MaxEntClassifier:
        """Fit the field to aggregated data; there is no ``y``, the tables hold the labels.

        Parameters
        ----------
        X
            The tables.
        on_iteration
            Called with the state after each iteration, for a display.
        checkpoints
            Where to keep states, and to go on from if there are any.
        valid
            Tables of other records, to score now and then; the scores stand in the history.
        """
        if not isinstance(X, AggregatedData):
            raise InputError(
                f"fit takes aggregated data, not {type(X).__name__}: make it with agglearn.aggregate()"
            )
        settings = FitSettings(**{f.name: getattr(self, f.name) for f in fields(FitSettings)})
        model, seconds = Model.fit(
            X,
            settings,
            label=self.label,
            threads=self.threads,
            on_iteration=on_iteration,
            checkpoints=checkpoints,
            valid=valid,
        )
        self._take(model)
        self.fit_seconds_ = seconds
        return self

    def _take(self, model: Model) -> None:
        self.model_ = model
        self.classes_ = model.label.classes
        self.feature_names_in_ = np.array(model.schema.names, dtype=object)
        self.n_features_in_ = len(model.schema.names)
        self.n_iter_ = model.summary["iterations"]
        self.history_ = list(model.history)

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise NotFittedError("this MaxEntClassifier is not fitted yet: call fit(tables) first")
        return self.model_

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Log-odds of the positive class, for raw records in a frame, a dict or a file."""
        model = self._fitted()
        scores, unknown = [np.zeros(0)], np.zeros(self.n_features_in_, np.int64)
        for _, log_odds, count in model.score_records(open_source(X), threads=self.threads):
            scores.append(log_odds)
            unknown += count
        warn_unknown(model, unknown)
        return np.concatenate(scores)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of the two classes, a row for each record."""
        log_odds = self.decision_function(X)
        return np.column_stack([expit(-log_odds), expit(log_odds)])

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likelier class of each record."""
        positive = self.decision_function(X) > 0
        predicted: npt.NDArray[Any] = self.classes_[positive.astype(np.intp)]
        return predicted

    def score(self, X: Any, y: Any = None, sample_weight: None = None) -> float:
        """NLLH on records: 1 − log loss / entropy of the label. The label is a column of X, or y."""
        return self.evaluate(X, y).nllh

    def evaluate(self, X: Any, y: Any = None) -> RecordScore:
        """All scores on records whose label is a column of X, or y."""
        model = self._fitted()
        if y is not None:
            truth = model.label.encode(pa.array(np.asarray(y)))
            return score_predictions(truth, self.decision_function(X))
        score, unknown = model.evaluate(open_source(X), self.threads)
        warn_unknown(model, unknown)
        return score

    def sample(self, n: int, seed: int = 0) -> Any:
        """Synthetic records with their label, in raw values, as an Arrow table."""
        return pa.concat_tables(list(self._fitted().sample(n, seed, self.threads)))

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a folder, atomically."""
        self._fitted().save(path)

    @classmethod
    def load(cls, path: str | Path) -> MaxEntClassifier:
        """Read a fitted model from its folder; runs no code from it."""
        model = Model.load(path)
        known = {f.name for f in fields(FitSettings)}
        classifier = cls(**{k: v for k, v in model.settings.items() if k in known}, label=model.label.name)
        classifier._take(model)
        return classifier

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def warn_unknown(model: Model, unknown: npt.NDArray[np.int64]) -> None:
    """Warn of values that the model has no modality for."""
    if unknown.any():
        counts = ", ".join(
            f"{name} ({n:,})" for name, n in zip(model.schema.names, unknown.tolist(), strict=True) if n
        )
        warnings.warn(
            f"values the model does not know add nothing to the scores: {counts}",
            UnknownValuesWarning,
            stacklevel=3,
        )
