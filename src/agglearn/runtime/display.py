"""What a value shows of itself: a few lines on a terminal, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 120
_CLIPPED = 30


def clip(text: str, width: int = _CLIPPED) -> str:
    """A text on one line, its end left out where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def counted(n: float, noun: str) -> str:
    """``1 table``, ``2 tables``."""
    return f"{n:,.0f} {noun}{'' if n == 1 else 's'}"


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], left_out: int = 0) -> str:
    """A table with a caption, escaped; ``left_out`` rows are not shown."""

    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(clip(cell, WIDTH))}</{tag}>" for cell in cells) + "</tr>"

    body = [row("td", cells) for cells in rows]
    if left_out:
        body.append(f'<tr><td colspan="{len(header)}">… and {left_out:,} more</td></tr>')
    return (
        f'<table><caption style="text-align: left">{escape(title)}</caption>'
        f"<thead>{row('th', header)}</thead><tbody>{''.join(body)}</tbody></table>"
    )
