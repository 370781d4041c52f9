"""The report, opened in a real browser: complete, quiet, safe, and right about the records one tries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import agglearn
from agglearn import AgglearnError, MaxEntClassifier, write_report
from agglearn.page.contents import report_contents
from agglearn.page.write import MOST_BYTES
from tests.browser import open_page, wait_for
from tests.conftest import Cli
from tests.records import make_records

SECTIONS = ("sources", "quality", "learnt", "whatif", "trust", "training", "reproduce")


@pytest.fixture(scope="module")
def parts() -> dict[str, agglearn.AggregatedData]:
    records = make_records(3000)
    return agglearn.aggregate_split(
        records, "bought", positive="yes", exclude=["id"], categorical=["size"], split={"valid": 0.3}
    ).parts


@pytest.fixture(scope="module")
def fitted(parts: dict[str, agglearn.AggregatedData]) -> MaxEntClassifier:
    return MaxEntClassifier(chains=2000).fit(parts["train"], valid=parts["valid"])


@pytest.fixture(scope="module")
def report(
    fitted: MaxEntClassifier,
    parts: dict[str, agglearn.AggregatedData],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(fitted, path, tables=parts["train"], valid=parts["valid"], compare=True, name="Shop")
    return path


def set_field(browser: Any, f: int, value: str) -> None:
    """Set a field of the calculator as a reader does."""
    browser.execute_script(
        "const [f, value] = arguments, node = document.getElementById(`field-${f}`); node.value = value;"
        "node.dispatchEvent(new Event(node.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))",
        f,
        value,
    )


def probability(browser: Any) -> float:
    return float(browser.execute_script("return document.getElementById('probability').dataset.probability"))


# --- the page as it is ------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_is_light(report: Path) -> None:
    text = report.read_text()
    assert report.stat().st_size < MOST_BYTES
    own = text[: text.index('<script type="application/json"')]
    assert "http" not in own
    assert "src=" not in own


def test_it_opens_without_a_word_on_the_console_and_every_section_has_its_content(
    browser: Any, report: Path
) -> None:
    assert open_page(browser, report) == []
    for section in SECTIONS:
        text = browser.execute_script(f"return document.getElementById('{section}').innerText")
        assert len(text) > 80, section
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map(c => !!c.querySelector('svg'))"
    )
    assert len(drawn) > 10
    assert all(drawn)
    assert browser.title == "Shop · agglearn report"
    quality = browser.execute_script("return document.getElementById('quality').innerText")
    assert "NLLH" in quality
    assert "Naive Bayes" in browser.execute_script("return document.getElementById('quality').textContent")
    assert "further tables" in browser.execute_script("return document.getElementById('trust').innerText")


def test_choosing_a_pair_or_a_feature_redraws(browser: Any, report: Path) -> None:
    open_page(browser, report)
    for holder, select in (("pair", "pairs"), ("effect", "feature")):
        script = f"return document.getElementById('{holder}').innerText"
        before = browser.execute_script(script)
        browser.execute_script(
            f"const s = document.getElementById('{select}'); s.value = 1;s.dispatchEvent(new Event('change'))"
        )
        wait_for(
            browser,
            f"const c = [...document.querySelectorAll('#{holder} .chart')];"
            "return c.length && c.every(x => x.querySelector('svg'))",
        )
        assert browser.execute_script(script) != before
    assert browser.get_log("browser") == []


def test_what_if_is_what_predict_proba_says(browser: Any, report: Path, fitted: MaxEntClassifier) -> None:
    open_page(browser, report)
    schema = fitted.model_.schema
    rng = np.random.default_rng(0)
    records: dict[str, list[Any]] = {"colour": [], "size": [], "age": []}
    found = []
    for _ in range(12):
        colour, size, age = (
            rng.choice(["blue", "green", "red"]),
            int(rng.choice([1, 2, 3, 5])),
            int(rng.integers(18, 80)),
        )
        set_field(browser, 0, str(schema.feature("colour").code_of[str(colour)]))
        set_field(browser, 1, str(schema.feature("size").code_of[str(size)]))
        set_field(browser, 2, str(age))
        found.append(probability(browser))
        for name, value in zip(records, (str(colour), size, age), strict=True):
            records[name].append(value)
    np.testing.assert_allclose(found, fitted.predict_proba(records)[:, 1], rtol=0, atol=1e-6)
    # The last record's interval: fewer draws than Python takes, in bytes, so about as wide.
    said = browser.execute_script("return document.getElementById('interval').innerText")
    low, high = (
        float(part.split("%")[0].split()[-1]) / 100 for part in said.split("interval")[1].split("to")
    )
    told = fitted.predict_interval({name: values[-1:] for name, values in records.items()})[0]
    assert low < found[-1] < high
    assert 0.5 < (high - low) / (told[1] - told[0]) < 2


def test_what_if_knows_unknown_and_missing_values(
    browser: Any, report: Path, fitted: MaxEntClassifier
) -> None:
    open_page(browser, report)
    set_field(browser, 0, "3")  # past the last modality: unknown to the model
    set_field(browser, 1, "0")
    set_field(browser, 2, "")
    with pytest.warns(UserWarning, match="does not know"):
        expected = fitted.predict_proba({"colour": ["mauve"], "size": [1], "age": [None]})[0, 1]
    assert probability(browser) == pytest.approx(expected, abs=1e-6)
    set_field(browser, 2, "about forty")
    with pytest.warns(UserWarning, match="does not know"):
        expected = fitted.predict_proba({"colour": ["mauve"], "size": [1], "age": ["about forty"]})[0, 1]
    assert probability(browser) == pytest.approx(expected, abs=1e-6)


def test_light_and_dark_are_a_button_apart_and_the_keyboard_reaches_everything(
    browser: Any, report: Path
) -> None:
    from selenium.webdriver.common.keys import Keys

    open_page(browser, report)
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(colour)
    browser.execute_script("document.getElementById('theme').focus()")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_script(colour) != before
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(45):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(
            browser.execute_script("return document.activeElement.id || document.activeElement.tagName")
        )
    assert {"theme", "feature", "pairs", "field-0", "field-1", "field-2", "SUMMARY", "A"} <= reached
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('select, input')].filter(n => !n.labels.length).length"
    )
    assert unnamed == 0
    assert browser.execute_script("return document.querySelectorAll('.chart:not([aria-label])').length") == 0


@pytest.mark.parametrize("width", [1280, 500])
def test_nothing_is_wider_than_the_window(width: int, browser: Any, report: Path) -> None:
    browser.set_window_size(width, 900)
    open_page(browser, report)
    sizes = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    browser.set_window_size(1280, 1000)
    assert sizes[0] <= sizes[1]


def test_it_prints_on_a_few_pages(browser: Any, report: Path) -> None:
    open_page(browser, report)
    import base64

    printed = base64.b64decode(browser.print_page())
    assert printed.startswith(b"%PDF")
    assert (
        2
        <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") + printed.count(b"/Type/Page/")
        <= 20
    )


# --- awkward models ---------------------------------------------------------------------------------------

HOSTILE = [
    "<script>window.hurt = 1</script>",
    '"><img src=x onerror="window.hurt = 1">',
    "'; window.hurt = 1; '",
    "{{contents}}</script><script>window.hurt = 1</script>",
    "\u202ereversed\u202c",
    "مرحبا",
    "🎈" * 5,
    "long " * 2000,
    "back\\slash\nand line",
]


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    name = "<b>bold</b>\"' onload=x"
    records = pa.table(
        {
            name: rng.choice(HOSTILE, 2000).tolist(),
            "constructor": rng.choice(["__proto__", "toString"], 2000).tolist(),
            "<script>y</script>": rng.integers(0, 2, 2000),
        }
    )
    parts = agglearn.aggregate_split(records, "<script>y</script>", split={"valid": 0.3}).parts
    fitted = MaxEntClassifier(chains=500).fit(parts["train"])
    path = tmp_path / "report.html"
    write_report(fitted, path, tables=parts["train"], valid=parts["valid"], compare=True, name=HOSTILE[0])
    assert open_page(browser, path) == []
    assert browser.execute_script("return window.hurt") is None
    assert browser.execute_script("return document.querySelectorAll('main img, main script').length") == 0
    assert not browser.execute_script(
        "return [...document.querySelectorAll('b')].some(b => b.innerText === 'bold')"
    )
    assert HOSTILE[0] in browser.execute_script("return document.body.textContent")
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    schema = fitted.model_.schema
    for value in HOSTILE:
        set_field(browser, 0, str(schema.feature(name).code_of[value]))
        set_field(browser, 1, "0")
        expected = fitted.predict_proba({name: [value], "constructor": ["__proto__"]})[0, 1]
        assert probability(browser) == pytest.approx(expected, abs=1e-6)


def test_features_of_a_thousand_values_leave_the_page_quick(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    site = rng.integers(0, 1000, n)
    records = pa.table(
        {
            "site": [f"site {k}" for k in site],
            "page": [f"page {k}" for k in rng.integers(0, 30, n)],
            "hour": rng.integers(0, 24, n),
            "click": (rng.random(n) < 0.1 + 0.2 * (site % 7 == 0)).astype(int),
        }
    )
    tables = agglearn.aggregate(records, "click", max_modalities=1100, categorical=["hour"])
    assert max(tables.schema.cards) >= 1000
    fitted = MaxEntClassifier(chains=2000, iterations=30).fit(tables)
    path = tmp_path / "report.html"
    assert write_report(fitted, path, tables=tables) < MOST_BYTES
    began = time.monotonic()
    assert open_page(browser, path) == []
    # A second or two alone; the bound is for a machine that does other things at the same time.
    assert time.monotonic() - began < 20
    set_field(browser, 0, "site 14")
    expected = fitted.predict_proba({"site": ["site 14"], "page": ["page 3"], "hour": [5]})
    schema = fitted.model_.schema
    set_field(browser, 1, str(schema.feature("page").code_of["page 3"]))
    set_field(browser, 2, str(schema.feature("hour").code_of["5"]))
    assert probability(browser) == pytest.approx(expected[0, 1], abs=1e-6)
    changed = browser.execute_script(
        "const t = performance.now(), s = document.getElementById('pairs'); s.value = 2;"
        "s.dispatchEvent(new Event('change')); return performance.now() - t"
    )
    assert changed < 2000


def test_a_model_too_large_for_the_calculator_says_so(
    fitted: MaxEntClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setattr("agglearn.page.whatif._MOST_CELLS", 10)
    write_report(fitted, tmp_path / "report.html")
    assert open_page(browser, tmp_path / "report.html") == []
    assert "cannot score records" in browser.execute_script(
        "return document.getElementById('whatif').innerText"
    )


# --- the command line -------------------------------------------------------------------------------------


def test_private_tables_are_told_with_what_was_spent_and_what_is_not_promised() -> None:
    pytest.importorskip("opendp")
    from agglearn.privacy.api import aggregate_private
    from agglearn.privacy.budget import PrivacyOptions

    how = PrivacyOptions(epsilon=2.0, delta=1e-6, assume_public_schema=True)
    made = aggregate_private(make_records(2000), "bought", how, positive="yes", exclude=["id"])
    model = agglearn.fit(made.train, agglearn.FitSettings(chains=200, iterations=20))
    facts = dict(report_contents(model, "a model", made.train)["facts"])
    assert facts["Privacy"] == str(made.train.promise)
    assert "ε = 2, δ = 1e-06 for one record" in facts["Privacy"]
    assert "tables" in facts["Spent on"]
    assert "gaussian" in facts["Spent on"]
    assert "assumed" in facts["Not in the promise"]
    exact = agglearn.aggregate(make_records(500), "bought", positive="yes", exclude=["id"])
    model = agglearn.fit(exact, agglearn.FitSettings(chains=200, iterations=20))
    assert "Privacy" not in dict(report_contents(model, "a model", exact)["facts"])


def test_the_command_line_writes_a_report_judged_on_records(
    fitted: MaxEntClassifier,
    parts: dict[str, agglearn.AggregatedData],
    run_cli: Cli,
    tmp_path: Path,
    browser: Any,
) -> None:
    import pyarrow.csv as pacsv

    fitted.save(tmp_path / "m.model")
    agglearn.save(parts["train"], tmp_path / "t.agg")
    pacsv.write_csv(make_records(900, seed=5), tmp_path / "r.csv")
    done = run_cli(
        "report", tmp_path / "m.model", "--tables", tmp_path / "t.agg", "--valid", tmp_path / "r.csv",
        "--compare", "-o", tmp_path / "page.html", "--json",
    )  # fmt: skip
    assert done.json["bytes"] == (tmp_path / "page.html").stat().st_size
    assert open_page(browser, tmp_path / "page.html") == []
    quality = browser.execute_script("return document.getElementById('quality').innerText")
    score = fitted.evaluate(make_records(900, seed=5))
    assert "Judged on 900 records" in quality
    assert f"{score.nllh:.4f}" in quality
    assert f"{score.auc:.4f}" in quality


def test_a_comparison_needs_tables_and_something_to_judge_by(
    fitted: MaxEntClassifier, run_cli: Cli, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "m.model")
    refused = run_cli("report", tmp_path / "m.model", "--compare", "-o", tmp_path / "p.html")
    assert refused.code == 2
    assert "give both" in refused.err
    with pytest.raises(AgglearnError, match="give tables and valid"):
        write_report(fitted, tmp_path / "p.html", compare=True)
    assert not (tmp_path / "p.html").exists()
