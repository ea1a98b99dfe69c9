"""The pages contain no paths of the machine on which they were written."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.doc_blocks import pages

PICTURES = {".png"}
PAGES = [
    *ROOT.glob("*.md"),
    *(
        page
        for folder in (ROOT / "docs", *ROOT.glob("packages/*/docs"))
        for page in folder.rglob("*")
        if page.is_file() and page.suffix not in PICTURES
    ),
]
# This checkout, the environment of any other one, and home directories; not what a reader is told
# to create (/tmp/disque, /etc, /opt, /var/lib).
FOREIGN = re.compile(
    rf"{re.escape(str(ROOT))}/|(?<![\w.~])/(?:home|root|Users)/|(?<![\w.])/[^\s`'\"]*/\.venv"
)


def test_no_page_has_a_path_of_a_checkout_or_a_home() -> None:
    found = {
        f"{page.relative_to(ROOT)}: {line.strip()[:100]}"
        for page in PAGES
        for line in page.read_text().splitlines()
        if FOREIGN.search(line)
    }
    assert not found


def test_commands_that_made_a_table_have_relative_paths() -> None:
    commands = {
        (page.name, command)
        for page in PAGES
        for command in re.findall(r"^Made by `(.+?)`", page.read_text(), re.MULTILINE)
    }
    assert len(commands) > 10
    assert not [pair for pair in commands if re.search(r"[\s='\"]/", pair[1])]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in shown}


@pytest.mark.parametrize("name_of_page", pages())
def test_a_link_to_a_file_leads_to_it_and_its_heading(name_of_page: str) -> None:
    page = ROOT / name_of_page
    prose = re.sub(r"(?s)^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE)
    links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)", prose)
    for name, anchor in links:
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), (name, anchor)
