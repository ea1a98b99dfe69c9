"""Take the pictures for packages/console/docs/console.md, while acting out its story.

    python -m tools.console_pictures [--seconds 90]

First runs nodes, a worker, a load and a console for some seconds, so that the charts have data.
Needs Debian's chromium with its driver, and pngquant to compress the files.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from packages.console.tests.support.browser import Browser, browser
from packages.console.tests.support.console_story import PAGE, Story
from tests.support import ROOT

PICTURES = PAGE.parent / "pictures"
WIDTHS = {"queue": 390, "edit": 1100, "job": 1100, "dead": 1100}
HEIGHTS = {
    "overview": 690,
    "queue": 844,
    "running": 520,
    "letters": 520,
    "workers": 560,
    "attention": 560,
}
DARK = {"queues", "letters"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=90, help="seconds of load first (%(default)g)"
    )
    seconds = parser.parse_args().seconds
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser(Path(place)) as chrome:
        story = Story(Path(place) / "disque", chrome, lambda name: _take(chrome, name), {})
        with story.told():
            story.begin()
            time.sleep(seconds)
            story.look_around()
            story.fix_the_letter()
            story.take_a_node_out()
            story.end()
    return 0


def _take(chrome: Browser, name: str) -> None:
    path = PICTURES / f"{name}.png"
    width, scheme = WIDTHS.get(name, 1280), "dark" if name in DARK else "light"
    chrome.look(width, scheme)
    chrome.run("window.scrollTo(0, 0)")
    chrome.picture(path, width, scheme, HEIGHTS.get(name))
    chrome.look()
    if quantize := shutil.which("pngquant"):
        subprocess.run([quantize, "--force", "--ext", ".png", "--strip", path], check=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    raise SystemExit(main())
