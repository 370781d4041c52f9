"""What the site needs beyond Markdown: formulas, pages from beside the folder, and the commands' own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File
from typer.main import get_command

from agglearn.cli import app

ROOT = Path(__file__).parents[1]
BESIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand at the top of the repository."""
    for name, page in BESIDE.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead to those pages, and set formulas."""
    for name, there in BESIDE.items():
        markdown = markdown.replace(f"](../{name}", f"]({there}")
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", "\n\n".join(_commands()))
    return re.sub(r"^\$\$(.+?)\$\$$", _formula, markdown, flags=re.MULTILINE | re.DOTALL)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Names that docstrings mark as docutils does, as names."""
    return re.sub(
        r":(?:class|func|meth|mod|attr|data):<code>~?(?:[\w.]*\.)?(\w+)</code>", r"<code>\1</code>", html
    )


def _formula(found: re.Match[str]) -> str:
    return f'<div class="formula">{convert(found[1].strip(), display="block")}</div>'


def _commands() -> Iterator[str]:
    """Every command with its arguments and options, as their help tells."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        yield f"## agglearn {name}\n\n{command.help}\n\n| | |\n|---|---|\n" + "\n".join(_options(command))


def _options(command: Any) -> Iterator[str]:
    for option in command.params:
        argument = option.param_type_name == "argument"
        name = (
            (option.metavar or option.name.upper())
            if argument
            else ", ".join(sorted(option.opts, key=len, reverse=True))
        )
        default = option.default
        told = (
            "" if argument or default in (None, False, ...) or callable(default) else f" (default: {default})"
        )
        text = " ".join((option.help or "").split()) + told
        yield f"| `{name}` | {text} |".replace("*", "\\*")
