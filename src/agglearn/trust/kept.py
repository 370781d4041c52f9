"""What a model's tables leave open, kept with the model: to find it takes about as long as a fit.

``NAME.model/intervals/`` holds the draws of the weights that intervals are made of. It is bound by a
fingerprint to all that it follows from (the weights, the law of X, the record of the fit, the seed), so that
what was found for another model is not taken. Where it is missing, damaged or another's it is found anew, and
written where the folder lets itself be written to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import StoreError
from agglearn.model.model import Model
from agglearn.runtime.declared import finite, finite_array, text
from agglearn.runtime.files import (
    DAMAGED,
    new_folder,
    read_arrays,
    read_manifest,
    write_arrays,
    write_manifest,
)
from agglearn.tables.cells import SparseCells
from agglearn.trust.intervals import Posterior, model_posterior

FOLDER = "intervals"
FORMAT = "agglearn.intervals"
VERSION = 1


def kept_posterior(
    model: Model,
    folder: str | Path,
    *,
    seed: int = 0,
    threads: int | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Posterior:
    """What the tables leave open about a model's weights, as it is kept in the model's folder.

    Parameters
    ----------
    model, folder
        The model, and where it was read from.
    seed, threads
        Those of :func:`~agglearn.trust.intervals.model_posterior`.
    say
        Told what is being done, where it takes time, and where nothing could be kept.
    """
    target = Path(folder) / FOLDER
    bound = fingerprint(model, seed)
    found = _read(target, model, bound)
    if found is None:
        say("finding what the tables leave open, which takes about as long as a fit")
        found = model_posterior(model, seed=seed, threads=threads)
        try:
            keep_posterior(found, model, folder, seed)
        except StoreError as error:
            say(f"{error}: it is not kept, and will be found anew")
    return found


def keep_posterior(found: Posterior, model: Model, folder: str | Path, seed: int) -> None:
    """Write what was found of a model into its folder, atomically."""
    arrays: dict[str, npt.NDArray[Any]] = {"theta": found.centre.theta, "draws": found.draws}
    with new_folder(Path(folder) / FOLDER, FORMAT) as work:
        write_manifest(
            work,
            {
                "format": FORMAT,
                "version": VERSION,
                "of": fingerprint(model, seed),
                "seed": seed,
                "intercept": float(found.centre.intercept).hex(),
                "precision": float(found.precision).hex(),
                "undone": float(found.undone).hex(),
                "arrays": write_arrays(work, "intervals", arrays),
            },
        )


def fingerprint(model: Model, seed: int) -> str:
    """A checksum of all that the draws follow from; another release may draw otherwise."""
    layout, record = model.layout, model.record
    arrays: list[npt.NDArray[Any] | None]
    arrays = [model.field.theta, model.field.mu, model.chains, model.prior]
    arrays += [own.listed for own in layout.cells if isinstance(own, SparseCells)]
    told = {
        "agglearn": version("agglearn"),
        "seed": seed,
        "cards": layout.cards,
        "tables": layout.scopes,
        "hash_sizes": layout.buckets,
        "intercept": float(model.field.intercept).hex(),
        "apart": model.field.apart,
        "rows": model.rows,
        "fit": record.to_json(),
        "moved": [(entry.iteration, entry.moved) for entry in record.history],
        "shapes": [None if array is None else array.shape for array in arrays],
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for array in arrays:
        digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read(target: Path, model: Model, bound: str) -> Posterior | None:
    """What is kept there, if it is whole and of this model."""
    try:
        document = read_manifest(target, FORMAT, VERSION)
        if document["of"] != bound:
            return None
        arrays = read_arrays(target, document["arrays"])
        n_cells = model.layout.n_cells
        draws = arrays["draws"]
        finite_array(draws, "draws", (n_cells + 1, draws.shape[1]))
        finite_array(arrays["theta"], "theta", (n_cells,))
        if draws.dtype != np.float32 or draws.shape[1] < 2:
            return None
        intercept, precision, undone = (
            _number(document, name) for name in ("intercept", "precision", "undone")
        )
        if not precision > 0:
            return None
    except DAMAGED:
        return None
    centre = replace(model.field, theta=arrays["theta"], intercept=intercept)
    return Posterior(model.field, centre, draws, precision, undone)


def _number(document: dict[str, Any], name: str) -> float:
    return float(finite(float.fromhex(text(document[name], name)), name))
