"""A model judged on tables of other records: its score, and where its predictions are off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.errors import InputError
from agglearn.field.engines.local import memory_needed
from agglearn.field.heldout import TableScore, score_heldout
from agglearn.field.problem import Problem
from agglearn.model.draw import set_moving
from agglearn.model.model import Model
from agglearn.report.document import Document
from agglearn.report.finding import Finding
from agglearn.runtime.memory import require
from agglearn.runtime.threads import thread_count
from agglearn.tables.data import AggregatedData
from agglearn.trust.calibration import Calibration, calibrate
from agglearn.trust.inputs import model_of, problem_of
from agglearn.trust.score_document import score_document

if TYPE_CHECKING:
    from agglearn.classifier import MaxEntClassifier

Codes = npt.NDArray[np.uint16]

# With the 10,000 chains of a fit of Adult the chains' part of the standard error was 0.003; with these 0.001.
_RECORDS = 60_000
_SETTLE = 5  # sweeps at the final weights before the first draw: training left the chains at the last ones
_GAP = 3  # sweeps between two draws of a chain
_FIRST_SWEEP = 1 << 24  # a number that training does not reach, so that no random number is used twice
_WORKSPACE = 14 * 8  # bytes a cell: tables, weights and the vectors of the conjugate gradients


@dataclass(frozen=True)
class HeldoutScore(TableScore, Finding):
    """What held-out tables say of a model: :class:`~agglearn.field.heldout.TableScore`, and calibration.

    Attributes
    ----------
    calibration
        Where the held-out labels are not what the model expects, cell by cell.
    """

    calibration: Calibration

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON values."""
        return {**super().to_json(), "calibration": self.calibration.to_json()}

    def document(self) -> Document:
        """The score, in words and numbers."""
        return replace(score_document(self, self.calibration), data=self.to_json())


def score_tables(
    model: Model | MaxEntClassifier,
    tables: AggregatedData,
    *,
    law: Model | MaxEntClassifier | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> HeldoutScore:
    """Score a model on tables of records it was not fitted on.

    Parameters
    ----------
    model
        The model to judge.
    tables
        Tables of other records, over the model's schema: the validation part of a split.
    law
        The model whose law of X is averaged over where tables do not tell enough: the model itself, unless
        another is given. To compare models of one data set, give each the same, well-fitted law.
    threads
        Threads to use (all cores by default); they change the time, never the result.
    seed
        Seed of the draws.

    Notes
    -----
    The score assumes that the law's features have no structure among three or more that no table shows;
    where they have, NLLH is too high (see :mod:`agglearn.field.heldout`). AUC and Brier score are those that
    the model itself expects.

    Examples
    --------
    >>> import agglearn
    >>> records = {"colour": ["red", "blue"] * 50, "size": ["S", "S", "L", "L"] * 25,
    ...            "click": [1, 0, 1, 1] * 25}
    >>> train, valid = agglearn.aggregate(records, "click"), agglearn.aggregate(records, "click")
    >>> model, seconds = agglearn.Model.fit(train)
    >>> score = agglearn.score_tables(model, valid)
    >>> 0 < score.nllh_se < 1
    True
    """
    judged, drawn_from = model_of(model), model_of(model if law is None else law)
    if drawn_from.schema.features != judged.schema.features:
        raise InputError("the law has another schema than the model: fit both to tables of one split")
    if seed < 0:
        raise InputError(f"seed {seed} must be at least 0")
    workers = thread_count(threads)
    problem = problem_of(judged, tables)
    own = problem if drawn_from.layout == judged.layout else problem_of(drawn_from, tables)
    codes, draws = draw_chains(drawn_from, own, seed, workers)
    noise = tables.noise_of(judged.scopes)
    options: dict[str, Any] = {"draws": draws, "noise": noise if noise.any() else None}
    score = score_heldout(problem, codes, judged.theta, judged.intercept, workers, **options)
    p = expit(judged.log_odds(codes, workers))
    calibration = calibrate(problem, judged.schema, codes, p, workers, **options)
    return HeldoutScore(**vars(score), calibration=calibration)


def draw_chains(law: Model, tables: Problem, seed: int, threads: int) -> tuple[Codes, int]:
    """Fresh records of a model, a row per feature, and how often each chain was drawn."""
    if law.chains is None:
        return np.ascontiguousarray(law.exact_draws(_RECORDS, seed).T), 1
    n_chains, n_cells = len(law.chains), law.layout.n_cells
    require(
        memory_needed(law.layout, n_chains) + _WORKSPACE * n_cells,
        f"scoring a field of {n_cells:,} cells with {n_chains:,} chains",
        "fit with fewer chains (--chains), fewer or hashed tables",
    )
    moving = set_moving(law, law.chains, tables, seed, threads)
    draws = max(1, -(-_RECORDS // n_chains))
    drawn = []
    for sweep in range(_SETTLE + _GAP * (draws - 1)):
        moving.sweep(law.mu, law.theta, law.intercept, _FIRST_SWEEP + sweep)
        if sweep >= _SETTLE - 1 and (sweep - _SETTLE + 1) % _GAP == 0:
            drawn.append(moving.chains.T)
    return np.ascontiguousarray(np.concatenate(drawn, axis=1)), draws
