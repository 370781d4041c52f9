"""What a file declares, taken at its word only after a look: types, finite numbers, bounds.

Files are read by people who did not write them. Each of these gives the value it was asked for, or raises a
``ValueError`` that says what was expected; whoever reads a file turns that into a line that names it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

_MOST = 2**63 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")


def whole(value: Any, what: str, least: int = 0, most: int = _MOST) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{what} must be a whole number from {least:,}" + _up_to(most))
    return value


def _up_to(most: int) -> str:
    return f" to {most:,}" if most < _MOST else " on"


def finite(value: Any, what: str, least: float | None = None) -> float:
    """A finite number, as it is written."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, int) and abs(value) > _MOST)
    ):
        raise ValueError(f"{what} must be a number")
    if not isfinite(value) or (least is not None and value < least):
        raise ValueError(f"{what} must be a finite number" + ("" if least is None else f" from {least:g} on"))
    return value


def truth(value: Any, what: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{what} must be true or false")
    return value


def text(value: Any, what: str, empty: bool = True) -> str:
    """A text that every other program can read too."""
    if not isinstance(value, str) or _SURROGATE.search(value) or not (empty or value):
        raise ValueError(f"{what} must be text" + ("" if empty else " and not empty"))
    return value


def listed(value: Any, what: str, length: int | None = None) -> list[Any]:
    """A list, of a certain length if one is given."""
    if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
        raise ValueError(f"{what} must be a list" + ("" if length is None else f" of {length}"))
    return list(value)


def mapping(value: Any, what: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object")
    return value


def check_fields(kind: type[Any], document: Any) -> dict[str, Any]:
    """What a file gives for the fields of a dataclass, each of the plain type that the class declares."""
    declared = {f.name: str(f.type) for f in fields(kind)}
    for name, value in mapping(document, "what stands there").items():
        words = re.split(r"[^A-Za-z]+", declared.get(name, ""))
        if value is None and "None" in words:
            continue
        if "list" in words:
            listed(value, name)
        elif "bool" in words:
            truth(value, name)
        elif "int" in words and "float" not in words:
            whole(value, name)
        elif "float" in words:
            number(value, name)
        elif "str" in words:
            text(value, name)
    return dict(document)


def number(value: Any, what: str) -> float:
    """A number, which may be none that is finite: a measurement that failed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be a number")
    return value


def finite_array(
    array: npt.NDArray[Any], what: str, shape: Sequence[int], kinds: str = "f", most: float = inf
) -> npt.NDArray[Any]:
    """An array of finite numbers of this shape, no larger than the most."""
    import numpy as np  # not above: the command line reads bounds here before it loads anything heavy

    if array.dtype.kind not in kinds or array.shape != tuple(shape):
        raise ValueError(f"{what} must have {' × '.join(f'{n:,}' for n in shape)} numbers")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite numbers")
    if array.size and max(array.max(), -array.min()) > most:
        raise ValueError(f"{what} must have no number beyond {most:,.15g}")
    return array
