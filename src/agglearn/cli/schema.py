"""The verb about schemas: schema new, show, check, edit. It reads no records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agglearn.cli.app import Json, app, names, say_if_replaced, show
from agglearn.errors import InputError

if TYPE_CHECKING:
    from agglearn.report.document import Document
    from agglearn.schema.features import Feature
    from agglearn.schema.schema import Schema

schema_app = typer.Typer(
    help="Write, show, check or edit a schema: how each column is coded. No record is read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(schema_app, name="schema")

Source = Annotated[str, typer.Argument(metavar="SCHEMA", help="A schema file, or an .agg folder.")]
Output = Annotated[str, typer.Option("--output", "-o", help="The schema file to write, such as schema.json.")]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="A column of categories and its values, as colour=red,blue (repeat for others)."),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(help="A column of numbers and its bin edges, as age=20,30,40 (repeat for others)."),
]
MayMiss = Annotated[
    list[str] | None,
    typer.Option("--missing", help="Columns in which a missing value is a value of its own."),
]
Other = Annotated[list[str] | None, typer.Option(help="Columns whose other values share one modality.")]
Label = Annotated[str, typer.Option("--label", help="Column to predict.")]
Positive = Annotated[str | None, typer.Option(help="Its positive value, where it is not 0/1 or true/false.")]


@schema_app.command()
def new(
    label: Label,
    output: Output,
    categorical: Categorical = None,
    numeric: Numeric = None,
    missing: MayMiss = None,
    other: Other = None,
    positive: Positive = None,
    json: Json = False,
) -> None:
    """Write a schema from what is known of the columns: their values, or where they are cut."""
    from agglearn.schema.by_hand import make_schema

    features = _told(categorical, numeric)
    if not features:
        raise InputError("no feature is told: name some with --categorical or --numeric")
    marked = [_marked(f, names(missing), names(other)) for f in features]
    _refuse_others([*names(missing), *names(other)], [f.name for f in marked])
    _write(make_schema(marked, label, positive), output, json)


@schema_app.command("show")
def show_schema(source: Source, json: Json = False) -> None:
    """Show the features and labels of a schema."""
    show(_document(_load(source), source), json)


@schema_app.command()
def check(
    source: Source,
    same_as: Annotated[
        str | None, typer.Option(help="Another schema or .agg, which must code values in the same way.")
    ] = None,
    json: Json = False,
) -> None:
    """Check that a schema can be used, or that it codes values as another does."""
    from agglearn.report.document import Note, Statement

    found = _load(source)
    problems = _differences(found, _load(same_as)) if same_as else []
    said = _document(found, source).followed_by(
        *(Note(text, "problem", "schema") for text in problems),
        Statement("this schema can be used" if not problems else "these schemas differ"),
        ok=not problems,
        problems=problems,
    )
    show(said, json)
    if problems:
        raise typer.Exit(2)


@schema_app.command()
def edit(
    source: Source,
    output: Output,
    keep: Annotated[list[str] | None, typer.Option(help="Features to keep (default: all).")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Features to leave out.")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="Give a column another name, as old=new.")] = None,
    categorical: Categorical = None,
    numeric: Numeric = None,
    missing: MayMiss = None,
    other: Other = None,
    label: Annotated[str | None, typer.Option("--label", help="Another column to predict.")] = None,
    positive: Positive = None,
    json: Json = False,
) -> None:
    """Write a schema that differs from another: features added, replaced, renamed or left out."""
    from agglearn.schema.schema import Label as Labelled
    from agglearn.schema.schema import Schema

    found = _load(source)
    _refuse_others([*names(keep), *names(drop)], found.names)
    kept = {f.name: f for f in found.features if f.name not in names(drop)}
    if keep:
        kept = {name: f for name, f in kept.items() if name in names(keep)}
    kept |= {f.name: f for f in _told(categorical, numeric)}
    _refuse_others([*names(missing), *names(other)], list(kept))
    features = [_marked(f, names(missing), names(other)) for f in kept.values()]
    called = dict(_pair(term, "--rename", "old=new") for term in rename or [])
    _refuse_others(list(called), [*kept, *found.label_names])
    labels = found.labels if label is None and positive is None else ()
    if not labels:
        labels = (Labelled(label or found.labels[0].name, positive),)
    _write(
        Schema(
            tuple(replace(f, name=called.get(f.name, f.name)) for f in features),
            tuple(replace(x, name=called.get(x.name, x.name)) for x in labels),
        ),
        output,
        json,
    )


def _load(source: str) -> Schema:
    from agglearn.tables.format import load_schema

    return load_schema(source)


def _write(schema: Schema, output: str, json: bool) -> None:
    from agglearn.tables.format import save_schema

    if Path(output).suffix != ".json":
        raise InputError(f"output {output!r} must end in .json")
    say_if_replaced(Path(output))
    save_schema(schema, output)
    show(_document(schema, output).followed_by(path=output), json)


def _document(schema: Schema, path: str) -> Document:
    from agglearn.report.document import Column, Document, Grid, number

    def shown(feature: Feature) -> str:
        first = ", ".join(feature.modalities[:6])
        return first + (", …" if feature.n_modalities > 6 else "")

    columns = (Column("feature"), Column("kind"), number("modalities"), Column("which"))
    rows = tuple((f.name, f.kind, f.n_modalities, shown(f)) for f in schema.features)
    return Document(
        title=f"{path}: {schema.title}", blocks=(Grid(columns, rows),), data={"schema": schema.to_json()}
    )


def _told(categorical: list[str] | None, numeric: list[str] | None) -> list[Feature]:
    """Features as they were told, in words."""
    from agglearn.schema import by_hand

    told: list[Feature] = []
    for term in categorical or []:
        name, values = _pair(term, "--categorical", "colour=red,blue")
        told.append(by_hand.categorical(name, [v.strip() for v in values.split(",") if v.strip()]))
    for term in numeric or []:
        name, values = _pair(term, "--numeric", "age=20,30,40")
        try:
            edges = [float(v) for v in values.split(",")]
        except ValueError:
            raise InputError(
                f"--numeric {term!r} is not COLUMN=NUMBER,NUMBER,… such as age=20,30,40"
            ) from None
        told.append(by_hand.numeric(name, edges))
    return told


def _pair(term: str, option: str, example: str) -> tuple[str, str]:
    name, sign, values = term.partition("=")
    if not (name.strip() and sign and values.strip()):
        raise InputError(f"{option} {term!r} is not of the form {example}")
    return name.strip(), values


def _marked(feature: Feature, missing: list[str], other: list[str]) -> Feature:
    """The feature with a modality for missing values, or one for all other values."""
    from agglearn.schema.features import Categorical as Category

    if feature.name in missing:
        feature = replace(feature, missing=True)
    if feature.name in other:
        if not isinstance(feature, Category):
            raise InputError(f"--other {feature.name}: only a column of categories has other values")
        feature = replace(feature, other=True)
    return feature


def _refuse_others(wanted: list[str], present: list[str] | tuple[str, ...]) -> None:
    from agglearn.schema.schema import some

    absent = [name for name in wanted if name not in present]
    if absent:
        raise InputError(f"no column of the schema is called {absent[0]!r}: there are {some(present)}")


def _differences(one: Schema, other: Schema) -> list[str]:
    """In what two schemas differ, a line each."""
    said = [f"{name} is in one of them only" for name in sorted({*one.names} ^ {*other.names})]
    for name in one.names:
        if name in other.index and one.feature(name) != other.feature(name):
            said.append(f"{name} is coded in another way")
    if not said and one.names != other.names:
        said.append("their features are in another order")
    if one.labels != other.labels:
        said.append("their labels differ")
    return said
