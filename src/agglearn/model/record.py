"""How a model was fitted, and how that ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.field.levels import Levels
from agglearn.field.problem import TableNoise
from agglearn.runtime.declared import check_fields, finite, listed, mapping, text, whole
from agglearn.train.loop import Fit
from agglearn.train.select.choose import Choice
from agglearn.train.settings import FitSettings
from agglearn.train.state import Iteration

Floats = npt.NDArray[np.float64]

_LEAST = 1e-12  # of a variance or a penalty, which is divided by


@dataclass(frozen=True, eq=False)
class FitRecord:
    """How a model was fitted, and how that ended.

    Attributes
    ----------
    settings
        As they were asked for.
    iterations, chains
        How many were done, and how many there were.
    lambda_theta, lambda_mu
        The penalties it ended with; where each table has its own, what one for all would be.
    penalties
        λ_θ of each table.
    levels
        λ_θ of the coarser tables that stood beside them (:mod:`~agglearn.field.levels`), by the number of the
        table and the level.
    mains
        How many of the tables, the last ones, are main effects that were added beside the tables given.
    stopped_because
        Why it ended.
    steps_halved
        How often a fit that grew worse had its steps halved.
    tables
        Fingerprint of the tables it was fitted to.
    noise
        The noise on them.
    variances
        Where noise was taken out of them: the variance of the weights of each table before any is seen.
    choice
        How the penalties were chosen on held-out tables, where they were.
    used
        What else than tables it was fitted with: ``records`` (see :class:`~.given.RecordsUsed`), an earlier
        model to begin ``from``, a ``prior`` and its weight.
    history
        Every iteration.
    seconds
        How long it took; like the history's times it is not the same for the same seed.
    """

    settings: FitSettings
    iterations: int
    chains: int
    lambda_theta: float
    lambda_mu: float
    penalties: Floats
    mains: int
    stopped_because: str
    steps_halved: int
    tables: str
    noise: TableNoise | None
    choice: Choice | None
    history: tuple[Iteration, ...]
    seconds: float
    used: Mapping[str, Any] = field(default_factory=dict)
    levels: Mapping[tuple[int, int], float] = field(default_factory=dict)
    variances: Floats | None = None

    @classmethod
    def of_fit(
        cls,
        fit: Fit,
        settings: FitSettings,
        choice: Choice | None,
        n_tables: int,
        seconds: float,
        used: Mapping[str, Any] | None = None,
    ) -> FitRecord:
        """The record of a fit to so many tables that has ended."""
        assert fit.state.stopped_because is not None
        return cls(
            settings=settings,
            iterations=fit.iterations,
            chains=fit.engine.n_chains,
            lambda_theta=fit.state.lambda_theta,
            lambda_mu=fit.settings.fixed_mu,
            penalties=fit.penalties,
            levels=fit.level_penalties,
            mains=fit.problem.layout.n_tables - n_tables,
            stopped_because=fit.state.stopped_because,
            steps_halved=round(-np.log2(fit.state.step_scale)),
            tables=fit.problem.fingerprint,
            noise=fit.problem.noise,
            choice=choice,
            history=tuple(fit.state.history),
            seconds=seconds,
            used=used or {},
        )

    def pull(self, theta: Floats, layout: Layout, levels: Levels | None) -> Floats:
        """What the penalties pull each weight by."""
        if levels is not None:
            variances = 0.5 / np.maximum(self.all_penalties(levels), _LEAST)
            theta = levels.split(theta, variances)[: layout.n_cells]
        return np.repeat(2 * self.penalties, layout.sizes) * theta

    def all_penalties(self, levels: Levels) -> Floats:
        """λ_θ of each table, and of the coarser ones behind them."""
        return levels.penalties(self.penalties, self.levels, self.lambda_theta)

    def to_json(self) -> dict[str, Any]:
        """All but the history and the seconds, which are not the same for the same seed, as JSON values."""
        noise = self.noise and {
            "counts": self.noise.counts.tolist(),
            "sums": self.noise.sums.tolist(),
            "shared": self.noise.covariances.tolist(),
        }
        return {
            "settings": self.settings.to_json(),
            "iterations": self.iterations,
            "chains": self.chains,
            "lambda_theta": self.lambda_theta,
            "lambda_mu": self.lambda_mu,
            "penalties": self.penalties.tolist(),
            "levels": [[*key, penalty] for key, penalty in self.levels.items()],
            "mains": self.mains,
            "stopped_because": self.stopped_because,
            "steps_halved": self.steps_halved,
            "tables": self.tables,
            "noise": noise,
            **({} if self.variances is None else {"variances": self.variances.tolist()}),
            "choice": self.choice and self.choice.to_json(),
            **({"used": dict(self.used)} if self.used else {}),
        }

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], history: Sequence[Mapping[str, Any]], seconds: float
    ) -> FitRecord:
        """The record that :meth:`to_json` gave, with the history that was kept beside it."""
        noise, choice = document["noise"], document["choice"]
        return cls(
            settings=FitSettings.from_json(document["settings"]),
            iterations=whole(document["iterations"], "iterations"),
            chains=whole(document["chains"], "chains"),
            lambda_theta=float(finite(document["lambda_theta"], "lambda_theta", 0)),
            lambda_mu=float(finite(document["lambda_mu"], "lambda_mu", 0)),
            levels={
                (whole(t, "a table"), whole(level, "a level", 1)): float(finite(penalty, "a penalty", 0))
                for t, level, penalty in (
                    listed(entry, "a level", 3) for entry in listed(document.get("levels", []), "levels")
                )
            },
            penalties=np.array(
                [finite(p, "a penalty", 0) for p in listed(document["penalties"], "penalties")], float
            ),
            mains=whole(document["mains"], "mains"),
            stopped_because=text(document["stopped_because"], "stopped_because"),
            steps_halved=whole(document["steps_halved"], "steps_halved"),
            tables=text(document["tables"], "tables"),
            noise=noise
            and TableNoise(
                _noise(noise, "counts"),
                _noise(noise, "sums"),
                _noise(noise, "shared") if "shared" in noise else None,
            ),
            choice=choice and Choice(**check_fields(Choice, {"strength": 1.0, **mapping(choice, "choice")})),
            history=tuple(Iteration.from_json(entry) for entry in history),
            seconds=float(finite(seconds, "seconds")),
            used=mapping(document.get("used", {}), "used"),
            variances=_variances(document["variances"]) if "variances" in document else None,
        )


def _noise(document: Mapping[str, Any], name: str) -> Floats:
    return np.array([finite(n, "noise", 0) for n in listed(document[name], "noise")], float)


def _variances(document: Any) -> Floats:
    return np.array([finite(v, "a variance", _LEAST) for v in listed(document, "variances")], float)
