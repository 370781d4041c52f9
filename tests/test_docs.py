"""The documentation, run: what a reader copies works as it stands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)


def run_page(page: Path, run_cli: Cli) -> int:
    """Run the blocks of a page in order, in one folder and one namespace; return how many ran."""
    namespace: dict[str, Any] = {}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for language, text in blocks:
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(text, page.name, "exec"), namespace)
        else:
            run_console(text, run_cli)
    return len(blocks)


def run_console(text: str, run_cli: Cli) -> None:
    """Run the lines that begin with ``$``; a line after one that must fail is what it says."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("$ agglearn "):
            continue
        command, _, comment = line.removeprefix("$ agglearn ").partition("#")
        done = run_cli(*shlex.split(command))
        expected = 2 if "exit 2" in comment else 0
        assert done.code == expected, f"{line}\n{done.err}"
        if expected == 2:
            assert done.err.strip() == lines[number + 1]


EXECUTED = [
    "docs/guide.md",
    "docs/index.md",
    "docs/explain.md",
    "docs/export.md",
    "docs/tutorials/clean-room.md",
    "docs/tutorials/daily-tables.md",
    "docs/tutorials/noisy-api.md",
    "docs/tutorials/statistical-office.md",
    "docs/tutorials/unlabelled-records.md",
]
ON_SPARK = "docs/tutorials/spark.md"


@pytest.mark.parametrize("page", EXECUTED)
def test_every_example_of_a_page_works(
    page: str, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run_page(ROOT / page, run_cli) > 2


def test_every_example_of_the_page_about_spark_works(
    spark: Any, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(_with_whole_paths(ROOT / ON_SPARK, tmp_path), run_cli) > 2


def _with_whole_paths(page: Path, folder: Path) -> Path:
    """A copy of the page whose files are in a folder, wherever Java thinks that it is."""
    text = re.sub(
        r"(\{name\}|clicks|fresh|scores|synthetic)\.parquet", rf"{folder}/\1.parquet", page.read_text("utf-8")
    )
    copy = folder / page.name
    copy.write_text(text, encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page.parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize(
    "page", sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
)
def test_code_on_a_page_is_run_or_is_at_least_python(page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    if page not in (*EXECUTED, ON_SPARK):
        assert "console" not in [language for language, _ in blocks], f"{page} shows commands and is not run"
        for _, text in blocks:
            compile(text, page, "exec")


@pytest.mark.parametrize("name", ["what-it-learnt", "tables-and-trust"])
def test_a_notebook_runs_and_is_kept_with_what_it_showed(name: str, tmp_path: Path) -> None:
    client, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    path = ROOT / "docs" / "notebooks" / f"{name}.ipynb"
    kept = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in kept)
    assert "/home/" not in path.read_text()
    notebook = nbformat.read(path, as_version=4)
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [[output.output_type for output in cell.outputs] for cell in shown]
    assert kinds == [[output["output_type"] for output in cell["outputs"]] for cell in kept]


def test_the_site_builds_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=quiet)
    assert done.returncode == 0, done.stderr
    method = (tmp_path / "method.html").read_text()
    assert method.count("<math") >= 3
    assert "predict_proba" in (tmp_path / "reference" / "models.html").read_text()
    assert "--lambda-theta" in (tmp_path / "reference" / "cli.html").read_text()
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=.?(https?://[^\s>]+)", page.read_text())
        assert not [there for there in fetched if "canonical" not in there], page
