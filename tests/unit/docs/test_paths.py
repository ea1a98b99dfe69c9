"""The pages name no place of the machine on which they were written."""

import re

from tests.support import ROOT

PAGES = [*ROOT.glob("*.md"), *(page for page in (ROOT / "docs").rglob("*") if page.is_file())]
# This checkout, any other one's environment, and homes. What a reader is told to make (/tmp/disque,
# /etc, /opt, /var/lib) is none of them.
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
