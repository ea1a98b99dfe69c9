"""A hook for mkdocs, which adds pages from outside ``docs/``.

The pages at the top of the tree and those of the other distributions are also pages of the site. A
link to any other file in the tree leads to a page that shows the file, or lists the directory. So
the site does not need to know where the sources are hosted, and mkdocs checks all links. ``<!--
files: PACKAGE ... -->`` in a page is replaced by a list of the modules of these packages.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
TOP = {  # pages, and their names in the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
}
# Those, and the pages of the other distributions with their pictures.
PLACED = TOP | {
    page.relative_to(ROOT).as_posix(): page.relative_to(folder).as_posix()
    for folder in sorted(ROOT.glob("packages/*/docs"))
    for page in sorted(folder.rglob("*.*"))
}
SOURCES = {uri: path for path, uri in PLACED.items()}
LANGUAGES = {".service": "ini", ".socket": "ini", ".timer": "ini", ".mjs": "js", ".conf": "text"}
# Code, which contains no links; or a link within the site, and its anchor.
LINK = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)|^    .*?$|`[^`\n]*`"
    r"|\]\((?!\w+:)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]+)?\)",
    re.MULTILINE | re.DOTALL,
)

UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
MODULES = re.compile(r"^<!-- files: (.*) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside ``docs/``, and those for files that pages link to."""
    for name, uri in PLACED.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    left = [target for file in files.documentation_pages() for target in _shown(file)]
    while left:
        path = left.pop()
        uri = _uri(path)
        if files.get_file_from_path(uri) is None:
            text = _folder(path) if uri.endswith("/index.md") else _code(path)
            page = File.generated(config, uri, content=UNSEARCHED + text)
            files.append(page)
            left += _shown(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead to the places of their files in the site."""
    file = page.file

    def put(found: re.Match[str]) -> str:
        path = _in_tree(file, found["path"]) if found["path"] else None
        if path is None:
            return found[0]
        uri = path.removeprefix("docs/") if path.startswith("docs/") else _uri(path)
        link = posixpath.relpath(uri, posixpath.dirname(file.src_uri))
        return f"]({link}{found['anchor'] or ''})"

    return LINK.sub(put, MODULES.sub(_modules, markdown))


def _modules(found: re.Match[str]) -> str:
    """A collapsed list of the modules of the named packages."""
    lines = ['??? note "All files"\n']
    for package in found[1].split():
        for path in sorted((ROOT / package).glob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            if text is not None:
                sentence = re.split(r"(?<=\.)\s+(?=[A-Z`])|\n\n", text, maxsplit=1)[0]
                lines.append(f"    - `{path.relative_to(ROOT)}`: {' '.join(sentence.split())}")
    return "\n".join(lines)


def _shown(file: File) -> list[str]:
    """The paths, relative to the top of the tree, of all files linked from ``file`` that are not
    pages."""
    found = (
        _in_tree(file, link["path"]) for link in LINK.finditer(file.content_string) if link["path"]
    )
    return [path for path in found if path and not path.startswith("docs/") and path not in PLACED]


def _in_tree(file: File, link: str) -> str | None:
    """The target of a link, relative to the top of the tree; None if it does not exist, or is a
    link within docs/, which mkdocs handles."""
    if link.startswith("/"):
        path = link[1:]
    else:
        uri = file.src_uri
        inside = uri not in SOURCES and not uri.startswith("source/")
        own = f"docs/{uri}" if inside else SOURCES.get(uri, uri.removeprefix("source/"))
        folder = posixpath.dirname(own)
        path = posixpath.normpath(posixpath.join(folder, link))
        if inside and path.startswith("docs/"):
            return None
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def _uri(path: str) -> str:
    """The page for a path outside docs/."""
    if path in PLACED:
        return PLACED[path]
    folder = path.removesuffix("/README.md")
    return f"source/{folder}/index.md" if (ROOT / folder).is_dir() else f"source/{path}.md"


def _folder(path: str) -> str:
    """The page for a directory: its README, and a list of files, except generated and hidden
    ones."""
    path = path.removesuffix("/README.md")
    names = sorted(entry.name for entry in os.scandir(ROOT / path))
    made = ("README.md", "__pycache__", "node_modules", "build", "dist")
    entries = [
        name
        for name in names
        if name not in made and not name.startswith(".") and not name.endswith(".egg-info")
    ]
    title = f"# {path}\n"
    if "README.md" in names:
        title = (ROOT / path / "README.md").read_text(encoding="utf-8")
    return title + "\n" + "".join(f"- [`{name}`](/{path}/{name})\n" for name in entries)


def _code(path: str) -> str:
    suffix = Path(path).suffix
    language = LANGUAGES.get(suffix, suffix[1:])
    text = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return f"# {path}\n\n~~~~~~{language}\n{text}\n~~~~~~\n"
