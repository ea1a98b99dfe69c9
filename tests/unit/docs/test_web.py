"""docs/web.md shows its programs as they are."""

import pytest

from tests.support import ROOT

PAGE = (ROOT / "docs" / "web.md").read_text()


@pytest.mark.parametrize("name", ["flask/shop.py", "fastapi/shop.py", "fastapi/orders.py"])
def test_the_page_shows_the_example(name: str) -> None:
    assert f"```python\n{(ROOT / 'examples' / name).read_text()}```\n" in PAGE
