"""The pages of the evidence: written from what is stored, and from nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from evidence.__main__ import SUBJECTS, contents, main, run_section, subject
from evidence.page import write_page
from evidence.runner import Cell, Results, Value, run_cells
from evidence.subject import Subject

ROOT = Path(__file__).parent.parent
SECTIONS = [(name, section) for name in SUBJECTS for section in subject(name).sections]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_page_is_what_its_stored_results_say(name: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    write_page(subject(name), tmp_path / "page.md")
    written = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert written == subject(name).target.read_text(encoding="utf-8")
    for figure in (tmp_path / "images").iterdir():
        assert (ROOT / "docs" / "images" / figure.name).exists()


@pytest.mark.parametrize("section", subject("tables_only").sections)
def test_a_section_without_results_is_no_error(section: str, tmp_path: Path) -> None:
    module = subject("tables_only").module(section)
    assert isinstance(module.section(Results(tmp_path / "none"), tmp_path), list)


@pytest.mark.parametrize(("name", "section"), SECTIONS)
@pytest.mark.parametrize("quick", [False, True])
def test_cells_have_names_of_their_own(name: str, section: str, quick: bool) -> None:
    names = [cell.name for cell in subject(name).cells(section, quick)]
    assert len(set(names)) == len(names) > 0


def test_a_cell_is_run_once_unless_its_settings_change_or_it_measures(tmp_path: Path) -> None:
    runs: list[str] = []

    def work() -> Value:
        runs.append("run")
        return {"seen": len(runs)}

    results = Results(tmp_path)
    for cell in (
        Cell("a", {"seed": 0}, work),
        Cell("a", {"seed": 0}, work),
        Cell("a", {"seed": 1}, work),
        Cell("a", {"seed": 1}, work, again=True),
    ):
        assert run_cells("some", [cell], results) == []
    assert len(runs) == 3
    assert results["a"] == {"seen": 3}
    assert results.settings("a") == {"seed": 1}


def test_a_subject_is_one_module_with_its_cells_and_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo = ModuleType("evidence.zoo", "What animals there are.")
    page = Subject("zoo", "zoo", "# The zoo")
    vars(zoo).update(
        TITLE="Animals",
        FULL=("lion", "owl"),
        QUICK=("owl",),
        SUBJECT=page,
        cells=lambda names: [Cell(name, {}, lambda: {"legs": 4}) for name in names],
        section=lambda results, images: [f"{name}: {found['legs']} legs" for name, found in results.items()],
    )
    monkeypatch.setitem(sys.modules, "evidence.zoo", zoo)
    monkeypatch.setattr("evidence.subject._ROOT", tmp_path)
    run_section(page, "zoo", quick=True)
    assert not page.results("zoo")
    run_section(page, "zoo", quick=False)
    write_page(page, tmp_path / "zoo.md")
    text = (tmp_path / "zoo.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# The zoo\n\n## Animals\n\nWhat animals there are.\n\nlion: 4 legs\nowl: 4 legs\n\n"
    )
    assert text.endswith("`python -m evidence zoo`: 2 cells, 0 s.\n")


def test_the_command_tells_what_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in ([], ["--list"]):
        monkeypatch.setattr(sys, "argv", ["evidence", *words])
        main()
        assert contents() in capsys.readouterr().out
    for name, section in SECTIONS:
        assert name in contents()
        assert section in contents()


@pytest.mark.parametrize("words", [["sped"], ["speed", "sweeping"]])
def test_a_word_that_names_nothing_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["evidence", *words])
    with pytest.raises(SystemExit):
        main()
    assert f"{words[-1]!r}: there are" in capsys.readouterr().err
