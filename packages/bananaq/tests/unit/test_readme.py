"""What the README shows is tried with the page that has it too."""

from tests.support.doc_blocks import block, blocks

PAGE = "packages/bananaq/docs/bananaq.md"


def test_the_page_has_all_that_the_readme_shows() -> None:
    told = [line for shown in blocks(PAGE) for line in shown.text.splitlines()]
    own = block("packages/bananaq/README.md", "$ bananaq").text.splitlines()
    assert [line for line in own if line not in told] == []
