"""What was found, said once: documents, and what a terminal, a program and a notebook make of them."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import agglearn
from agglearn import AggregatedData
from agglearn.judge.comparison import Comparison, ModelResult
from agglearn.judge.scores import score_predictions
from agglearn.model.fit_report import FitReport
from agglearn.report.characters import cut, visible, width, wrap
from agglearn.report.document import (
    Column,
    Document,
    Figure,
    Grid,
    Heading,
    Measured,
    Note,
    Paragraph,
    Statement,
    number,
)
from agglearn.report.finding import Finding
from agglearn.report.html import fragment
from agglearn.report.json import plain, to_json
from agglearn.report.text import lines, text
from agglearn.train.settings import FitSettings

LOREM = "the quick brown fox jumps over the lazy dog and then does it again because nobody was looking " * 5
HOSTILE = {
    "an escape": "\x1b[31mred\x1b]0;title\x07",
    "an escape of eight bits": "\x9b31mred",
    "a line feed": "one\ntwo\r\nthree",
    "a line separator": "one\u2028two\u2029three\x85four",
    "a turned direction": "\u202egpj.exe\u2066",
    "half a surrogate": "\ud800x",
    "a null": "a\x00b",
    "a script": "<script>alert(1)</script>",
    "an attribute": '" onmouseover="alert(1)',
    "an entity": "&lt;b&gt;",
}


def everywhere(name: str) -> Document:
    """A document with a name at every place a name can be."""
    grid = Grid((Column(name), number(name), Column(name)), ((name, 1.0, name),), caption=name)
    parts = (Heading(name), Statement(name), Paragraph(name), grid, Note(name, "problem", name))
    figure = Figure(name, (1.0,), (1.0,), x_name=name)
    return Document(name, (*parts, figure), (Note(name),), {name: name})


class Page(HTMLParser):
    """The tags of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


# --- text -------------------------------------------------------------------------------------------------


def test_a_document_reads_as_written_by_hand() -> None:
    document = Document(
        "3 tables",
        (
            Note("one feature is constant", "note"),
            Note("totals differ", "problem"),
            Heading("How far off?"),
            Grid(
                (number("records", ",.0f"), number("rate", ".1%"), number("gain", "+.2f"), Column("where")),
                (
                    (12_345.0, 0.5, Measured(0.25, 0.1), "age × sex"),
                    (7, None, float("nan"), "here"),
                    (8, float("inf"), "none", ""),
                ),
                caption="Off by:",
            ),
            Paragraph("Not far."),
            Figure("a curve", (0.0, 1.0), (1.0, 0.0)),
            Statement("all is well"),
        ),
        (Note("values are unknown"),),
    )
    assert text(document).splitlines() == [
        "3 tables",
        "warning: values are unknown",
        "note: one feature is constant",
        "PROBLEM: totals differ",
        "",
        "How far off?",
        "  Off by:",
        "  records   rate          gain  where",
        "   12,345  50.0%  +0.25 ± 0.10  age × sex",
        "        7                    –  here",
        "        8      –          none",
        "  Not far.",
        "all is well",
    ]


def test_columns_without_names_have_no_row_of_headings() -> None:
    grid = Grid((Column(""), Column("", ".4f")), (("NLLH", 0.25), ("log loss", 0.5)))
    assert text(Document(blocks=(grid,))) == "  NLLH      0.2500\n  log loss  0.5000"
    assert "thead" not in Page(fragment(Document(blocks=(grid,)))).tags


@pytest.mark.parametrize("places", [20, 40, 79, 110])
def test_paragraphs_and_notes_keep_to_the_width_and_lose_no_word(places: int) -> None:
    found = list(lines(Document(blocks=(Paragraph(LOREM), Note(LOREM), Heading(LOREM))), places))
    assert max(map(len, found)) <= places
    assert " ".join(found).split() == [*LOREM.split(), "warning:", *LOREM.split(), *LOREM.split()]


def test_the_last_column_goes_on_below_itself() -> None:
    grid = Grid((number("n"), Column("what")), ((1, LOREM), (22, "short")))
    found = list(lines(Document(blocks=(grid,)), 60))
    assert max(map(len, found)) <= 60
    assert found[0] == "   n  what"
    assert found[1].startswith("   1  the quick")
    assert all(line.startswith(" " * 6) and line[6] != " " for line in found[2:-1])
    assert found[-1] == "  22  short"
    assert " ".join(line[6:] for line in found[1:-1]).split() == LOREM.split()


def test_a_long_name_before_others_is_cut_on_a_terminal_and_whole_elsewhere() -> None:
    name = "x" * 5000
    document = Document(blocks=(Grid((Column("name"), number("n")), ((name, 7),)),), data={"name": name})
    found = list(lines(document))
    assert found == ["  name" + " " * 36 + "  n", "  " + "x" * 39 + "…  7"]
    assert name in Page(fragment(document)).texts
    assert json.loads(to_json(document)) == {"name": name}


def test_titles_and_statements_are_one_line_as_they_are() -> None:
    path = "/a folder/with  two spaces/" + "long/" * 60
    assert text(Document(path, (Statement(path),))) == f"{path}\n{path}"


def test_letters_of_two_places_and_marks_of_none_line_up() -> None:
    names = ["plain", "年龄段", "한국어", "ｆｕｌｌ", "e\u0301te\u0301", "naïve"]
    grid = Grid((Column("name"), number("n"), Column("more")), tuple((n, 1, "|") for n in names))
    assert len({cell_len(line[: line.index("|")]) for line in list(lines(Document(blocks=(grid,))))[1:]}) == 1
    for name in names:
        assert width(name) == cell_len(name)


@pytest.mark.parametrize("places", [2, 5, 17])
def test_wide_letters_are_wrapped_and_cut_by_their_width(places: int) -> None:
    said = "日本語の長い名前 with words in between 年龄"
    wrapped = wrap(said, places)
    assert max(map(cell_len, wrapped)) <= places
    assert "".join(wrapped).replace(" ", "") == said.replace(" ", "")
    assert cell_len(cut(said, places)) <= places
    assert cut(said, places).endswith("…")


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_name_steers_the_terminal(kind: str) -> None:
    harmless, hostile = text(everywhere("name")), text(everywhere(HOSTILE[kind]))
    assert len(hostile.splitlines()) == len(harmless.splitlines()), "no name makes a line of its own"
    hostile.encode("utf-8")
    for c in hostile.replace("\n", ""):
        assert unicodedata.category(c) not in {"Cc", "Cs", "Zl", "Zp"}
        assert not 0x202A <= ord(c) <= 0x202E
        assert not 0x2066 <= ord(c) <= 0x2069


def test_what_would_steer_is_shown_instead() -> None:
    assert visible("\x1b[31m\n\u202e\ud800") == r"\x1b[31m\n\u202e\ud800"
    assert visible("naïve 年龄 👍 a\u00a0b") == "naïve 年龄 👍 a\u00a0b"


# --- html -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_are_only_names_on_a_page(kind: str) -> None:
    harmless, hostile = (Page(fragment(everywhere(name))) for name in ("name", HOSTILE[kind]))
    assert hostile.tags == harmless.tags
    assert hostile.attributes == harmless.attributes == {"class", "role", "style", "scope"}
    said = [t.replace("name", visible(HOSTILE[kind]), 1) for t in harmless.texts]
    assert hostile.texts == said


def test_a_grid_is_a_table_with_headings_and_a_caption() -> None:
    grid = Grid((Column("age"), number("rate", ".1%")), (("young", 0.25), ("old", None)), caption="Rates")
    page = fragment(Document("title", (Heading("Which?"), grid)))
    found = Page(page)
    assert found.texts == ["title", "Which?", "Rates", "age", "rate", "young", "25.0%", "old"]
    assert [found.tags.count(tag) for tag in ("table", "caption", "thead", "th", "tr", "td", "h4")] == [
        *(1, 1, 1, 2, 3, 4, 1)
    ]
    assert '<td style="text-align:right">25.0%</td>' in page


# --- json -------------------------------------------------------------------------------------------------


def test_numbers_that_are_not_finite_become_null() -> None:
    data = {"a": [float("nan"), 1.5, (float("inf"), -float("inf"))], "b": {"c": np.float64("nan")}, "d": None}
    line = to_json(Document(data=data))
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail) == {
        "a": [None, 1.5, [None, None]],
        "b": {"c": None},
        "d": None,
    }


def test_numbers_of_numpy_become_plain_ones() -> None:
    found = plain({"i": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True), "a": np.array([1.0, np.inf])})
    assert found == {"i": 3, "f": 0.5, "b": True, "a": [1.0, None]}
    assert [type(found[k]) for k in "ifb"] == [int, float, bool]


def test_names_that_are_not_text_can_still_be_printed() -> None:
    line = to_json(Document(data={"path": "caf\udce9", "name": "年龄"}))
    line.encode("utf-8")
    assert json.loads(line) == {"path": "caf\udce9", "name": "年龄"}


# --- documents --------------------------------------------------------------------------------------------


def test_a_document_grows_without_changing_the_first_one() -> None:
    first = Document("title", (Paragraph("a"), Note("in it", "note", "c")), data={"x": 1})
    more = first.named("here").warned(Note("apart")).followed_by(Paragraph("b"), y=2)
    assert more.title == "here: title"
    assert more.blocks == (*first.blocks, Paragraph("b"))
    assert more.data == {"x": 1, "y": 2}
    assert [str(note) for note in more.notes] == ["apart", "in it"]
    assert first == Document("title", (Paragraph("a"), Note("in it", "note", "c")), data={"x": 1})


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values"):
        Grid((Column("a"), Column("b")), (("x", 1), ("y",)))


# --- findings ---------------------------------------------------------------------------------------------

NAMES = ("<script>alert(1)</script>", "\x1b[31mred\nname", "年龄" * 40)


@pytest.fixture(scope="module")
def hostile_tables() -> AggregatedData:
    """Tables of features with names that nobody should have."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (3, 2000))
    y = (rng.random(2000) < 0.2 + 0.2 * codes[0]).astype(int)
    columns = {name: [f"{name}{v}" for v in f] for name, f in zip(NAMES, codes, strict=True)}
    return agglearn.aggregate({**columns, "y": y}, "y")


@pytest.fixture(scope="module")
def hostile_findings(hostile_tables: AggregatedData) -> dict[str, Finding]:
    model = agglearn.fit(hostile_tables, FitSettings(chains=500, iterations=20))
    return {
        "check": agglearn.check(replace(hostile_tables, rows=1999)),
        "score": agglearn.score_tables(model, hostile_tables),
        "diagnosis": agglearn.diagnose(model, hostile_tables, check=hostile_tables),
    }


@pytest.mark.parametrize("name", ["check", "score", "diagnosis"])
def test_findings_about_hostile_names_are_harmless(hostile_findings: dict[str, Finding], name: str) -> None:
    finding = hostile_findings[name]
    said = str(finding)
    assert "\x1b" not in said
    assert r"\x1b[31mred\nname" in said
    assert max(cell_len(line) for line in said.splitlines()) <= 110
    page = Page(finding._repr_html_())
    assert "script" not in page.tags
    assert any("<script>" in t for t in page.texts)
    json.loads(to_json(finding.document()), parse_constant=pytest.fail)


def comparison() -> Comparison:
    score = score_predictions([0, 1, 1, 0], [-1.0, 1.0, 0.5, -0.5])
    models = {name: ModelResult(score, 0.5, 16.0) for name in ("maxent", "logistic")}
    return Comparison(models, train_rows=4000, test_rows=1000, features=3, tables=3, cells=27)


def fit_report() -> FitReport:
    path = [
        {"lambda_theta": 16.0, "lambda_mu": 0.1, "gain": 0.0, "gain_se": 0.0},
        {"lambda_theta": 4.0, "lambda_mu": 0.1, "gain": 0.01, "gain_se": 0.002},
    ]
    choice = {"lambda_theta": 6.5, "lambda_mu": 0.1, "path": path, "folds": 2, "work": 2.5}
    return FitReport(
        iterations=120,
        chains=10_000,
        seconds=1.25,
        lambda_theta=6.5,
        lambda_mu=0.1,
        stopped_because="tolerance",
        misfit_d=0.0123,
        misfit_c=0.0045,
        steps_halved=2,
        valid=Measured(0.25, 0.01),
        choice=choice,
    )


def test_every_finding_says_its_data_and_shows_itself(
    random_tables: Callable[..., AggregatedData], toy: Any
) -> None:
    findings: list[Any] = [
        agglearn.check(random_tables()),
        score_predictions([0, 1, 1, 0], [-1.0, 1.0, 0.5, -0.5]),
        comparison(),
        fit_report(),
    ]
    for finding in findings:
        document = finding.document()
        assert document.data == finding.to_json()
        assert str(finding).splitlines()[0] == document.title
        assert document.title in Page(finding._repr_html_()).texts
    aggregation = agglearn.aggregate_split(toy, "y")
    assert str(aggregation).splitlines()[-1] == "train: 5 records (60.00% y) in 3 tables, 12 cells"
    assert aggregation.document().data["parts"] == {"train": {"rows": 5, "positives": {"y": 3}}}


def test_a_comparison_reads_as_the_table_of_the_paper() -> None:
    found = str(comparison()).splitlines()
    assert found[0] == "trained on 4,000 records, tested on 1,000"
    assert found[1].split() == ["model", "NLLH", "AUC", "seconds", "penalty", "learnt", "from"]
    # By hand: the losses log(1 + e⁻¹) and log(1 + e^−½), twice each, over log 2; every pair is in order.
    nllh = 1 - (np.log1p(np.exp(-1)) + np.log1p(np.exp(-0.5))) / 2 / np.log(2)
    assert found[2].split() == ["logistic", "regression", f"{nllh:.4f}", "1.0000", "0.50", "16", "records"]
    assert found[3].split()[0] == "agglearn"


def test_a_fit_says_how_it_ended_and_what_to_mind() -> None:
    assert str(fit_report()).splitlines() == [
        "120 iterations of 10,000 chains in 1.2 s (tolerance)",
        "warning: the fit grew worse on the way: steps were halved 2 times",
        "  penalty 6.5; misfit 1.23% of records, 0.45% of positives a table",
        "  NLLH on the validation tables 0.2500 ± 0.0100",
        "  penalties chosen on held-out tables of 2 folds, at the cost of 2.5 fits:",
        "  λ_θ  λ_μ  NLLH beside the first, and the standard error of the last step",
        "   16  0.1",
        "    4  0.1  +0.0100 ± 0.0020",
        "  6.5  0.1  taken",
    ]


def test_notes_of_a_check_tell_their_cause(random_tables: Callable[..., AggregatedData]) -> None:
    report = agglearn.check(replace(random_tables(), rows=499))
    problems = [note for note in report.document().notes if note.severity == "problem"]
    assert [note.cause for note in problems] == ["total"]
    assert "and 2 others like it" in problems[0].text


# --- the command line -------------------------------------------------------------------------------------


def test_a_narrow_terminal_is_minded_and_a_pipe_is_always_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agglearn.cli.app import show

    monkeypatch.setenv("COLUMNS", "50")
    document = Document(blocks=(Paragraph(LOREM),), warnings=(Note("mind \x1b[31m this"),))
    show(document, json=False)
    piped = capsys.readouterr()
    assert 100 < max(map(len, piped.out.splitlines())) <= 110
    assert piped.err == "mind \\x1b[31m this\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(document, json=False)
    assert 40 < max(map(len, capsys.readouterr().out.splitlines())) <= 50


def test_a_name_in_an_error_steers_nothing_either(run_cli: Any) -> None:
    done = run_cli("check", "\x1b[31mred.agg")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(r"agglearn: \x1b[31mred.agg does not exist")


def test_the_list_of_data_sets_shows_those_whose_size_is_not_known(run_cli: Any) -> None:
    done = run_cli("datasets")
    assert done.code == 0
    assert re.search(r"^  adult +48,842 +14  income +UCI Adult", done.out, re.MULTILINE)
    assert {d["name"] for d in run_cli("datasets", "--json").json["datasets"]} <= set(done.out.split())
