"""What else than tables a model was fitted with, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agglearn.report.document import Block, Column, Grid, Note, Paragraph, number
from agglearn.runtime.speech import option

_SHOWN = 5  # tables that are farthest from the records
_MOSTLY = 0.95  # of what features showed: a score by the same tables takes their noise for what it is of
_SURE = 2.0  # standard errors that a score is to be above that of a constant
_FAR = 3.0  # standard errors beyond chance, above which a distance is worth showing


def used_blocks(used: Mapping[str, Any]) -> Iterator[Block]:
    """Records, an earlier model, a prior: whichever there were."""
    if "noise" in used:
        yield from _noise(used["noise"])
    if "public" in used:
        yield from _public(used["public"])
    if "records" in used:
        yield from _records(used["records"])
    if "from" in used:
        yield Paragraph(f"begun from a model of {used['from']['rows']:,.0f} records{_changed(used['from'])}")
    if "prior" in used:
        weight = "" if used["prior"]["weight"] == 1 else f", {used['prior']['weight']:g} times as strongly"
        yield Paragraph(f"pulled to a model of {used['prior']['rows']:,.0f} records{weight}")


def _noise(used: Mapping[str, Any]) -> Iterator[Block]:
    yield Paragraph(
        f"{used['tables']:,} of the tables are noisy: before the fit all were made to agree, and what is "
        "likely to be noise was taken out"
    )
    if "share" in used:  # files of before say how much heavier all penalties were
        yield Paragraph(
            f"noise is {used['share']:.0%} of what single features showed of the label; penalties follow it"
        )
    if "nllh" in used:
        yield Paragraph(f"NLLH by its own noisy tables {used['nllh']:.4f} ± {used['nllh_se']:.4f}")


def _public(used: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    of_each = number("records", ",.0f"), number("weight", ".0%"), number("apart", ".1%")
    columns = (Column("public table"), *of_each)
    rows = tuple((one["scope"], one["rows"], one["weight"], one["apart"]) for one in used[:_SHOWN])
    more = "" if len(used) <= _SHOWN else f" (the first {_SHOWN} of {len(used):,} tables)"
    told = f"what public tables of X weighed beside the noisy ones, and how far their people are apart{more}:"
    yield Grid(columns, rows, caption=told)


def used_warnings(used: Mapping[str, Any]) -> Iterator[Note]:
    """What is to be minded: noise that nobody declared, and a model that may be no better than a constant."""
    noise = used.get("noise", {})
    score = (
        f"NLLH {noise['nllh']:.3f} ± {noise['nllh_se']:.3f} by its own noisy tables"
        if "nllh" in noise
        else ""
    )
    unsure = "nllh" in noise and noise["nllh"] < _SURE * noise["nllh_se"]
    if unsure or noise.get("share", 0.0) > _MOSTLY:
        why = (
            score if unsure else f"noise is {noise['share']:.0%} of what single features showed of the label"
        )
        yield Note(
            f"this model may be no better than a constant: {why}; ask for fewer tables or coarser values "
            "with the same noise",
            cause="no better than a constant",
        )
    if "undeclared" in used:
        found, told = used["undeclared"]["implied"], used["undeclared"]["declared"]
        declared = "none" if told is None else f"{told:.3g}"
        yield Note(
            f"the tables disagree as if each cell had noise of standard deviation {found:.3g}, and "
            f"{declared} is declared: the fit believes what is declared ({option('noise')} of receive)",
            cause="undeclared noise",
        )
    if used.get("denoised"):
        yield Note(
            "noise was taken out of these tables before, and how much is left of it is not known here: "
            "a fit to the noisy tables themselves knows, and is better",
            cause="noise taken out",
        )


def _records(used: Mapping[str, Any]) -> Iterator[Block]:
    said = [f"X by {used['rows']:,} records"]
    if used["same"]:
        said.append("those behind the tables")
    elif used["greatest"] != 1:
        worth = f"worth {used['effective']:,.0f}, the greatest counts {used['greatest']:.1f}"
        said.append(f"weighted to the tables ({worth})")
    if used["share"] < 1:
        said.append(f"beside chains, trusted with {used['share']:.1%}")
    if used["left_out"]:
        said.append(f"{used['left_out']:,} more have values that the tables do not know")
    if used["labelled"]:
        said.append("their label was not looked at")
    yield Paragraph("; ".join(said))
    if used["kept"]:
        kept = f"the model keeps {used['kept']:,} coded records as its law of X"
        yield Paragraph(f"{kept}: mind whom you give it to")
    far = [(name, z) for name, z in used["distances"] if z > _FAR][:_SHOWN]
    if far:
        columns = (Column("table"), number("standard errors", "+.1f"))
        yield Grid(columns, tuple(far), caption="records and tables differ beyond chance, most in:")


def _changed(used: Mapping[str, Any]) -> str:
    said = []
    for word, found in (("new", used["new"]), ("gone", used["gone"])):
        if found:
            listed = "; ".join(f"{name}: {', '.join(values[:4])}" for name, values in found.items())
            said.append(f"; {word}: {listed}")
    return "".join(said)
