"""How a fit ended, and how that is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agglearn.model.record import FitRecord
from agglearn.model.used import used_blocks, used_warnings
from agglearn.report.document import Block, Column, Document, Grid, Measured, Note, Paragraph, number
from agglearn.report.finding import Finding
from agglearn.train.state import Iteration


@dataclass(frozen=True)
class FitReport(Finding):
    """How a fit ended.

    Attributes
    ----------
    iterations, chains, seconds
        What it took.
    lambda_theta, lambda_mu
        The penalties it was made with.
    stopped_because
        Why no iteration followed.
    misfit_d, misfit_c
        Share of the records, and of the positives, that a table of the field has in other cells than it
        should, in the mean over tables.
    steps_halved
        How often the steps were halved because the fit grew worse.
    valid
        NLLH on the validation tables, if there are any.
    choice
        How the penalties were chosen on held-out tables, if they were: what
        :meth:`~agglearn.train.select.choose.Choice.to_json` gives.
    used
        What else than tables it was fitted with.
    """

    iterations: int
    chains: int
    seconds: float
    lambda_theta: float
    lambda_mu: float
    stopped_because: str
    misfit_d: float
    misfit_c: float
    steps_halved: int = 0
    valid: Measured | None = None
    choice: Mapping[str, Any] | None = None
    used: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: FitRecord, valid: Measured | None = None) -> FitReport:
        """The report of a model's record, and of its score on validation tables."""
        return cls(
            iterations=record.iterations,
            chains=record.chains,
            seconds=record.seconds,
            lambda_theta=record.lambda_theta,
            lambda_mu=record.lambda_mu,
            stopped_because=record.stopped_because,
            misfit_d=record.history[-1].misfit_d,
            misfit_c=record.history[-1].misfit_c,
            steps_halved=record.steps_halved,
            valid=valid,
            choice=None if record.choice is None else record.choice.to_json(),
            used=record.used,
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        valid = () if self.valid is None else zip(("valid_nllh", "valid_nllh_se"), self.valid, strict=True)
        return {
            "iterations": self.iterations,
            "seconds": self.seconds,
            "lambda_theta": self.lambda_theta,
            "lambda_mu": self.lambda_mu,
            "stopped_because": self.stopped_because,
            "chains": self.chains,
            "misfit_d": self.misfit_d,
            "misfit_c": self.misfit_c,
            **dict(valid),
            **({} if self.choice is None else {"choice": self.choice}),
            **({"used": self.used} if self.used else {}),
        }

    def document(self) -> Document:
        """How the fit ended, in words and numbers."""
        moved = f" of {self.chains:,} chains" if self.chains else ""
        took = f"{self.iterations} iterations{moved} in {self.seconds:.1f} s"
        halved = f"the fit grew worse on the way: steps were halved {self.steps_halved} times"
        return Document(
            title=f"{took} ({self.stopped_because})",
            blocks=tuple(self._blocks()),
            warnings=(
                *((Note(halved, cause="steps halved"),) if self.steps_halved else ()),
                *used_warnings(self.used),
            ),
            data=self.to_json(),
        )

    def _blocks(self) -> Iterator[Block]:
        yield Paragraph(f"penalty {self.lambda_theta:.3g}; {misfit_words(self.misfit_d, self.misfit_c)}")
        if self.valid is not None:
            yield Paragraph(valid_words(self.valid))
        yield from used_blocks(self.used)
        if self.choice is not None:
            yield _choice_grid(self.choice)


def iteration_words(entry: Iteration) -> str:
    """An iteration in a few words, beside a bar."""
    said = misfit_words(entry.misfit_d, entry.misfit_c)
    if entry.valid_nllh is not None and entry.valid_nllh_se is not None:
        said += f"; {valid_words(Measured(entry.valid_nllh, entry.valid_nllh_se))}"
    return said


def misfit_words(misfit_d: float, misfit_c: float) -> str:
    """How well a field fits its tables, in words."""
    return f"misfit {misfit_d:.2%} of records, {misfit_c:.2%} of positives a table"


def valid_words(valid: Measured) -> str:
    """How it scores on tables of other records, in words."""
    return f"NLLH on the validation tables {valid.value:.4f} ± {valid.error:.4f}"


def _choice_grid(choice: Mapping[str, Any]) -> Block:
    folds = f" of {choice['folds']} folds" if choice["folds"] > 1 else ""
    first, *others = choice["path"]
    walked = (
        (first["lambda_theta"], first["lambda_mu"], None),
        *((p["lambda_theta"], p["lambda_mu"], Measured(p["gain"], p["gain_se"])) for p in others),
    )
    return Grid(
        (
            number("λ_θ", ".3g"),
            number("λ_μ", ".3g"),
            Column("NLLH beside the first, and the standard error of the last step", "+.4f"),
        ),
        (*walked, (choice["lambda_theta"], choice["lambda_mu"], "taken")),
        caption=f"penalties chosen on held-out tables{folds}, at the cost of {choice['work']:.1f} fits:",
    )
