"""A hook of MkDocs: adds the pages outside of `docs`, and mends links that lead out of it.

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
_OTHER_FILES = "project/files/"

_FENCED = re.compile(r"(^(?P<fence>`{3,}).*?^(?P=fence)$)", flags=re.MULTILINE | re.DOTALL)
_MARKDOWN_LINK = re.compile(r"(?P<before>\[(?P<text>[^\]\n]*)\]\()(?P<target>[^)\s]+)(?P<after>\))")
_HTML_LINK = re.compile(r"(?P<before>(?:src|srcset|href)=\")(?P<target>[^\"]+)(?P<after>\")")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of `docs`, and the other files that any page links."""
    for origin, shown in PAGES.items():
        files.append(File.generated(config, shown, abs_src_path=str(ROOT / origin)))
    pages = list(files.documentation_pages())
    for page in pages:  # which grows by linked pages
        text = page.content_string
        for link in (_MARKDOWN_LINK, _HTML_LINK):
            for found in link.finditer(_FENCED.sub("", text)):
                path = _path_of(page.src_uri, found["target"])
                shown = _place_of(path) if path is not None and path.is_file() else None
                if path is not None and shown is not None and files.get_file_from_path(shown) is None:
                    added = File.generated(config, shown, abs_src_path=str(path))
                    files.append(added)
                    pages += [added] if added.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the page with its links to files of the repository turned into links within the site."""
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
    """Return the file of the repository that a link of a page leads to, or None if it leads elsewhere."""
    name = target.partition("#")[0]
    if not name or re.match(r"[a-z]+:", target):
        return None
    copied = page.removeprefix(_OTHER_FILES) if page.startswith(_OTHER_FILES) else f"docs/{page}"
    origin = ROOT / _ORIGINS.get(page, copied)
    path = Path(os.path.normpath(origin.parent / name))
    return path if path.is_relative_to(ROOT) else None


def _place_of(path: Path) -> str:
    """Return the place on the site of a file of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if name in PAGES:
        return PAGES[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else f"{_OTHER_FILES}{name}"
