"""The two Criteo data sets of Table 4. Their licences do not let them be fetched for the reader; with the
published files in the data home ([which and where](criteo.md)) these are the real rows. Without them the same
pipeline runs on files of the same formats and sizes, written by a simulator (`agglearn.datasets.AdsLog`:
features of up to 10,000 modalities, strongly correlated in three groups, and a click whose true probability
is known). Such rows are marked **simulated**: they prove the pipeline and show how the models compare, and
their NLLH is not to be held against the paper's, which is of other data.

*Attribution*: the file is streamed twice, for vocabularies (values of 20 records and fewer are folded, as the
authors' code does) and for counts; 30 % of the records are for testing, 2 % for validation, and no table
counts them. *AdKDD, target encodings*: features of more than 100 values are encoded by count and click rate
on held-out records, each to under 1,000 modalities, and the other records are streamed through these
encodings into the tables of all 171 pairs. *AdKDD, raw*: the challenge's noisy pairs and singles (cells of
more than ten records, Gaussian noise of σ = 17 on each number) are received as they are; as in the paper the
field leaves out the features of most modalities, here those of more than 5,000. Tables of more than a million
cells are hashed to a million buckets.

Penalties, the pair and the iteration at which Naive Bayes stops are chosen on validation records (for AdKDD
the challenge's few records with labels), penalties from powers of 4. The one-hot of 80 million records over
171 pairs would take a quarter of a terabyte, so the logistic is fitted to a random sample of the training
records, by L-BFGS on their codes (`evidence/paper/criteo_models.py`). It is no skyline of all records; the
field on the tables of the very same sample stands beside it.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from agglearn.runtime.memory import size
from evidence.figures import BLUE, GREEN, GREY, ORANGE, figure
from evidence.page import picture, table
from evidence.paper import criteo_files, published
from evidence.paper.criteo_simulated import AdKddSizes
from evidence.paper.criteo_stages import Sizes, adkdd_files, adkdd_tables, attribution_files
from evidence.runner import Cell, Results, Value
from evidence.timing import in_process

TITLE = "The Criteo data sets (Table 4)"

FULL = Sizes(
    attribution_rows=16_000_000,
    attribution_modalities=700,
    adkdd=AdKddSizes(
        rows=80_000_000,
        part_rows=4_000_000,
        more_rows=4_000_000,
        valid_rows=100_000,
        test_rows=1_000_000,
        modalities=10_000,
    ),
    encode_over=100,
    encoding_modalities=500,
    hash_size=1 << 20,
    raw_most=5_000,
    sample_rows=1_000_000,
    chains=100_000,
    iterations=60,
    logistic_iterations=60,
    naive_bayes_iterations=30,
)
QUICK = Sizes(
    attribution_rows=200_000,
    attribution_modalities=60,
    adkdd=AdKddSizes(
        rows=400_000,
        part_rows=200_000,
        more_rows=100_000,
        valid_rows=30_000,
        test_rows=50_000,
        modalities=400,
    ),
    encode_over=100,
    encoding_modalities=100,
    hash_size=1 << 14,
    raw_most=200,
    sample_rows=100_000,
    chains=20_000,
    iterations=60,
    logistic_iterations=40,
    naive_bayes_iterations=20,
)

ROWS = {
    "attribution": ("attribution", "Criteo-Attribution"),
    "raw": ("adkdd_raw", "Criteo-AdKDD, raw"),
    "encoded": ("adkdd_encoded", "Criteo-AdKDD, target encodings"),
}
"""Our data sets: their keys among the paper's figures, and what they are called."""

COLUMNS = {
    "logistic": "logistic, sample",
    "field_sample": "field, same sample",
    "field": "field",
    "naive_bayes_stopped": "Naive Bayes, stopped",
    "naive_bayes": "Naive Bayes, L2",
    "naive_bayes_plain": "Naive Bayes",
    "best_pair": "best pair",
}
_THE_PAPERS = {
    "logistic": "logistic",
    "field": "field",
    "naive_bayes_stopped": "naive_bayes",
    "best_pair": "best_pair",
}


def cells(config: Sizes) -> list[Cell]:
    """What is run: the files, the streams, and models on each."""
    origins = {
        "attribution": _origin(criteo_files.published_attribution()),
        "adkdd": _origin(criteo_files.published_adkdd()),
    }

    def cell(name: str, origin: str, work: Any) -> Cell:
        return Cell(name, {"config": asdict(config), "files": origins[origin]}, work)

    def alone(name: str, origin: str, call: str) -> Cell:
        return cell(name, origin, partial(_alone, config, origin, call))

    found = [
        cell("attribution-0-files", "attribution", partial(attribution_files, config)),
        alone("attribution-1-stream", "attribution", "attribution_stream(config)"),
        cell("adkdd-0-files", "adkdd", partial(adkdd_files, config)),
        cell("adkdd-1-tables", "adkdd", partial(adkdd_tables, config)),
        alone("encoded-1-stream", "adkdd", "encoded_stream(config)"),
        alone("raw-1-receive", "adkdd", "raw_receive(config)"),
    ]
    steps = ("2-baselines", "fit_baselines"), ("3-field", "fit_to_tables"), ("4-sample", "fit_to_sample")
    for name in ROWS:
        origin = "attribution" if name == "attribution" else "adkdd"
        for step, function in (*steps, ("5-truth", "true_score")):
            if (name, step) != ("raw", "2-baselines"):  # judged where the tables are received
                found.append(alone(f"{name}-{step}", origin, f"{function}(config, {name!r})"))
    return found


def _origin(files: object) -> str:
    return "simulated" if files is None else "published"


def _alone(config: Sizes, origin: str, call: str) -> Value:
    """Do a step in a process of its own, so that its peak of memory is its own."""
    if origin == "attribution":  # here, where it can be said what is missing
        criteo_files.attribution(config.attribution_rows, config.attribution_modalities)
    else:
        criteo_files.adkdd(config.adkdd, tables="raw" in call)
    return in_process(
        "from evidence.paper.criteo_simulated import AdKddSizes\n"
        "from evidence.paper.criteo_stages import *\n"
        f"config = {config!r}\nresult = {call}"
    )


# -- the page ------------------------------------------------------------------------------------


def section(results: Results, images: Path) -> list[str]:
    """The table beside the paper's, what the streams took, and the figure."""
    rows: list[list[str]] = []
    drawn: dict[str, dict[str, float]] = {}
    for name, (key, title) in ROWS.items():
        models = _models(results, name)
        if not models:
            continue
        drawn[name] = {model: found["nllh"] for model, found in models.items()}
        truth = results.get(f"{name}-5-truth", {}).get("nllh")
        shown = [_score(models.get(model)) for model in COLUMNS]
        rows.append([f"{title}, {_words(results, name)}", *shown, "" if truth is None else f"{truth:.4f}"])
        theirs = [published.NLLH[key].get(_THE_PAPERS.get(model, "")) for model in COLUMNS]
        rows.append([f"*the paper's {title}*", *("" if v is None else f"{v:.3f}" for v in theirs), ""])
    if not rows:
        return ["Not run yet."]
    lines = ["NLLH on test records:", "", *table(["data set", *COLUMNS.values(), "truth"], rows), ""]
    lines += _remarks(results)
    _draw(results, drawn, images / "paper-criteo.svg")
    what = "NLLH of each model on each data set: ours on simulated files, the paper's on the published ones"
    return [*lines, *picture("paper-criteo.svg", what), *_took(results)]


def _models(results: Results, name: str) -> Value:
    found: Value = {}
    for step in ("1-receive", "2-baselines", "3-field", "4-sample"):
        found |= results.get(f"{name}-{step}", {}).get("models", {})
    return found


def _words(results: Results, name: str) -> str:
    """Whether a row is simulated, and how many records its tables count."""
    files = "attribution-0-files" if name == "attribution" else "adkdd-0-files"
    simulated = results.get(files, {}).get("simulated", True)
    stream = results.get(f"{name}-1-{'receive' if name == 'raw' else 'stream'}", {})
    count = f"{stream['training_rows']:,} training records" if stream else "training records"
    return f"**simulated** {count}" if simulated else f"published, {count}"


def _score(found: Value | None) -> str:
    return "" if not found else f"{found['nllh']:.4f}"


def _remarks(results: Results) -> list[str]:
    lines = []
    for name, (_, title) in ROWS.items():
        models = _models(results, name)
        words = []
        if "field" in models:
            field = models["field"]
            words.append(f"the field's λ_θ is {field['lambda_theta']:g} of those tried ({_tried(field)})")
        if "field_rule" in models:
            rule = models["field_rule"]
            words.append(
                f"its default rule, which sees no record, finds {rule['lambda_theta']:g} and scores "
                f"{rule['nllh']:.4f}"
            )
        if "logistic" in models:
            logistic = models["logistic"]
            words.append(
                f"the logistic has {logistic['rows']:,} records and λ = {logistic['lambda_theta']:g}"
            )
        if "logistic_same" in models:
            same = models["logistic_same"]
            words.append(f"with only the features of the field it scores {same['nllh']:.4f}")
        if "naive_bayes_stopped" in models:
            stopped = models["naive_bayes_stopped"]
            words.append(
                f"Naive Bayes is stopped after {stopped['iterations']} iterations and would have "
                f"{stopped['last']:.4f} at the end of its training"
            )
        if "best_pair" in models:
            words.append(f"the best pair is {' × '.join(models['best_pair']['pair'])}")
        if words:
            lines.append(f"- {title}: {'; '.join(words)}.")
    stream = results.get("encoded-1-stream")
    if stream and stream["encodings"]:
        sizes = ", ".join(f"{feature} {n}" for feature, n in stream["encodings"].items())
        lines.append(f"- Target encodings, each below 1,000 modalities: {sizes}.")
    raw = results.get("raw-1-receive")
    if raw:
        lines.append(
            f"- The received tables say of their noise: {raw['noise']}, σ = {raw['sigma']:g}. "
            f"{raw['kept_features']} of the {len(raw['cards'])} features are the field's."
        )
    return lines


def _tried(found: Value) -> str:
    return ", ".join(f"{penalty}: {score:.4f}" for penalty, score in found["tried"].items())


def _took(results: Results) -> list[str]:
    """What the files and the streams took."""
    lines = []
    for name, what in (
        ("attribution-0-files", "Criteo-Attribution, the file"),
        ("adkdd-0-files", "Criteo-AdKDD, files of records"),
        ("adkdd-1-tables", "Criteo-AdKDD, noisy tables"),
    ):
        if name in results:
            found = results[name]
            kind = "simulated" if found["simulated"] else "published"
            lines.append([f"{what}, {kind}", "", f"{results.seconds(name):,.0f} s", "", size(found["bytes"])])
    for name, what in (
        ("attribution-1-stream", "stream of Criteo-Attribution into tables"),
        ("encoded-1-stream", "stream of Criteo-AdKDD through encodings into tables"),
    ):
        if name in results:
            found = results[name]
            lines.append(
                [
                    f"{what}: {found['tables']} tables, {found['cells']:,} cells",
                    f"{found['rows']:,}",
                    f"{found['seconds']:,.0f} s",
                    f"{found['rows_per_second']:,}",
                    size(found["peak_bytes"]),
                ]
            )
    if "raw-1-receive" in results:
        found = results["raw-1-receive"]
        what = f"receiving the noisy tables: {found['tables']} tables, {found['cells']:,} cells"
        lines.append([what, "", f"{found['seconds']:,.0f} s", "", size(found["peak_bytes"])])
    return ["", *table(["step", "rows", "time", "rows a second", "size on disk, or peak memory"], lines)]


_MARKS = (
    ("logistic", "logistic", GREY, "D"),
    ("field", "field", BLUE, "o"),
    ("naive_bayes_stopped", "Naive Bayes, stopped early", ORANGE, "s"),
    ("best_pair", "best pair", GREEN, "^"),
)


def _draw(results: Results, drawn: dict[str, dict[str, float]], target: Path) -> None:
    simulated = any("simulated" in _words(results, name) for name in drawn)
    with figure(target, 11.2, 3.0) as drawing:
        ours, theirs = drawing.subplots(1, 2, sharey=True)
        names = list(drawn)
        for place, name in enumerate(names):
            for model, label, colour, mark in _MARKS:
                look = {"color": colour, "marker": mark, "linestyle": "none"}
                look["label"] = "" if place else label
                if model in drawn[name]:
                    ours.plot(max(drawn[name][model], -0.05), place, **look)
                theirs.plot(published.NLLH[ROWS[name][0]][_THE_PAPERS[model]], place, **look)
        ours.set_title("agglearn, simulated" if simulated else "agglearn, published")
        theirs.set_title("the paper, published")
        for axes in (ours, theirs):
            axes.grid(axis="x")
            axes.set_xlabel("NLLH on test records")
        ours.set_yticks(range(len(names)), [ROWS[name][1] for name in names])
        ours.set_ylim(len(names) - 0.5, -0.5)
        theirs.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
