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
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from agglearn.aggregation.api import aggregate
from agglearn.errors import InputError
from agglearn.judge.evaluate import evaluate
from agglearn.judge.scores import RecordScore, score_predictions
from agglearn.model import fitting
from agglearn.model.draw import sample
from agglearn.model.explanation import Explainable, Explanation
from agglearn.model.format import load_model, save_model
from agglearn.model.model import Model, model_of
from agglearn.model.predict import code_records, score_batches
from agglearn.records.frames import to_arrow
from agglearn.records.rows import are_records, table_of_array
from agglearn.records.sources import Source, open_source
from agglearn.report.displays import EffectDisplay
from agglearn.runtime.frames import make_frame
from agglearn.schema.unknown import unknown_notes
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.select.choose import nothing_to_choose_on
from agglearn.train.settings import FitSettings, Penalty, TrainingSettings
from agglearn.train.state import FitState
from agglearn.trust.effects import effect_intervals
from agglearn.trust.intervals import Posterior, model_posterior
from agglearn.trust.kept import keep_posterior, kept_posterior


class NothingToChooseOnWarning(UserWarning):
    """Penalties were to be chosen on held-out tables, and there were none."""


class AggregatedWarning(UserWarning):
    """Records were given where tables are expected, and were aggregated first."""


class UnknownValuesWarning(UserWarning):
    """Records had values that the model knows nothing of; they added nothing to the scores."""


class MaxEntClassifier(Explainable, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        Training stops when the predicted log-odds move by less than this between two looks; None takes a
        fifteenth of what they are uncertain by.
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
        tolerance: float | None = FitSettings.tolerance,
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
        X: AggregatedData | Sequence[AggregatedData] | Any,
        y: Any = None,
        *,
        on_iteration: Callable[[FitState], None] | None = None,
        checkpoints: Checkpoints | None = None,
        valid: Any = None,
        **known: Any,
    ) -> MaxEntClassifier:
        """Fit the field to aggregated data; there is no ``y`` then, the tables hold the labels.

        Records with their labels are taken as well, so that scikit-learn's tools can be used: they are
        aggregated into tables of pairs first, which a warning says, and the tables alone are fitted.

        Parameters
        ----------
        X
            The tables, or several parts of them from disjoint records: they are added up, and penalties that
            are ``"auto"`` are chosen by cross-validation over the parts. Or records, in a frame or an array.
        y
            The labels of the records, of two classes.
        on_iteration
            Called with the state after each iteration, for a display.
        checkpoints
            Where to keep states, and to go on from if there are any.
        valid
            Tables of other records, or those records with their labels, to score now and then; the scores
            stand in the history. Penalties that are ``"auto"`` are chosen on them.
        **known
            What else is known: ``records``, ``rake``, ``keep_records``, ``labelled``, ``public_tables``,
            ``start_from``, ``prior``, ``prior_weight`` and ``read``, as in :func:`agglearn.fit`; an earlier
            model may be a classifier.
        """
        parts: list[Any] = list(X) if isinstance(X, list | tuple) else [X]
        of_tables = [isinstance(part, AggregatedData) for part in parts]
        self._of_records = y is not None and not any(of_tables)
        n_columns = 0
        if self._of_records:
            parts, n_columns = self._aggregated(X, y)
        elif y is not None and any(of_tables):
            raise InputError("tables hold their labels: fit takes them without y")
        elif not all(of_tables):
            odd = type(parts[of_tables.index(False)]).__name__
            raise InputError(
                f"fit takes aggregated data, not {odd}: make it with agglearn.aggregate(). (To fit records, "
                "give their labels too: requires y to be passed, but the target y is None)"
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
        if self._of_records:
            self._take_records(X, y, n_columns)
        return self

    def _aggregated(self, X: Any, y: Any) -> tuple[list[Any], int]:
        """Tables of pairs of records that were given with their labels, and how many columns they had."""
        _, codes = classes_of(y)
        array = issparse(X) or not (hasattr(X, "columns") or isinstance(X, dict) or are_records(X))
        records = self._table(X, None) if array else to_arrow(X)
        if len(codes) != records.num_rows:
            raise InputError(f"{len(codes):,} labels were given for {records.num_rows:,} records")
        name = "y"
        while name in records.column_names:
            name += "_"
        features = records.column_names if array else None
        tables = aggregate(records.append_column(name, pa.array(codes)), name, features=features)
        warnings.warn(
            f"the records were aggregated into {tables.summary}, and only these are fitted "
            "(agglearn.aggregate() makes them once, and says how)",
            AggregatedWarning,
            stacklevel=3,
        )
        return [tables], records.num_columns

    def _table(self, X: Any, names: Sequence[str] | None) -> Any:
        """An array as scikit-learn checks it, as an Arrow table."""
        checked = validate_data(self, X, reset=names is None, dtype=None, ensure_all_finite="allow-nan")
        return table_of_array(checked, names)

    def _take_records(self, X: Any, y: Any, n_columns: int) -> None:
        """What scikit-learn expects to be remembered of the records."""
        self.classes_, _ = classes_of(y)
        self.n_features_in_ = n_columns
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array([str(name) for name in X.columns], dtype=object)
        elif not isinstance(X, dict):
            del self.feature_names_in_

    def _source(self, X: Any) -> Source:
        """Raw records, of whatever kind."""
        if not getattr(self, "_of_records", False):
            return open_source(X)  # tables have names, and what has none is refused
        rows = isinstance(X, list) and bool(X) and isinstance(X[0], list | tuple)
        if rows or isinstance(X, np.ndarray) or issparse(X) or hasattr(X, "__array_function__"):
            model = model_of(self)
            return open_source(self._table(X, model.schema.names))
        return open_source(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _take(self, model: Model) -> None:
        self.model_ = model
        self._folder: Path | None = None
        self.classes_ = model.label.classes
        self.feature_names_in_ = np.array(model.schema.names, dtype=object)
        self.n_features_in_ = len(model.schema.names)
        self.n_iter_ = model.record.iterations
        self.history_ = [entry.to_json() for entry in model.record.history]
        self.fit_seconds_ = model.record.seconds

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Log-odds of the positive class, for raw records in a frame, a dict or a file."""
        model = model_of(self)
        scores, unknown = [np.zeros(0)], np.zeros(len(model.schema.names), np.int64)
        for _, log_odds, count in score_batches(model, self._source(X), threads=self.threads):
            scores.append(log_odds)
            unknown += count
        found = np.concatenate(scores)
        warn_unknown(model, unknown, len(found))
        return found

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of the two classes, a row for each record."""
        log_odds = self.decision_function(X)
        return np.column_stack([expit(-log_odds), expit(log_odds)])

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Logarithms of the probabilities of the two classes, exact however small these are."""
        log_odds = self.decision_function(X)
        return np.column_stack([-np.logaddexp(0, log_odds), -np.logaddexp(0, -log_odds)])

    @property
    def coef_(self) -> dict[Scope, npt.NDArray[np.floating]]:
        """The weights θ of each table, in its shape: what each of its cells adds to the log-odds."""
        if not hasattr(self, "model_"):
            raise AttributeError("coef_ is there once the classifier is fitted")
        model = self.model_
        return {scope: model.layout.table(model.field.theta, t) for t, scope in enumerate(model.scopes)}

    @property
    def intercept_(self) -> float:
        """The intercept θ₀ of the log-odds."""
        if not hasattr(self, "model_"):
            raise AttributeError("intercept_ is there once the classifier is fitted")
        return float(self.model_.field.intercept)

    def predict_interval(self, X: Any, level: float = 0.9, seed: int = 0) -> npt.NDArray[np.float64]:
        """Intervals for the probability of the positive class: lower and upper end, a row for each record.

        An interval of level 0.9 holds the true probability of nine records in ten, if the records behind the
        tables come from a field over those tables. What no table shows, it does not cover.
        """
        model, posterior = model_of(self), self._posterior(seed)
        ends, unknown = [np.zeros((0, 2))], np.zeros(len(model.schema.names), np.int64)
        for _, codes, count in code_records(model, self._source(X)):
            ends.append(np.column_stack(posterior.log_odds(codes, level, self.threads)))
            unknown += count
        found = np.concatenate(ends)
        warn_unknown(model, unknown, len(found))
        return np.asarray(expit(found))

    def weight_intervals(
        self, level: float = 0.9, seed: int = 0
    ) -> dict[Scope, tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]]:
        """Intervals for the weights θ of each table: lower and upper ends, in the table's shape."""
        model = model_of(self)
        lower, upper = self._posterior(seed).weights(level)
        table = model.layout.table
        return {scope: (table(lower, t), table(upper, t)) for t, scope in enumerate(model.scopes)}

    def _posterior(self, seed: int) -> Posterior:
        """Made when first asked for, and kept, with a model that was loaded in its folder: it takes about as
        long as a fit."""
        model = model_of(self)
        kept = getattr(self, "_posterior_kept", None)
        if kept is None or kept[0] is not model or kept[1] != seed:
            folder = getattr(self, "_folder", None)
            if folder is None:
                made = model_posterior(model, seed=seed, threads=self.threads)
            else:
                made = kept_posterior(model, folder, seed=seed, threads=self.threads)
            self._posterior_kept = kept = (model, seed, made)
        return kept[2]

    def explanation(self) -> Explanation:
        """The model in parts, made when first asked for."""
        return model_of(self).explanation()

    def effects(
        self, feature: str, library: str | None = None, *, level: float | None = None, seed: int = 0
    ) -> Any:
        """What each value of a feature adds to the log-odds by itself; with ``level``, intervals as well.

        As :meth:`agglearn.Model.effects`; intervals are the columns ``lower`` and ``upper``.
        """
        return make_frame(self._effect_columns(feature, level, seed), library)

    def plot_effects(
        self, feature: str, *, level: float | None = None, seed: int = 0, ax: Any = None
    ) -> EffectDisplay:
        """The effect of each value of a feature, with matplotlib; with ``level``, intervals as well."""
        return EffectDisplay(feature, self._effect_columns(feature, level, seed)).plot(ax=ax)

    def _effect_columns(self, feature: str, level: float | None, seed: int) -> dict[str, Any]:
        found = self.explanation()
        columns = found.feature_columns(feature)
        if level is not None:
            f, shares = found.schema.index[feature], found.population.shares()
            ends = effect_intervals(self._posterior(seed), shares, f, level)
            columns |= dict(zip(("lower", "upper"), ends, strict=True))
        return columns

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
            truth = self._truth(y)
            return score_predictions(truth, self.decision_function(X))
        score, unknown = evaluate(model, open_source(X), self.threads)
        warn_unknown(model, unknown, score.rows)
        return score

    def _truth(self, y: Any) -> npt.NDArray[np.uint8]:
        """Given labels as 0 and 1."""
        if getattr(self, "_of_records", False):
            found = np.searchsorted(self.classes_, np.asarray(y))
            return found.astype(np.uint8)
        return model_of(self).label.encode(pa.array(np.asarray(y)))

    def sample(self, n: int, seed: int = 0) -> Any:
        """Synthetic records with their label, in raw values, as an Arrow table."""
        return pa.concat_tables(list(sample(model_of(self), n, seed=seed, threads=self.threads)))

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a folder, atomically; intervals that were asked for are kept with it."""
        model = model_of(self)
        save_model(model, path)
        kept = getattr(self, "_posterior_kept", None)
        if kept is not None and kept[0] is model:
            keep_posterior(kept[2], model, path, kept[1])

    @classmethod
    def load(cls, path: str | Path) -> MaxEntClassifier:
        """Read a fitted model from its folder; runs no code from it.

        Intervals, once they are asked for, are kept in that folder if it can be written to.
        """
        model = load_model(path)
        settings = model.record.settings
        options = {f.name: getattr(settings, f.name) for f in fields(FitSettings)}
        classifier = cls(**options, label=model.label.name)
        classifier._take(model)
        classifier._folder = Path(path)
        return classifier

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def classes_of(y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The two classes of labels, and for each label which of them it is."""
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels)
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) != 2:
        only = "Only binary classification is supported. " if len(classes) > 2 else ""
        raise InputError(
            f"{only}the labels have {len(classes)} class{'es' * (len(classes) != 1)}, and two are needed"
        )
    return classes, codes.astype(np.int64)


def warn_unknown(model: Model, unknown: npt.NDArray[np.int64], rows: int) -> None:
    """Warn of values that the model has no modality for."""
    counts = {name: n for name, n in zip(model.schema.names, unknown.tolist(), strict=True) if n}
    notes = list(unknown_notes(counts, rows, "adds nothing to the scores"))
    few = [name for note, name in zip(notes, counts, strict=True) if note.severity != "problem"]
    for note in notes:
        if note.severity == "problem":
            warnings.warn(note.text, UnknownValuesWarning, stacklevel=3)
    if few:
        told = ", ".join(f"{name} ({counts[name]:,} of {rows:,} records)" for name in few)
        warnings.warn(
            f"values the model does not know add nothing to the scores: {told}",
            UnknownValuesWarning,
            stacklevel=3,
        )
