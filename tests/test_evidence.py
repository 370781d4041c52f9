"""The pages of the experiments: written from what is stored, and from nothing else."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from evidence.__main__ import write_page
from evidence.runner import Results

ROOT = Path(__file__).parent.parent
PAGES = {"paper": "paper.md", "tables_only": "tables-only.md"}


@pytest.mark.parametrize("package", PAGES)
def test_a_page_is_what_its_stored_results_say(package: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    main = import_module(f"evidence.{package}.__main__")
    results = ROOT / "evidence" / package / "results"
    write_page(package, main.SUBJECTS, results, tmp_path / "page.md", main.OPENING)
    written = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert written == (ROOT / "docs" / PAGES[package]).read_text(encoding="utf-8")
    for figure in (tmp_path / "images").iterdir():
        assert (ROOT / "docs" / "images" / figure.name).exists()


@pytest.mark.parametrize("subject", ["score", "choice", "extra_tables", "intervals"])
def test_a_section_without_results_is_no_error(subject: str, tmp_path: Path) -> None:
    module = import_module(f"evidence.tables_only.{subject}")
    assert isinstance(module.section(Results(tmp_path / "none"), tmp_path), list)


@pytest.mark.parametrize("subject", ["score", "choice", "extra_tables", "intervals"])
def test_cells_have_names_of_their_own(subject: str) -> None:
    module = import_module(f"evidence.tables_only.{subject}")
    for config in (module.FULL, module.QUICK):
        names = [cell.name for cell in module.cells(config)]
        assert len(set(names)) == len(names) > 0
