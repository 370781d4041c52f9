"""A document as a fragment of a page, for notebooks: tables that are tables, names that are only names.

Figures are left to pages that can draw. Styles stand in the fragment, as a notebook brings its own and keeps
few of ours; colours are left to it, so that dark pages stay readable.
"""

from __future__ import annotations

from html import escape

from agglearn.report.characters import visible
from agglearn.report.document import Block, Document, Figure, Grid, Heading, Note, Paragraph, Statement

_SIGNS = {"note": "Note", "warning": "Warning", "problem": "Problem"}


def fragment(document: Document) -> str:
    """The document as HTML that can stand in any page."""
    title = f"<p><strong>{_safe(document.title)}</strong></p>" if document.title else ""
    parts = [title, *map(_block, (*document.warnings, *document.blocks))]
    return "\n".join(['<div class="agglearn">', *filter(None, parts), "</div>"])


def _safe(text: str) -> str:
    return escape(visible(text))


def _block(block: Block) -> str:
    match block:
        case Heading(said):
            return f"<h4>{_safe(said)}</h4>"
        case Statement(said):
            return f"<p><strong>{_safe(said)}</strong></p>"
        case Paragraph(said):
            return f"<p>{_safe(said)}</p>"
        case Note():
            sign = f"<strong>{_SIGNS[block.severity]}:</strong>"
            return f'<p class="agglearn-{block.severity}" role="note">{sign} {_safe(block.text)}</p>'
        case Grid():
            return _grid(block)
        case Figure():
            return ""


def _grid(grid: Grid) -> str:
    styles = [f'style="text-align:{column.align}"' for column in grid.columns]
    parts = ["<table>"]
    if grid.caption:
        parts.append(f'<caption style="text-align:left">{_safe(grid.caption)}</caption>')
    if grid.headed:
        cells = "".join(
            f'<th scope="col" {style}>{_safe(column.name)}</th>'
            for column, style in zip(grid.columns, styles, strict=True)
        )
        parts.append(f"<thead><tr>{cells}</tr></thead>")
    parts.append("<tbody>")
    for row in grid.shown():
        cells = "".join(f"<td {style}>{_safe(v)}</td>" for v, style in zip(row, styles, strict=True))
        parts.append(f"<tr>{cells}</tr>")
    return "\n".join([*parts, "</tbody></table>"])
