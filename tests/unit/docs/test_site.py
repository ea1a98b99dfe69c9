"""The documentation site, built as ``make docs`` does: warnings are errors, and a broken link is a
warning."""

import ast
import html
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tools.site import PLACED
from tools.workspace import distributions

HOUSES = [ROOT / house.folder / house.package for house in distributions()]
API = [*(ROOT / "docs" / "api").glob("*.md"), *ROOT.glob("packages/*/docs/api/*.md")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_its_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=\"?(?:https?:)?//[^\s>]*"
        r"|<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?(?:https?:)?//[^\s>]*"
        r"|url\(\"?(?:https?:)?//[^)]*|@import[^;]*//[^;]*"
    )
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css")]
    assert len(files) > 50
    found = {found for file in files for found in loaded.findall(file.read_text())}
    assert found == set()


def test_public_classes_are_told_with_their_types(site: Path) -> None:
    page = (site / "api" / "client.html").read_text()
    for name in ("connect", "Client", "Client.add", "HeldJob", "NoReplError"):
        assert f'id="disque_trio.client.{name}"' in page, name
    assert 'id="disque_trio.client.client' not in page  # a module of its own
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert re.search(r"\bttl:\s+int \| None = None", text)


@pytest.mark.parametrize("page", sorted(API), ids=lambda p: p.stem)
def test_all_that_a_public_module_has_is_explained(site: Path, page: Path) -> None:
    [module] = re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
    text = (site / "api" / f"{page.stem}.html").read_text()
    parts = dict(re.findall(rf'<h2 id="{module}\.(\w+)"(.*?)(?=<h2 |\Z)', text, re.DOTALL))
    assert sorted(parts) == sorted(importlib.import_module(module).__all__)
    assert [name for name, part in parts.items() if not re.search(r"<p>\S", part)] == []


def test_each_page_has_a_place_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w/-]+\.md", nav)
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert len(set(named)) == len(named)
    assert {str(page) for page in pages} | {
        uri for uri in PLACED.values() if uri.endswith(".md")
    } == set(named)


def test_the_front_page_is_the_readme(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert "A job queue for people who know Redis" in page
    assert '<a href="tutorial.html">' in page


def test_a_file_that_a_page_links_to_is_a_page(site: Path) -> None:
    assert "source/examples/mails/mails.py.html" in (site / "jobs.html").read_text()
    assert (site / "source" / "examples" / "mails" / "mails.py.html").exists()
    listed = (site / "source" / "examples" / "greetings" / "index.html").read_text()
    assert 'href="worker.py.html"' in listed
    assert "on Trio and on asyncio" in (site / "source" / "examples" / "index.html").read_text()


def test_the_search_knows_commands(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert '"commands.html#addjob"' in index


def test_the_tour_has_every_module_that_says_what_it_is(site: Path) -> None:
    tour = (site / "source-tour.html").read_text()
    for path in (path for house in HOUSES for path in house.rglob("*.py")):
        if ast.get_docstring(ast.parse(path.read_text())) is not None:
            assert f"<code>{path.relative_to(ROOT)}</code>" in tour


def test_the_tour_names_files_that_there_are() -> None:
    tour = (ROOT / "docs" / "source-tour.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`", tour)
    assert len(named) > 30
    files = [str(path) for house in HOUSES for path in house.rglob("*.py")]
    assert [name for name in named if not any(f.endswith(f"/{name}") for f in files)] == []
