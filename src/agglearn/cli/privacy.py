"""Verbs about private tables: noise, denoise, plan, spent; and options that aggregate shares with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agglearn.cli.app import Json, Threads, app, names, show, tables_target
from agglearn.errors import InputError
from agglearn.privacy.budget import PrivacyOptions

if TYPE_CHECKING:
    from agglearn.aggregation.options import AggregateOptions
    from agglearn.privacy.api import Prepared
    from agglearn.report.document import Block

Epsilon = Annotated[
    float | None, typer.Option(help="Make the tables private: the ε that all of them together may spend.")
]
Delta = Annotated[float | None, typer.Option(help="The δ of that, far below 1/records, such as 1e-6.")]
Rho = Annotated[float | None, typer.Option(help="Instead of ε: ρ of zero-concentrated privacy.")]
Mechanism = Annotated[str, typer.Option(help="gaussian or laplace noise.")]
MaxRecords = Annotated[int, typer.Option(help="The most records of one person.")]
Public = Annotated[
    str | None, typer.Option(help="A schema that is public; what it leaves open is learnt privately.")
]
AssumePublic = Annotated[
    bool, typer.Option("--assume-public-schema", help="Take a schema learnt from the records for public.")
]
CellsAsked = Annotated[
    str, typer.Option("--cells", help="all, or only common ones: for far more cells than records.")
]
TotalEpsilon = Annotated[
    float | None, typer.Option(help="The most ε of all releases of these records; kept in the ledger.")
]
LedgerFile = Annotated[
    str | None, typer.Option("--ledger", help="File to write down what is spent (default: beside the input).")
]
Processes = Annotated[int | None, typer.Option(help="Processes that draw noise (default: all cores).")]
MinCount = Annotated[int | None, typer.Option(help="Withhold cells with fewer records (no promise).")]
RoundTo = Annotated[int | None, typer.Option(help="Round each number to a multiple of this (no promise).")]
RandomRound = Annotated[
    int | None, typer.Option(help="Round at random to a multiple of this, right in the mean (no promise).")
]


def wants_privacy(epsilon: float | None, rho: float | None, **others: object) -> bool:
    """Whether a private release is asked for; the other options make sense with one only."""
    if epsilon is not None or rho is not None:
        return True
    for name, value in others.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} is for private tables: say --epsilon, or --rho")
    return False


def bounds_of(options: list[str]) -> dict[str, tuple[float, float]]:
    """Read ``age=17,90``; bounds without a point are of whole numbers."""
    found = {}
    for option in options:
        name, _, values = option.rpartition("=")
        try:
            low, high = (float(v) if "." in v or "e" in v.lower() else int(v) for v in values.split(","))
        except ValueError:
            raise InputError(f"--bounds {option!r} is not COLUMN=LOW,HIGH such as age=17,90") from None
        found[name] = (low, high)
    return found


def aggregate(
    records: Any,
    inputs: list[str],
    labels: list[str],
    how: AggregateOptions,
    privacy: PrivacyOptions,
    targets: Mapping[str, Path],
    json: bool,
) -> None:
    """What the verb aggregate does where the tables are to be private."""
    from agglearn.aggregation.database import split_database_input
    from agglearn.privacy.api import prepare_records
    from agglearn.privacy.ledger import ledger_beside
    from agglearn.tables.format import save

    database = split_database_input(inputs[0]) if len(inputs) == 1 else None
    if database is not None and privacy.ledger is None:
        privacy = replace(privacy, ledger=ledger_beside(database[0]))
    prepared = prepare_records(records, labels, how, privacy)
    with prepared.booked(", ".join(map(str, targets.values()))):
        for part, path in targets.items():
            save(prepared.result.parts[part], path)
    document = prepared.result.document({part: str(path) for part, path in targets.items()})
    show(document.followed_by(*told(prepared), **told_json(prepared)), json)


@app.command()
def noise(
    tables: Annotated[str, typer.Argument(metavar="TABLES", help="An .agg folder of exact tables.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write, a name ending in .agg.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mechanism: Mechanism = PrivacyOptions.mechanism,
    max_records: MaxRecords = PrivacyOptions.max_records,
    public: Public = None,
    assume_public_schema: AssumePublic = False,
    cells: CellsAsked = PrivacyOptions.cells,
    total_epsilon: TotalEpsilon = None,
    ledger: LedgerFile = None,
    processes: Processes = None,
    min_count: MinCount = None,
    round_to: RoundTo = None,
    random_round: RandomRound = None,
    json: Json = False,
) -> None:
    """Make exact tables private, or coarser the old ways: noise, rounding, withheld cells.

    With --epsilon every number that leaves is noisy, and the file says what is promised. --min-count,
    --round-to and --random-round promise nothing.
    """
    from agglearn.privacy.api import prepare_tables
    from agglearn.privacy.coarse import Coarsening, coarsened
    from agglearn.tables.document import tables_document
    from agglearn.tables.format import load, save

    target = tables_target(output)
    coarsening = Coarsening(min_count=min_count, round_to=round_to, random_round=random_round)
    options: dict[str, Any] = {"delta": delta, "public": public, "assume_public_schema": assume_public_schema}
    if not wants_privacy(epsilon, rho, **options, total_epsilon=total_epsilon, ledger=ledger):
        if not coarsening:
            raise InputError(
                "say what to do: --epsilon with --delta, --min-count, --round-to or --random-round"
            )
        data = coarsened(load(tables), coarsening)
        save(data, target)
        show(tables_document(data, str(target)), json)
        return
    coarsening.refuse_beside_noise()
    privacy = PrivacyOptions(
        epsilon=epsilon,
        rho=rho,
        mechanism=mechanism,
        max_records=max_records,
        cells=cells,
        total_epsilon=total_epsilon,
        ledger=ledger,
        processes=processes,
        **options,
    )
    prepared = prepare_tables(load(tables), privacy, [tables], show_progress=not json)
    with prepared.booked(str(target)):
        save(prepared.result.train, target)
    document = tables_document(prepared.result.train, str(target))
    show(document.followed_by(*told(prepared), **told_json(prepared)), json)


@app.command()
def denoise(
    tables: Annotated[str, typer.Argument(metavar="TABLES", help="An .agg folder of noisy tables.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write, a name ending in .agg.")],
    json: Json = False,
) -> None:
    """Take out of noisy tables what is likely to be noise, for other tools.

    The tables then agree with one another and hold no impossible number. A fit does this by itself, and knows
    what is left of the noise: fit to the noisy tables.
    """
    from agglearn.field.denoise import denoise as take_out
    from agglearn.tables.document import tables_document
    from agglearn.tables.format import load, save

    target = tables_target(output)
    data = take_out(load(tables))
    save(data, target)
    show(tables_document(data, str(target)), json)


def told(prepared: Prepared) -> list[Block]:
    """What a release promises and cost, and what is left."""
    from agglearn.privacy.document import promise_blocks

    return [*promise_blocks(prepared.promise), *_ledger_lines(prepared)]


def told_json(prepared: Prepared) -> dict[str, Any]:
    """The same as plain values."""
    ledgers = [
        {"path": str(ledger.path), **vars(ledger.total()), "most": ledger.limit}
        for ledger in prepared.ledgers
    ]
    return {"privacy": prepared.promise.to_json(), "ledgers": ledgers}


def _ledger_lines(prepared: Prepared) -> list[Block]:
    from agglearn.privacy.document import ledger_blocks

    return [block for ledger in prepared.ledgers for block in ledger_blocks(ledger)]


@app.command()
def plan(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Files of records, or an .agg of exact tables.")
    ],
    epsilon: Annotated[str, typer.Option(help="Budgets to try, with commas.")] = "0.3,1,3,10",
    delta: Annotated[float, typer.Option(help="The δ of each.")] = 1e-6,
    mechanism: Mechanism = PrivacyOptions.mechanism,
    max_records: MaxRecords = PrivacyOptions.max_records,
    label: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    positive: Annotated[str | None, typer.Option(help="Its positive value, where it is not 0/1.")] = None,
    features: Annotated[list[str] | None, typer.Option(help="Feature columns (default: all others).")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Columns to leave out; * matches.")] = None,
    schema: Annotated[str | None, typer.Option(help="Code by this schema file or .agg.")] = None,
    bins: Annotated[int | None, typer.Option(help="Bins of a numeric column.")] = None,
    tables: Annotated[str, typer.Option(help="pairs, singles, triples, a*b*c, with commas.")] = "pairs",
    seeds: Annotated[int, typer.Option(help="Noises to try each budget with.")] = 3,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Say what a budget would buy before it is spent, by simulation; for the holder's eyes only.

    Noise is drawn, fitted to and judged for each budget and a few choices of tables. Nothing is released, and
    nothing is written down as spent.
    """
    from agglearn.aggregation.options import AggregateOptions
    from agglearn.plan import plan_records, plan_tables
    from agglearn.runtime.files import MANIFEST
    from agglearn.tables.format import load

    try:
        epsilons = [float(e) for e in names([epsilon])]
    except ValueError:
        raise InputError(f"--epsilon {epsilon!r} is not a list of numbers such as 0.3,1,3") from None
    budget: dict[str, Any] = {"epsilons": epsilons, "delta": delta, "mechanism": mechanism}
    budget |= {"max_records": max_records, "seeds": seeds, "threads": threads}
    if len(inputs) == 1 and (Path(inputs[0]) / MANIFEST).is_file():
        found = plan_tables(load(inputs[0]), label, show_progress=not json, **budget)
    else:
        if label is None:
            raise InputError("records need --label: the column to predict")
        how = AggregateOptions(
            positive=positive,
            features=names(features) if features else None,
            exclude=names(exclude),
            schema=schema,
            bins=bins,
            tables=tables,
            show_progress=not json,
        )
        found = plan_records(inputs, label, how, **budget)
    show(found.document(), json)


@app.command()
def spent(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Records, an .agg of exact tables, or a ledger file.")
    ],
    json: Json = False,
) -> None:
    """Show what has been released of a source so far, and what is left of its budget."""
    from agglearn.privacy.document import ledger_document
    from agglearn.privacy.ledger import SUFFIX, Ledger, ledger_beside

    path = Path(source) if source.endswith(SUFFIX) else ledger_beside(source)
    if not path.exists():
        raise InputError(f"nothing was written down of {source}: there is no {path}")
    show(ledger_document(Ledger.read(path)), json)
