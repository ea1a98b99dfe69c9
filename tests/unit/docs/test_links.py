"""Links from page to page lead somewhere."""

import re

import pytest

from tests.support import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)")


def slug(title: str) -> str:
    """What a title is called in a link, as by GitHub."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def titles(text: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {slug(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_has_its_file_and_title(page) -> None:  # type: ignore[no-untyped-def]
    text = page.read_text()
    missing = []
    for path, title in LINK.findall(without_code(text)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            missing.append(path)
        elif title and target.suffix == ".md" and title not in titles(target.read_text()):
            missing.append(f"{path}#{title}")
    assert not missing
