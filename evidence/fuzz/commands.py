"""Commands that go well as they stand, and the options that a case may give odd values to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command: its arguments, and its options, the flags among them apart."""

    args: tuple[str, ...]
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("--json",)


def _command(args: str, options: str = "", flags: str = "") -> Command:
    names = tuple("-o" if name == "o" else f"--{name}" for name in options.split())
    return Command(tuple(args.split()), names, ("--json", *(f"--{name}" for name in flags.split())))


_TEXT = "separator encoding missing"
_BUDGET = "epsilon delta rho mechanism max-records public cells total-epsilon ledger processes"
_COARSE = "min-count round-to random-round"
_SMALL = "--chains 20 --iterations 3 --threads 1"

COMMANDS = {
    "aggregate": _command(
        "aggregate a.csv --label y -o new.agg",
        "label positive features exclude tables schema period categorical numeric bins binning edges "
        "max-modalities min-modality-count hash-size target-encode encoding-share encoding-modalities split "
        f"seed {_TEXT} person bounds schema-share {_BUDGET} {_COARSE} o",
        "grow assume-public-schema",
    ),
    "receive": _command(
        "receive a-table.csv --label y -o new.agg",
        f"format label schema count noise floor absent rows hash-size max-modalities {_TEXT} o",
    ),
    "check": _command("check a.agg", "nothing"),
    "merge": _command("merge a.agg b.agg -o new.agg", "o", "same-people"),
    "subtract": _command("subtract both.agg b.agg -o new.agg", "o"),
    "window": _command("window first.agg second.agg --last 2 -o new.agg", "last half-life o"),
    "drift": _command("drift a.agg b.agg", "label"),
    "sql": _command("sql a.agg --table t", "table dialect tables hash-size min-count o", flags="one-query"),
    "noise": _command(
        "noise a.agg --min-count 3 -o new.agg", f"{_BUDGET} {_COARSE} o", "assume-public-schema"
    ),
    "private": _command(
        "noise a.agg --epsilon 1 --delta 1e-6 --assume-public-schema --processes 1 -o new.agg",
        f"{_BUDGET} {_COARSE} o",
    ),
    "denoise": _command("denoise private.agg -o new.agg", "o"),
    "spent": _command("spent a.agg"),
    "plan": _command(
        "plan a.agg --epsilon 1 --threads 1",
        "epsilon delta mechanism max-records label positive features exclude schema bins tables seeds "
        "threads",
    ),
    "fit": _command(
        f"fit a.agg -o new.model {_SMALL}",
        "label lambda-theta lambda-mu chains iterations engine start gradient tolerance valid records "
        f"labelled from prior prior-weight threads seed checkpoint resume checkpoint-every {_TEXT} o",
        "rake no-keep-records",
    ),
    "evaluate": _command("evaluate a.model a.csv --threads 1", f"threads {_TEXT}"),
    "predict": _command(
        "predict a.model a.csv -o new.csv --threads 1", f"keep interval threads seed {_TEXT} o"
    ),
    "sample": _command("sample a.model -n 30 -o new.csv --threads 1", "records threads seed o"),
    "diagnose": _command(
        "diagnose a.model a.agg --threads 1 --suggest 0", "check suggest cells size threads seed"
    ),
    "show": _command("show a.model --threads 1", "feature pair interval top threads seed"),
    "export": _command(
        "export a.model --format sql --table t -o new.sql", "format dialect table view inputs o"
    ),
    "report": _command(
        "report a.model -o new.html --threads 1",
        f"tables valid name level threads seed {_TEXT} o",
    ),
    "compare": _command(
        "compare a.csv --label y --models maxent,naive_bayes " + _SMALL,
        "label positive test-share models exclude categorical numeric bins binning max-modalities chains "
        f"iterations threads seed {_TEXT}",
    ),
    "schema new": _command(
        "schema new --label y --categorical x1=a,b --numeric x2=1,2 -o new.json",
        "label categorical numeric missing other positive o",
    ),
    "schema show": _command("schema show schema.json"),
    "schema check": _command("schema check schema.json", "same-as"),
    "schema edit": _command(
        "schema edit schema.json -o new.json",
        "keep drop rename categorical numeric missing other label positive o",
    ),
}

READERS = {
    "a.agg": ("check", "check", "merge", "sql", "fit", "drift", "noise", "spent", "schema show"),
    "hashed.agg": ("check", "merge", "fit", "sql"),
    "private.agg": ("check", "denoise", "fit", "merge"),
    "first.agg": ("window", "check", "merge"),
    "a.model": ("predict", "predict", "evaluate", "sample", "diagnose", "show", "export", "report", "fit"),
    "begun/iteration-000003": ("fit",),
    "schema.json": ("schema show", "schema check", "schema edit", "aggregate", "sql"),
}
"""Who reads what can be damaged."""


def reading(verb: str, what: str) -> list[str]:
    """A command of a verb that reads this folder or file."""
    if what.startswith("begun/"):
        return ["fit", "a.agg", "-o", "new.model", *_SMALL.split(), "--tolerance", "0", "--resume", "begun"]
    args = list(COMMANDS[verb].args)
    if (verb, what) == ("aggregate", "schema.json"):
        return [*args, "--schema", what]
    if (verb, what) == ("fit", "a.model"):
        return [*args, "--from", what]
    first = {"schema": 2}.get(args[0], 1)
    return [*args[:first], what, *args[first + 1 :]]
