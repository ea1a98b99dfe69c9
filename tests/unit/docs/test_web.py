"""docs/web.md and packages/integrations/docs/tracing.md show their programs as they are."""

import pytest

from tests.support import ROOT
from tests.support.documented import page_of

EXAMPLES = [
    ("web.md", "flask/shop.py"),
    ("web.md", "fastapi/shop.py"),
    ("web.md", "fastapi/orders.py"),
    ("tracing.md", "tracing/shop.py"),
]


@pytest.mark.parametrize(("page", "name"), EXAMPLES)
def test_the_page_shows_the_example(page: str, name: str) -> None:
    text = page_of(page).read_text()
    assert f"```python\n{(ROOT / 'examples' / name).read_text()}```\n" in text
