"""The story in docs/console.md, with three real nodes and a real browser."""

from pathlib import Path

import pytest

from packages.console.tests.support.browser import Browser
from packages.console.tests.support.console_story import PAGE, Story, pictures

pytestmark = pytest.mark.live


def test_a_dead_letter_is_fixed_and_a_node_taken_out_as_documented(
    chrome: Browser, tmp_path: Path
) -> None:
    taken: list[str] = []
    story = Story(tmp_path / "disque", chrome, taken.append, {"delay(20": "delay(2"})
    with story.told():
        chrome.look()
        story.begin()
        story.look_around()
        story.fix_the_letter()
        story.take_a_node_out()
        assert chrome.complaints() == []
        story.end()
    assert taken == pictures()


def test_every_picture_exists() -> None:
    assert sorted(path.stem for path in (PAGE.parent / "pictures").glob("*.png")) == sorted(
        set(pictures())
    )
