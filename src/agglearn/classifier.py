"""The scikit-learn face of the field."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin

from agglearn.errors import InputError
from agglearn.judge.evaluate import evaluate
from agglearn.judge.scores import RecordScore, score_predictions
from agglearn.model import fitting
from agglearn.model.draw import sample
from agglearn.model.format import load_model, save_model
from agglearn.model.model import Model, model_of
from agglearn.model.predict import code_records, score_batches
from agglearn.records.sources import open_source
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.select.choose import nothing_to_choose_on
from agglearn.train.settings import FitSettings, Penalty, TrainingSettings
from agglearn.train.state import FitState
from agglearn.trust.intervals import Posterior, model_posterior


class NothingToChooseOnWarning(UserWarning):
    """Penalties were to be chosen on held-out tables, and there were none."""


class UnknownValuesWarning(UserWarning):
    """Records had values that the model knows nothing of; they added nothing to the scores."""


class MaxEntClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Maximum-entropy classifier learnt from contingency tables.

    Fits the field π(x,y) ∝ exp(φ(x)·(μ + yθ) + yθ₀), whose sufficient statistics are the tables, by
    minimising

        −log π(A=a) + Σ_t λ_t‖θ_t‖² + λ_μ‖μ − μ₀‖²

    with persistent contrastive divergence, and predicts P(Y=1|x) = σ(φ(x)·θ + θ₀).

    Parameters
    ----------
    lambda_theta, lambda_mu
        Penalties on θ, and on how far μ goes from its start μ₀. By default each table has a λ_t of its own,
        found by the evidence of the tables, and λ_μ is 0.1. ``"auto"`` for λ_θ chooses on held-out tables by
        how much these are multiplied, and λ_μ; a number for either pins it, for all tables alike.
    iterations
        The most iterations; training stops earlier when the predictions have come to rest.
    chains
        Number of chains; None chooses by the number of records.
    engine
        ``local``, or ``exact`` for a handful of small features.
    tolerance
        Training stops when the predicted log-odds move by less than this between two looks.
    training
        How the training goes about it, for experiments: a
        :class:`~agglearn.train.settings.TrainingSettings`, or None for the defaults.
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
        lambda_theta: Penalty = FitSettings.lambda_theta,
        lambda_mu: Penalty = FitSettings.lambda_mu,
        iterations: int = FitSettings.iterations,
        chains: int | None = FitSettings.chains,
        engine: str = FitSettings.engine,
        tolerance: float = FitSettings.tolerance,
        seed: int = FitSettings.seed,
        training: TrainingSettings | None = None,
        label: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.lambda_theta = lambda_theta
        self.lambda_mu = lambda_mu
        self.iterations = iterations
        self.chains = chains
        self.engine = engine
        self.tolerance = tolerance
        self.seed = seed
        self.training = training
        self.label = label
        self.threads = threads

    def fit(
        self,
        X: AggregatedData | Sequence[AggregatedData],
        y: None = None,
        *,
        on_iteration: Callable[[FitState], None] | None = None,
        checkpoints: Checkpoints | None = None,
        valid: Any = None,
        **known: Any,
    ) -> MaxEntClassifier:
        """Fit the field to aggregated data; there is no ``y``, the tables hold the labels.

        Parameters
        ----------
        X
            The tables, or several parts of them from disjoint records: they are added up, and penalties that
            are ``"auto"`` are chosen by cross-validation over the parts.
        on_iteration
            Called with the state after each iteration, for a display.
        checkpoints
            Where to keep states, and to go on from if there are any.
        valid
            Tables of other records, or those records with their labels, to score now and then; the scores
            stand in the history. Penalties that are ``"auto"`` are chosen on them.
        **known
            What else is known: ``records``, ``rake``, ``keep_records``, ``labelled``, ``start_from``,
            ``prior``, ``prior_weight`` and ``read``, as in :func:`agglearn.fit`; an earlier model may be a
            classifier.
        """
        parts: list[Any] = list(X) if isinstance(X, list | tuple) else [X]
        for part in parts:
            if not isinstance(part, AggregatedData):
                raise InputError(
                    f"fit takes aggregated data, not {type(part).__name__}: make it with agglearn.aggregate()"
                )
        options = {f.name: getattr(self, f.name) for f in fields(FitSettings)}
        settings = FitSettings(**{**options, "training": self.training or TrainingSettings()})
        if settings.to_choose and valid is None and len(parts) < 2:
            warnings.warn(nothing_to_choose_on(), NothingToChooseOnWarning, stacklevel=2)
        for name in ("start_from", "prior"):
            if known.get(name) is not None:
                known[name] = model_of(known[name])
        model = fitting.fit(
            parts,
            settings,
            label=self.label,
            threads=self.threads,
            on_iteration=on_iteration,
            checkpoints=checkpoints,
            valid=valid,
            **known,
        )
        self._take(model)
        return self

    def _take(self, model: Model) -> None:
        self.model_ = model
        self.classes_ = model.label.classes
        self.feature_names_in_ = np.array(model.schema.names, dtype=object)
        self.n_features_in_ = len(model.schema.names)
        self.n_iter_ = model.record.iterations
        self.history_ = [entry.to_json() for entry in model.record.history]
        self.fit_seconds_ = model.record.seconds

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Log-odds of the positive class, for raw records in a frame, a dict or a file."""
        model = model_of(self)
        scores, unknown = [np.zeros(0)], np.zeros(self.n_features_in_, np.int64)
        for _, log_odds, count in score_batches(model, open_source(X), threads=self.threads):
            scores.append(log_odds)
            unknown += count
        warn_unknown(model, unknown)
        return np.concatenate(scores)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of the two classes, a row for each record."""
        log_odds = self.decision_function(X)
        return np.column_stack([expit(-log_odds), expit(log_odds)])

    def predict_interval(self, X: Any, level: float = 0.9, seed: int = 0) -> npt.NDArray[np.float64]:
        """Intervals for the probability of the positive class: lower and upper end, a row for each record.

        An interval of level 0.9 holds the true probability of nine records in ten, if the records behind the
        tables come from a field over those tables. What no table shows, it does not cover.
        """
        model, posterior = model_of(self), self._posterior(seed)
        ends, unknown = [np.zeros((0, 2))], np.zeros(self.n_features_in_, np.int64)
        for _, codes, count in code_records(model, open_source(X)):
            ends.append(np.column_stack(posterior.log_odds(codes, level, self.threads)))
            unknown += count
        warn_unknown(model, unknown)
        return np.asarray(expit(np.concatenate(ends)))

    def weight_intervals(
        self, level: float = 0.9, seed: int = 0
    ) -> dict[Scope, tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]]:
        """Intervals for the weights θ of each table: lower and upper ends, in the table's shape."""
        model = model_of(self)
        lower, upper = self._posterior(seed).weights(level)
        table = model.layout.table
        return {scope: (table(lower, t), table(upper, t)) for t, scope in enumerate(model.scopes)}

    def _posterior(self, seed: int) -> Posterior:
        """Made when first asked for, and kept: it takes about as long as a fit."""
        model = model_of(self)
        kept = getattr(self, "_posterior_kept", None)
        if kept is None or kept[0] is not model or kept[1] != seed:
            made = model_posterior(model, seed=seed, threads=self.threads)
            self._posterior_kept = kept = (model, seed, made)
        return kept[2]

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
        model = model_of(self)
        if y is not None:
            truth = model.label.encode(pa.array(np.asarray(y)))
            return score_predictions(truth, self.decision_function(X))
        score, unknown = evaluate(model, open_source(X), self.threads)
        warn_unknown(model, unknown)
        return score

    def sample(self, n: int, seed: int = 0) -> Any:
        """Synthetic records with their label, in raw values, as an Arrow table."""
        return pa.concat_tables(list(sample(model_of(self), n, seed=seed, threads=self.threads)))

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a folder, atomically."""
        save_model(model_of(self), path)

    @classmethod
    def load(cls, path: str | Path) -> MaxEntClassifier:
        """Read a fitted model from its folder; runs no code from it."""
        model = load_model(path)
        settings = model.record.settings
        options = {f.name: getattr(settings, f.name) for f in fields(FitSettings)}
        classifier = cls(**options, label=model.label.name)
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
