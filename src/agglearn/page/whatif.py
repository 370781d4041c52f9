"""What the page needs to score a record that its reader sets, or why it cannot.

The model is the JSON document of :mod:`agglearn.export.document`, its weights as base64 of doubles. Beside
them stand the parts (for what each term adds) and draws of the weights (for an interval). Draws are parted as
the weights are: what can move from one table to another without a change of any prediction cancels there, and
what is left is small enough for a byte a cell.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from agglearn.export.document import scorer_document
from agglearn.field.parts import part
from agglearn.model.model import Model
from agglearn.trust.intervals import Posterior

_MOST_CELLS = 70_000  # whose doubles take 0.75 MB of text
_MOST_TEXT = 300_000  # characters of the values of fields that are typed in
_TYPED = 150  # modalities from which a field is typed in rather than chosen from a list
_SHOWN = 200  # characters of a modality
_DRAW_BYTES = 500_000
_DRAWS = 24  # tell a standard deviation to 15 %
_FEWEST_DRAWS = 8


def whatif(model: Model, posterior: Posterior | None, level: float) -> dict[str, Any]:
    """The contents of the page's own calculator, or ``{"reason": …}`` where it has none."""
    cells = model.layout.n_cells
    if cells > _MOST_CELLS:
        return {"reason": f"the model has {cells:,} weights, too many for a page of this kind"}
    sparse = next((t for t, own in enumerate(model.layout.cells) if own.tied), None)
    if sparse is not None:
        name = " × ".join(model.scopes[sparse])
        return {"reason": f"table {name} lists only the cells that were seen, too many to look up in a page"}
    document = scorer_document(model)
    for table in document["tables"]:
        table["weights"] = _base64(np.asarray(table["weights"], "<f8"))
    typed = 0
    for feature in document["features"]:
        if len(feature["modalities"]) > _TYPED:
            typed += sum(map(len, feature["rule"].get("codes", ())))
        elif "codes" in feature["rule"]:
            feature["rule"]["codes"] = {}  # its code is chosen, not looked up
        feature["modalities"] = [text[:_SHOWN] for text in feature["modalities"]]
    if typed > _MOST_TEXT:
        return {"reason": f"its features' values are {typed:,} characters, too many for a page of this kind"}
    found = model.explanation()
    parts = found.parts
    singles = [found.feature_columns(name)["share"] for name in model.schema.names]
    return {
        "model": document,
        "first": [int(np.argmax(share)) for share in singles],
        "base": parts.base,
        "means": list(parts.means),
        "effects": [[e.tolist() for e in effects] for effects in parts.effects],
        "draws": None if posterior is None else _draws(posterior, found.population.shares(), level),
    }


def _draws(posterior: Posterior, shares: npt.NDArray[np.float64], level: float) -> dict[str, Any] | None:
    layout = posterior.fitted.layout
    count = min(_DRAWS, posterior.draws.shape[1], _DRAW_BYTES // layout.n_cells)
    if count < _FEWEST_DRAWS:
        return None
    # The first set is how far the centre is from the fit.
    fitted, centre = posterior.fitted, posterior.centre
    sets = np.column_stack([centre.theta - fitted.theta, posterior.draws[:-1, :count]])
    base = np.append(centre.intercept - fitted.intercept, posterior.draws[-1, :count].astype(float))
    effects = [np.zeros((card, count + 1)) for card in layout.cards]
    rests, factors = [], []
    for t, scope in enumerate(layout.scopes):
        d = np.asarray(layout.table(shares, t), float)
        theta = sets[layout.part(t)].reshape(*d.shape, -1)
        parted, rest = part(theta, d, len(scope) if layout.cells[t].apart else 0)
        base += (theta - rest - _outer(parted, d.ndim)).reshape(-1, count + 1)[0]
        for f, effect in zip(scope, parted, strict=False):
            effects[f] += effect
        rests.append(rest.reshape(-1, count + 1))
        factors.append(max(float(np.abs(rest).max()), 1e-12) / 127)
    whole = np.rint(np.concatenate(rests) / np.repeat(factors, layout.sizes)[:, None])
    return {
        "count": count,
        "base": base.tolist(),
        "effects": [_base64(effect.astype("<f4")) for effect in effects],
        "factors": factors,
        "rests": _base64(whole.astype("i1")),
        "quantile": float(stdtrit(count, (1 + level) / 2)),
        "level": level,
        "unknown": 1 / posterior.precision,
    }


def _outer(effects: Sequence[npt.NDArray[np.float64]], axes: int) -> npt.NDArray[np.float64] | float:
    """The sum of single effects in each cell."""
    total: npt.NDArray[np.float64] | float = 0.0
    for axis, effect in enumerate(effects):
        total = total + effect.reshape([*(-1 if i == axis else 1 for i in range(axes)), effect.shape[-1]])
    return total


def _base64(array: npt.NDArray[Any]) -> str:
    return b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
