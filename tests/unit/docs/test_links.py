"""Links to other sites. Links within the site are checked by mkdocs (``test_site.py``)."""

import os
import re
import urllib.request
from urllib.parse import urlsplit

import pytest

from tests.support import ROOT
from tests.support.doc_blocks import pages

REACH = bool(os.environ.get("DISQUE_LINKS"))
# After `](`, or between < and >. Code contains no links.
LINK = re.compile(
    r"^(```+).*?^\1|^    .*?$|`[^`\n]*`|\]\(([a-z]+:[^)\s]*)\)|<([a-z]+:[^>\s]*)>",
    re.MULTILINE | re.DOTALL,
)
LOCAL = "http://127.0.0.1:"  # servers that the reader has started


def links() -> dict[str, set[str]]:
    """Return the links of all pages, each with the pages that have it."""
    found: dict[str, set[str]] = {}
    for page in pages():
        for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8")):
            link = match[2] or match[3]
            if link and not link.startswith(LOCAL):
                found.setdefault(link, set()).add(page)
    return found


def test_links_to_other_sites_are_well_formed_and_encrypted() -> None:
    found = links()
    assert len(found) > 5
    for link, where in found.items():
        parts = urlsplit(link)
        assert parts.scheme == "https", (link, where)
        assert re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", parts.netloc), (link, where)
        assert re.fullmatch(r"[\w/.,~%+@:=&?#-]*", link.partition(parts.netloc)[2]), (link, where)


@pytest.mark.skipif(not REACH, reason="needs the network; set DISQUE_LINKS")
@pytest.mark.parametrize("link", sorted(links()))
def test_a_link_to_another_site_leads_somewhere(link: str) -> None:
    request = urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
