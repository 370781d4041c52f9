"""The documentation, run: what a reader copies works as it stands."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
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


@pytest.mark.parametrize("page", ["docs/guide.md"])
def test_every_example_of_a_page_works(
    page: str, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run_page(ROOT / page, run_cli) > 5


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page.parent / target).exists(), f"{page} links to {target}"
