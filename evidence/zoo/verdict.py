"""All models of the zoo in one table and one figure, and where the field does not do what it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

from evidence.figures import BLUE, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.runner import Results, Value
from evidence.subject import Subject
from evidence.zoo.sets import SETS

FIGURE = "zoo.svg"
_COLUMNS = {
    "field": "field",
    "logistic": "logistic",
    "boosting": "boosting",
    "tan": "TAN",
    "naive_bayes": "Naive Bayes",
    "best_pair": "best pair",
}
_SIMPLER = ("naive_bayes", "tan", "best_pair")
_TIMED = ("field", "logistic")

# What must hold, in NLLH and in seconds.
ABOVE = {"adult": 0.005, "bank": 0.005}
"""How far above the logistic the field is to be."""
BELOW = 0.003
"""How far below it may be elsewhere."""
BELOW_BY_PAIRS = {"fars": 0.016}
"""How far below it may be where pairs cannot carry the information."""
AT_LEAST = {"adult": 0.483}
BELOW_BOOSTING = {"adult": 0.02, "bank": 0.02}
TIME = {"adult": 0.5, "bank": 0.5}
"""The most seconds until then, in the logistic's; 1 on other sets of more tables than `MANY_TABLES`."""
MANY_TABLES = 100

Models = dict[str, dict[int, Value]]  # by model, then by split


class Zoo(Subject):
    """A subject whose page opens with what all its sections found."""

    def told(self, section: str, results: Results, quick: bool) -> list[str]:
        """NLLH and seconds of each model, a line for each data set and split."""
        return [
            f"{cell}: "
            + ", ".join(
                f"{model} {value['nllh']:.4f}"
                + (f" ({value['seconds']:.1f} s)" if "seconds" in value else "")
                for model, value in _models(found).items()
            )
            for cell, found in results.items()
        ]

    def opening(self, stored: Mapping[str, Results], images: Path) -> list[str]:
        """The text, then all models in one table, the figure, and what was missed."""
        found = collected(stored)
        lines = super().opening(stored, images)
        if not any("field" in models for models in found.values()):
            return [*lines, "", "Nothing has been run yet."]
        lines += ["", *_table(found)]
        if any(_paired(models, "field", "logistic") for models in found.values()):
            _draw(found, images / FIGURE)
            what = "NLLH of the field less that of the logistic, by data set: a dot a split, a bar their mean"
            lines += picture(FIGURE, what)
        short = list(missed(found))
        lines += ["", "**Missed:**" if short else "**Missed:** nothing.", ""]
        return [*lines, *(f"- {line}" for line in short)]


def collected(stored: Mapping[str, Results]) -> dict[str, Models]:
    """What is stored of every model, by data set and split, with the size of the set beside it."""
    found: dict[str, Models] = {}
    for results in stored.values():
        for cell, values in results.items():
            name, seed = cell.rsplit("-seed", 1)
            if name not in SETS:
                continue
            models = found.setdefault(name, {})
            size = {key: value for key, value in values.items() if not isinstance(value, dict)}
            for model, value in _models(values).items():
                models.setdefault(model, {})[int(seed)] = {**size, **value}
    return {name: found[name] for name in SETS if name in found}


def _models(found: Value) -> dict[str, Value]:
    """The models among what a cell found."""
    return {model: value for model, value in found.items() if isinstance(value, dict) and "nllh" in value}


def _paired(models: Models, one: str, other: str, key: str = "nllh") -> list[float]:
    """The difference of two models in each split that both have."""
    first, second = models.get(one, {}), models.get(other, {})
    return [first[seed][key] - second[seed][key] for seed in sorted(first.keys() & second.keys())]


def _mean(models: Models, model: str, key: str = "nllh") -> float:
    return fmean(value[key] for value in models[model].values())


def _table(found: Mapping[str, Models]) -> list[str]:
    """NLLH of every model."""
    rows = []
    for name, models in found.items():
        if "field" not in models:
            continue
        size = next(iter(models["field"].values()))
        apart = _paired(models, "field", "logistic")
        rows.append(
            [
                SETS[name].title,
                f"{size['train_rows']:,} × {size['features']}",
                f"{size['tables']:,}",
                str(len(models["field"])),
                *(f"{_mean(models, m):.4f}" if m in models else "–" for m in ("field", "logistic")),
                spread(apart) if apart else "–",
                *(f"{_mean(models, m):.4f}" if m in models else "–" for m in list(_COLUMNS)[2:]),
                *_times(name, models),
            ]
        )
    titles = list(_COLUMNS.values())
    header = ["", "records × features", "tables", "splits", *titles[:2], "field − logistic", *titles[2:]]
    return table([*header, "a fit, s", "to quality, s", "logistic, s"], rows)


def _times(name: str, models: Models) -> list[str]:
    """Seconds of the field, until it is as good as is asked of it, and of the logistic."""
    whole, logistic = (f"{_mean(models, m, 'seconds'):.1f}" if m in models else "–" for m in _TIMED)
    share = time_to_quality(name, models)
    return [whole, "–" if share is None else f"{share * _mean(models, 'logistic', 'seconds'):.2f}", logistic]


def missed(found: Mapping[str, Models]) -> Iterator[str]:
    """Where the field does not do what it must, in words."""
    means = []
    for name, models in found.items():
        title = SETS[name].title
        if "field" not in models:
            yield f"{title}: the field has not been run."
            continue
        yield from (f"{title}: {line}" for line in _stale(models))
        apart = _paired(models, "field", "logistic")
        if apart:
            means.append(fmean(apart))
            yield from (f"{title}: {line}" for line in _beside_logistic(name, models, fmean(apart)))
        if _mean(models, "field") < AT_LEAST.get(name, -1.0):
            yield f"{title}: the field has {_mean(models, 'field'):.4f}, {AT_LEAST[name]:g} is asked for."
        for model in _SIMPLER:
            below = _paired(models, model, "field")
            if below and fmean(below) > 0:
                yield f"{title}: the field is {fmean(below):.4f} below {_COLUMNS[model]}."
        behind = _paired(models, "boosting", "field")
        if behind and name in BELOW_BOOSTING and fmean(behind) > BELOW_BOOSTING[name]:
            short = f"{fmean(behind):.4f} below boosting, at most {BELOW_BOOSTING[name]:g}"
            yield f"{title}: the field is {short} is asked for."
    if means and fmean(means) <= 0:
        yield f"On average over the zoo the field is {-fmean(means):.4f} below the logistic."


def _beside_logistic(name: str, models: Models, apart: float) -> Iterator[str]:
    if name in ABOVE:
        if apart < ABOVE[name]:
            yield f"field − logistic is {apart:+.4f}, at least {ABOVE[name]:+g} is asked for."
    elif apart < -BELOW_BY_PAIRS.get(name, BELOW):
        allowed = -BELOW_BY_PAIRS.get(name, BELOW)
        yield f"field − logistic is {apart:+.4f}, at least {allowed:+g} is asked for."
    many = next(iter(models["field"].values()))["tables"] > MANY_TABLES
    if name in TIME or many:
        ratio, most = time_to_quality(name, models), TIME.get(name, 1.0)
        if ratio is None:
            yield "a fit does not come to the quality that is asked for in every split."
        elif ratio > most:
            short = f"{ratio:.2f} of the logistic's seconds, at most {most:g} is asked for"
            yield f"the field takes to the quality asked for {short}."


def asked(name: str) -> float:
    """How far above the logistic the field is to be: NLLH."""
    return ABOVE.get(name, -BELOW_BY_PAIRS.get(name, BELOW))


def seconds_to_quality(name: str, models: Models) -> list[float | None]:
    """Of each split the seconds until the field was as good as is asked of it, and is to the end."""
    found = []
    for seed, value in sorted(models["field"].items()):
        if seed not in models.get("logistic", {}):
            continue
        wanted = models["logistic"][seed]["nllh"] + asked(name)
        seconds = None
        for _, spent, nllh in reversed(value["course"]):
            if nllh < wanted:
                break
            seconds = spent
        found.append(seconds)
    return found


def time_to_quality(name: str, models: Models) -> float | None:
    """The seconds of the field until then, in the logistic's; None where it does not come so far."""
    found = seconds_to_quality(name, models)
    reached = [seconds for seconds in found if seconds is not None]
    if len(reached) < len(found) or not reached:
        return None
    return fmean(reached) / _mean(models, "logistic", "seconds")


def _stale(models: Models) -> Iterator[str]:
    """Models that were fitted to other codes than the field: what is stored of them is to be run again."""
    for model, values in models.items():
        for seed in sorted(values.keys() & models["field"].keys()):
            codes = values[seed].get("codes")
            if codes is not None and codes != models["field"][seed]["codes"]:
                yield f"{_COLUMNS.get(model, model)} of split {seed} has other codes than the field."


def _draw(found: Mapping[str, Models], target: Path) -> None:
    differences = {name: _paired(models, "field", "logistic") for name, models in found.items()}
    differences = {name: some for name, some in differences.items() if some}
    with figure(target, 7.0, 0.8 + 0.36 * len(differences)) as drawing:
        axis = drawing.subplots()
        axis.axvspan(-BELOW, 0, color=GREY, alpha=0.15, lw=0)
        axis.axvline(0, color=GREY, lw=1)
        for place, some in enumerate(differences.values()):
            colour = BLUE if fmean(some) >= 0 else ORANGE
            axis.barh(place, fmean(some), 0.55, color=colour, alpha=0.45)
            axis.scatter(some, [place] * len(some), 18, colour, lw=0)
        axis.set_yticks(range(len(differences)), [SETS[name].title for name in differences])
        axis.invert_yaxis()
        axis.grid(axis="x")
        axis.set(title="field − logistic", xlabel="NLLH on test records")
