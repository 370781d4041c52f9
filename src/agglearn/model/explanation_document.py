"""How an explanation is told: what a model rests on, and what values and cells add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agglearn.model.explanation import Explanation, Term
from agglearn.report.document import Block, Column, Document, Grid, Paragraph, Value, number

_BAR = 16  # places of a bar


def importance_document(found: Explanation, top: int = 20) -> Document:
    """Features and tables by how far they move the log-odds."""
    features = [term for term in found.terms if term.kind == "feature"]
    joint = [term for term in found.terms if term.kind != "feature"]
    blocks: list[Block] = [
        Paragraph(
            "spread: standard deviation of what it adds to the log-odds; share: of their variance, all "
            f"together 100%. Without anything known the log-odds are {found.parts.base:+.3f}."
        ),
        _terms(features, "feature", top),
        *([_terms(joint, "together, beyond what each says alone", top)] if joint else []),
    ]
    data = {
        "base": found.parts.base,
        "terms": [
            {"term": t.name, "features": t.features, "kind": t.kind, "spread": t.spread, "share": t.share}
            for t in found.terms
        ],
    }
    return Document(title="what the predictions rest on", blocks=tuple(blocks), data=data)


def _terms(terms: Sequence[Term], name: str, top: int) -> Grid:
    most = max((term.spread for term in terms), default=0.0)
    shown = terms[:top]
    left = len(terms) - len(shown)
    rows = [(term.spread, term.share, _bar(term.spread, most), term.name) for term in shown]
    caption = f"the first {len(shown)} of {len(terms):,}:" if left else ""
    return Grid(
        (number("spread", ".3f"), number("share", ".1%"), Column(""), Column(name)), tuple(rows), caption
    )


def _bar(value: float, most: float) -> str:
    return "█" * round(_BAR * value / most) if most > 0 else ""


def effects_document(found: Explanation, name: str, columns: Mapping[str, Any], top: int = 50) -> Document:
    """What each value of a feature adds; of many values the most frequent."""
    share, effect = (np.asarray(columns[key], float) for key in ("share", "effect"))
    most = np.argsort(-share, kind="stable")[:top]
    shown = np.sort(most)
    ends = [number("lower", "+.3f"), number("upper", "+.3f")] if "lower" in columns else []
    heads = (number("records", ".1%"), number("rate", ".1%"), number("effect", "+.3f"), *ends, Column(name))
    keys = ["share", "rate", "effect", *(("lower", "upper") if ends else ()), "value"]
    rows = tuple(
        tuple(str(columns[k][i]) if k == "value" else float(columns[k][i]) for k in keys) for i in shown
    )
    left = share.size - len(shown)
    caption = f"the {len(shown)} most frequent of {share.size:,} values:" if left else ""
    spread = float(np.sqrt(max(float((share * effect**2).sum()), 0.0)))
    return Document(
        title=f"{name}: what its values add to the log-odds by themselves (spread {spread:.3f})",
        blocks=(Grid(heads, rows, caption),),
        data={"feature": name, "values": _rows(columns)},
    )


def cells_document(found: Explanation, features: tuple[str, ...], top: int = 20) -> Document:
    """What combinations of values add; of many those that move the most records the farthest."""
    columns = found.cell_columns(features)
    share, interaction = (np.asarray(columns[key], float) for key in ("share", "interaction"))
    weight = np.sqrt(share) * np.abs(interaction)
    shown = np.argsort(-weight, kind="stable")[:top]
    names = [name for name in columns if name not in ("share", "interaction", "effect", "rate")]
    heads = (
        number("records", ".2%"),
        number("rate", ".1%"),
        number("alone", "+.3f"),
        number("together", "+.3f"),
        *(Column(name) for name in names),
    )
    alone = np.asarray(columns["effect"], float) - interaction
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            float(share[i]),
            float(columns["rate"][i]),
            float(alone[i]),
            float(interaction[i]),
            *(str(columns[name][i]) for name in names),
        )
        for i in shown
    )
    caption = f"the {len(shown)} that matter most of {share.size:,}:" if len(shown) < share.size else ""
    return Document(
        title=f"{' × '.join(features)}: what they add to the log-odds alone, and together beyond that",
        blocks=(Grid(heads, rows, caption),),
        data={"features": features, "cells": _rows(columns)},
    )


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists = [np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
