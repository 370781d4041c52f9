"""A model as an ONNX graph: raw columns in, or codes; probability out.

Every feature is an input of its name, a vector over the records. A feature that is cut into bins, or whose
values are whole numbers, takes doubles, NaN where missing; any other takes strings, and the text that says
*missing* stands in the model's metadata (``missing``). The encoding is part of the graph: comparisons with
the edges of bins, and look-ups. The codes of a record then point into arrays of weights (:mod:`.folding`) by
one matrix product: their strides.

A double cannot hold text, so a number that is none (``"about 40"``) has to be given as NaN; where the model
tells missing values from such text the two then count alike. :func:`onnx_inputs` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.export.folding import fold, padded_size
from agglearn.model.model import Model
from agglearn.records.sources import open_source
from agglearn.schema.columns import as_numbers, as_text
from agglearn.schema.features import MISSING, Feature
from agglearn.schema.rules import Cuts, LookUp
from agglearn.schema.schema import require_columns

INPUTS = ("raw", "codes")
LOG_ODDS, PROBABILITY, CODES = "log_odds", "probability", "codes"
_OPSET, _ML_OPSET, _IR = 18, 3, 9
_LARGEST_INTEGER = 2**53  # that a double counts up to
_WRITTEN_OUT = 1_000_000  # combinations of a hashed table whose buckets are written out
_MOST_NUMBERS = 1 << 27  # of all arrays: 1 GiB, and a file has 2 at most


def onnx_model(model: Model, inputs: str = "raw") -> Any:
    """The graph of a model, as an ``onnx.ModelProto``.

    Parameters
    ----------
    model
        The model.
    inputs
        ``raw`` columns, or ``codes``: one matrix of whole numbers, a row for each record and a column for
        each feature; a code below 0 or past the feature's last modality is unknown.
    """
    if inputs not in INPUTS:
        raise InputError(f"inputs {inputs!r} is not one of {', '.join(INPUTS)}")
    try:
        import onnx
    except ImportError:
        raise InputError("ONNX needs a library of its own: pip install 'agglearn[onnx]'") from None
    _check(model)
    graph = _Graph(onnx)
    codes = _given_codes(graph, model) if inputs == "codes" else _raw_codes(graph, model)
    graph.output(_log_odds(graph, model, codes), LOG_ODDS)
    graph.node("Sigmoid", [LOG_ODDS], output=PROBABILITY)
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "agglearn",
            graph.inputs,
            [graph.vector(LOG_ODDS, np.float64), graph.vector(PROBABILITY, np.float64)],
            graph.constants,
        ),
        producer_name="agglearn",
        ir_version=_IR,
        opset_imports=[
            onnx.helper.make_opsetid("", _OPSET),
            onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
        ],
    )
    onnx.helper.set_model_props(made, _properties(model))
    onnx.checker.check_model(made)
    return made


def onnx_inputs(model: Model, records: Any) -> dict[str, npt.NDArray[Any]]:
    """What to feed the graph of raw columns with, for records in a frame, a dict or a file.

    Raises
    ------
    InputError
        A number that is none stands where the model has a place for missing values: doubles cannot tell the
        two apart.
    """
    source = open_source(records)
    names = list(model.schema.names)
    require_columns(names, source.columns)
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
    for batch in source.batches(names):
        for feature in model.schema.features:
            parts[feature.name].append(_input_values(feature, batch.column(feature.name)))
    return {name: np.concatenate(arrays) if arrays else np.zeros(0) for name, arrays in parts.items()}


def _input_values(feature: Feature, column: Any) -> npt.NDArray[Any]:
    if _takes_numbers(feature):
        numbers, bad = as_numbers(column)
        if isinstance(feature.rule, Cuts) and bad.any() and feature.missing:
            raise InputError(
                f"column {feature.name!r} has text that is no number, which the model tells from missing "
                "values and doubles cannot: score these records with predict, or export python"
            )
        return np.where(bad, np.inf, numbers) if isinstance(feature.rule, LookUp) else numbers
    texts = as_text(column).to_pylist()
    missing = missing_text(feature)
    return np.array([missing if text is None else text for text in texts], object)


def missing_text(feature: Feature) -> str:
    """The text that says missing to an input of strings: one that is no value of the feature."""
    text = MISSING
    assert isinstance(feature.rule, LookUp)
    while text in feature.rule.codes:
        text += "'"
    return text


def _properties(model: Model) -> dict[str, str]:
    texts = {f.name: missing_text(f) for f in model.schema.features if not _takes_numbers(f)}
    return {
        "label": json.dumps(vars(model.label)),
        "features": json.dumps(list(model.schema.names)),
        "modalities": json.dumps({f.name: f.modalities for f in model.schema.features}),
        "missing": json.dumps(texts),
    }


def _check(model: Model) -> None:
    if "" in model.schema.names:
        raise InputError("ONNX cannot carry this model: an input needs a name, and one feature has none")
    clash = {LOG_ODDS, PROBABILITY} & set(model.schema.names)
    if clash:
        raise InputError(
            f"ONNX cannot carry this model: a feature and an output are both called {clash.pop()!r}"
        )
    layout = model.layout
    numbers = sum(
        padded_size(layout.cards, scope) for t, scope in enumerate(layout.scopes) if _dense(model, t)
    )
    numbers += sum(layout.sizes[t] for t in range(layout.n_tables) if not _dense(model, t))
    if numbers > _MOST_NUMBERS:
        largest = max(range(layout.n_tables), key=lambda t: padded_size(layout.cards, layout.scopes[t]))
        raise InputError(
            f"ONNX cannot carry this model: its tables have {numbers:,} numbers, and a file holds at most "
            f"{_MOST_NUMBERS:,}; hash the largest tables, of which {' × '.join(model.scopes[largest])} is one"
        )


def _dense(model: Model, t: int) -> bool:
    layout = model.layout
    return layout.cells[t].apart or padded_size(layout.cards, layout.scopes[t]) <= _WRITTEN_OUT


def _takes_numbers(feature: Feature) -> bool:
    rule = feature.rule
    if isinstance(rule, Cuts):
        return True
    return rule.value_type == "integer" and all(abs(int(v)) < _LARGEST_INTEGER for v in rule.codes)


class _Graph:
    """Nodes and constants as they come."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def node(
        self, kind: str, inputs: list[str], output: str | None = None, domain: str = "", **options: Any
    ) -> str:
        """Add a node; its output's name."""
        output = output or f"agglearn node {len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], domain=domain, **options))
        return output

    def constant(self, value: npt.ArrayLike, dtype: Any) -> str:
        """Add a constant; its name."""
        name = f"agglearn constant {len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        return self.node("Cast", [value], to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def where(self, condition: str, value: str, otherwise: str) -> str:
        return self.node("Where", [condition, value, otherwise])

    def vector(self, name: str, dtype: Any, width: int | None = None) -> Any:
        """A vector over the records, or a matrix."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, ["records", *([width] if width else [])])

    def output(self, value: str, name: str) -> None:
        self.node("Identity", [value], output=name)


def _given_codes(graph: _Graph, model: Model) -> list[str]:
    """A column of the matrix for each feature, with unknown codes as the feature's M."""
    cards = model.layout.cards
    graph.inputs.append(graph.vector(CODES, np.int64, len(cards)))
    most = graph.constant(cards, np.int64)
    known = graph.node("GreaterOrEqual", [CODES, graph.constant(0, np.int64)])
    clipped = graph.node("Min", [graph.where(known, CODES, most), most])
    return [graph.node("Gather", [clipped, graph.constant(f, np.int64)], axis=1) for f in range(len(cards))]


def _raw_codes(graph: _Graph, model: Model) -> list[str]:
    """The code of each feature from its raw column."""
    codes = []
    for feature in model.schema.features:
        dtype = np.float64 if _takes_numbers(feature) else np.object_
        graph.inputs.append(graph.vector(feature.name, dtype))
        rule = feature.rule
        if isinstance(rule, Cuts):
            codes.append(_cut(graph, feature.name, rule))
        elif _takes_numbers(feature):
            codes.append(_whole(graph, feature.name, rule))
        else:
            codes.append(_look_up(graph, feature, rule))
    return codes


def _cut(graph: _Graph, column: str, rule: Cuts) -> str:
    """How many edges lie at or below the number."""
    axis = graph.constant([1], np.int64)
    apart = graph.node("Unsqueeze", [column, axis])
    above = graph.node("GreaterOrEqual", [apart, graph.constant(rule.edges[None, :], np.float64)])
    count = graph.node("ReduceSum", [graph.cast(above, np.int64), axis], keepdims=0)
    return graph.where(graph.node("IsNaN", [column]), graph.constant(rule.missing, np.int64), count)


def _whole(graph: _Graph, column: str, rule: LookUp) -> str:
    """Whole numbers by their code; others have the default."""
    default = graph.constant(rule.default, np.int64)
    size = graph.node("Abs", [column])
    small = graph.node("Less", [size, graph.constant(_LARGEST_INTEGER, np.float64)])
    whole = graph.node("And", [small, graph.node("Equal", [graph.node("Floor", [column]), column])])
    number = graph.cast(graph.where(whole, column, graph.constant(0, np.float64)), np.int64)
    found = graph.node(
        "LabelEncoder",
        [number],
        domain="ai.onnx.ml",
        keys_int64s=[int(v) for v in rule.codes],
        values_int64s=list(rule.codes.values()),
        default_int64=rule.default,
    )
    code = graph.where(whole, found, default)
    return graph.where(graph.node("IsNaN", [column]), graph.constant(rule.missing, np.int64), code)


def _look_up(graph: _Graph, feature: Feature, rule: LookUp) -> str:
    """Texts by their code."""
    codes: Mapping[str, int] = rule.codes
    if rule.value_type == "boolean":  # some tools write True, some true
        codes = {written: c for v, c in codes.items() for written in (v, v.capitalize(), v.upper())}
    codes = {**codes, missing_text(feature): rule.missing}
    return graph.node(
        "LabelEncoder",
        [feature.name],
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=rule.default,
    )


def _log_odds(graph: _Graph, model: Model, codes: list[str]) -> str:
    """The intercept and what every array adds; then what large hashed tables add."""
    tables = range(model.layout.n_tables)
    arrays = fold(model, [t for t in tables if _dense(model, t)])
    total = graph.constant(model.field.intercept, np.float64)
    if arrays:
        strides = np.zeros((len(codes), len(arrays)))
        for k, array in enumerate(arrays):
            sizes = array.weights.shape
            for place, f in enumerate(array.features):
                strides[f, k] = np.prod(sizes[place + 1 :])
        starts = np.cumsum([0, *(array.weights.size for array in arrays[:-1])])
        axis = graph.constant([1], np.int64)
        columns = [graph.node("Unsqueeze", [graph.cast(code, np.float64), axis]) for code in codes]
        matrix = graph.node("Concat", columns, axis=1)
        places = graph.node("MatMul", [matrix, graph.constant(strides, np.float64)])
        places = graph.node("Add", [places, graph.constant(starts, np.float64)])
        flat = graph.constant(np.concatenate([array.weights.ravel() for array in arrays]), np.float64)
        weights = graph.node("Gather", [flat, graph.cast(places, np.int64)])
        total = graph.node("Add", [graph.node("ReduceSum", [weights, axis], keepdims=0), total])
    for t in tables:
        if not _dense(model, t):
            total = graph.node("Add", [total, _hashed(graph, model, t, codes)])
    return total


def _hashed(graph: _Graph, model: Model, t: int, codes: list[str]) -> str:
    """The weight of a combination's bucket, found as :mod:`agglearn.tables.hashing` does; 0 if unknown."""
    layout = model.layout
    multiplier = graph.constant(0x9E3779B97F4A7C15 - 2**64, np.int64)  # products wrap around
    shift = graph.constant(29, np.uint64)
    state, known = "", ""
    for f in layout.scopes[t]:
        plus_one = graph.node("Add", [codes[f], graph.constant(1, np.int64)])
        mixed = graph.node("BitwiseXor", [state, plus_one]) if state else plus_one
        product = graph.cast(graph.node("Mul", [mixed, multiplier]), np.uint64)
        shifted = graph.node("BitShift", [product, shift], direction="RIGHT")
        state = graph.cast(graph.node("BitwiseXor", [product, shifted]), np.int64)
        here = graph.node("Less", [codes[f], graph.constant(layout.cards[f], np.int64)])
        known = graph.node("And", [known, here]) if known else here
    bucket = graph.node("Mod", [graph.cast(state, np.uint64), graph.constant(layout.buckets[t], np.uint64)])
    weights = graph.constant(model.field.theta[layout.part(t)], np.float64)
    found = graph.node("Gather", [weights, graph.cast(bucket, np.int64)])
    return graph.where(known, found, graph.constant(0, np.float64))
