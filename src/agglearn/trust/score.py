"""A model judged on tables of other records: its score, and where its predictions are off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agglearn.errors import InputError
from agglearn.field.heldout import TableScore, score_heldout
from agglearn.model.draw import population
from agglearn.model.model import Fitted, Model, model_of, problem_of
from agglearn.report.document import Document, Note
from agglearn.report.finding import Finding
from agglearn.runtime.options import check_seed
from agglearn.tables.data import AggregatedData
from agglearn.trust.calibration import Calibration, calibrate
from agglearn.trust.score_document import score_document

_SAYS_NOTHING = 0.2  # of NLLH, which is between 0 and 1 for a model that is any good


@dataclass(frozen=True)
class HeldoutScore(TableScore, Finding):
    """What held-out tables say of a model: :class:`~agglearn.field.heldout.TableScore`, and calibration.

    Attributes
    ----------
    calibration
        Where the held-out labels are not what the model expects, cell by cell.
    own_tables
        Whether these are the very tables that the model was fitted to.
    """

    calibration: Calibration
    own_tables: bool = False

    @property
    def known(self) -> bool:
        """Whether the tables tell a score: no model has an NLLH above 1, and a huge error says nothing."""
        return self.nllh <= 1 and self.nllh_se < _SAYS_NOTHING

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON values; what is not known is null."""
        document = {
            **super().to_json(),
            "calibration": self.calibration.to_json(),
            "own_tables": self.own_tables,
        }
        return document if self.known else {**document, "nllh": None, "log_loss": None}

    def document(self) -> Document:
        """The score, in words and numbers."""
        told = score_document(self, self.calibration, self.known)
        return replace(told, data=self.to_json()).warned(*self._doubts())

    def _doubts(self) -> Iterator[Note]:
        if self.own_tables:
            yield Note(
                "these are the very tables that the model was fitted to, so the score is too high: give "
                "tables of other records",
                "warning",
                "own tables",
            )
        if not self.known:
            yield Note(
                f"the tables do not tell a score ({self.nllh:.3g} ± {self.nllh_se:.2g}): their noise is too "
                "large for this model's weights, or its training went astray; evaluate it on records",
                "warning",
                "no score",
            )


def score_tables(
    model: Model | Fitted,
    tables: AggregatedData,
    *,
    law: Model | Fitted | None = None,
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
    >>> model = agglearn.fit(train)
    >>> score = agglearn.score_tables(model, valid)
    >>> 0 < score.nllh_se < 1
    True
    """
    judged, drawn_from = model_of(model), model_of(model if law is None else law)
    if drawn_from.schema.features != judged.schema.features:
        raise InputError("the law has another schema than the model: fit both to tables of one split")
    check_seed(seed)
    problem = problem_of(judged, tables)
    own = problem if drawn_from.layout == judged.layout else problem_of(drawn_from, tables)
    law_of_x = population(drawn_from, own, seed=seed, threads=threads).over(judged.layout)
    score = score_heldout(problem, law_of_x, judged.field)
    calibration = calibrate(problem, judged.schema, law_of_x, judged.field)
    own_tables = judged.record.tables == problem.fingerprint
    return HeldoutScore(**vars(score), calibration=calibration, own_tables=own_tables)
