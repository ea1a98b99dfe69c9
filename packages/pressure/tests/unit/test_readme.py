"""What the README shows is tried with the page that has it too."""

from tests.support.doc_blocks import block


def test_it_begins_as_the_page_does() -> None:
    (own, page) = (
        block(f"packages/pressure/{name}", "$ pressure create").text
        for name in ("README.md", "docs/pressure.md")
    )
    assert own == page
