"""What MkDocs needs besides the pages in `docs`: those that lie elsewhere, and links that lead out of `docs`.

The pages are written for a code host, where every file of the repository can be linked. The site gets the files that
are linked, and the links to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code_of_conduct.md",
    "benchmarks/RESULTS.md": "project/results.md",
}
"""Pages outside of `docs`, and where the site has them."""
_ORIGINS = {shown: origin for origin, shown in PAGES.items()}

_FENCED = re.compile(r"(^(?P<fence>`{3,}).*?^(?P=fence)$)", flags=re.MULTILINE | re.DOTALL)
_MARKDOWN_LINK = re.compile(r"(?P<before>\[(?P<text>[^\]\n]*)\]\()(?P<target>[^)\s]+)(?P<after>\))")
_HTML_LINK = re.compile(r"(?P<before>(?:src|srcset|href)=\")(?P<target>[^\"]+)(?P<after>\")")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of `docs`, and what else pages link."""
    for origin, shown in PAGES.items():
        files.append(File.generated(config, shown, abs_src_path=str(ROOT / origin)))
    for page in files.documentation_pages():
        text = page.content_string
        for link in (_MARKDOWN_LINK, _HTML_LINK):
            for found in link.finditer(_FENCED.sub("", text)):
                path = _path_of(page.src_uri, found["target"])
                shown = _place_of(path) if path is not None and path.is_file() else None
                if path is not None and shown is not None and files.get_file_from_path(shown) is None:
                    files.append(File.generated(config, shown, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links lead to where the site has what they lead to in the repository."""
    parts = re.split(_FENCED, markdown)
    # With two groups, each fenced block comes as itself and its fence, between two stretches of prose.
    for at in range(0, len(parts), 3):
        prose = _MARKDOWN_LINK.sub(_moved(page.file.src_uri), parts[at])
        prose = _HTML_LINK.sub(_moved(page.file.src_uri), prose)
        parts[at] = prose.replace("<details>", '<details markdown="1">')
        if at + 1 < len(parts):
            parts[at + 2] = ""
    return "".join(parts)


def _moved(page: str) -> Callable[[re.Match[str]], str]:
    def move(found: re.Match[str]) -> str:
        path = _path_of(page, found["target"])
        if path is None or not path.exists():
            return found.group()
        if path.is_dir():
            return found["text"]  # the site has no list of files
        anchor = "".join(found["target"].partition("#")[1:])
        shown = os.path.relpath(_place_of(path), Path(page).parent)
        return f"{found['before']}{shown}{anchor}{found['after']}"

    return move


def _path_of(page: str, target: str) -> Path | None:
    """The file of the repository that a link of a page leads to; None where it leads elsewhere."""
    name = target.partition("#")[0]
    if not name or re.match(r"[a-z]+:", target):
        return None
    origin = ROOT / _ORIGINS.get(page, f"docs/{page}")
    path = Path(os.path.normpath(origin.parent / name))
    return path if path.is_relative_to(ROOT) else None


def _place_of(path: Path) -> str:
    """Where the site has a file of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if name in PAGES:
        return PAGES[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else f"project/files/{name}"
