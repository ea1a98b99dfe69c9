"""The tutorial at the end of docs/console.md: its commands as typed, its clicks in a real browser.

Ports, directories and, in tests, times are replaced. It can also take the pictures.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from selenium.common.exceptions import StaleElementReferenceException

from packages.console.tests.support.browser import Browser
from tests.support import PYTHONPATH, ROOT, shims
from tests.support.harness import HANG_SECONDS, free_port, wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "console.md"
TITLE = "## Step by step: a dead letter, and a node taken out\n"
PORTS = ("7711", "7712", "7713", "8711")
ENDLESS = re.compile(r"disque-worker|shop\.py|disque-console")

Take = Callable[[str], None]


def story() -> str:
    """The text below the title."""
    return PAGE.read_text(encoding="utf-8").partition(TITLE)[2]


def pictures() -> list[str]:
    """The names of all pictures on the page."""
    return re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+)\.png\)", PAGE.read_text(encoding="utf-8"))


class Story:
    """Follows the tutorial step by step.

    Args:
        directory: replaces ``/tmp/disque``.
        take: takes a picture of the browser, with a name.
        others: further replacements.
    """

    def __init__(
        self, directory: Path, chrome: Browser, take: Take, others: dict[str, str]
    ) -> None:
        self._directory = directory
        self._chrome = chrome
        self._take = take
        self._others = {port: str(free_port()) for port in PORTS}
        self._others |= {
            "/tmp/disque": str(directory),
            ".venv/bin": str(shims.programs()),
            "disque-console": f"disque-console --listen 127.0.0.1:{self._others['8711']}",
            **others,
        }
        self._running = ExitStack()
        text = story()
        self._commands = iter(
            re.findall(r"^ {4,8}(\.venv/.*|mkdir .*|grep .*)$", text, re.MULTILINE)
        )
        [self._program] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Ends everything that it started when the block ends."""
        try:
            with self._running:
                yield
        finally:
            for pid in self._directory.glob("*/pid"):
                try:
                    os.kill(int(pid.read_text()), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def node(self, port: str) -> str:
        """The address of a node, by its documented port."""
        return f"127.0.0.1:{self._others[port]}"

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        self._chrome.open(f"http://127.0.0.1:{self._others['8711']}{path}")

    def begin(self) -> None:
        """Start three nodes, a worker, a shop, and a console that knows them all."""
        (self._directory).mkdir(exist_ok=True)
        self._type(until="QSET")
        (self._directory / "shop.py").write_text(self._here(self._program))
        for _ in range(3):
            self._type()
        self._wait_for_page("/", lambda text: all(self.node(port) in text for port in PORTS[:3]))
        self._wait_for_page("/dead", lambda text: "mail.dead" in text)
        self._chrome.complaints()  # from before the console was up

    def look_around(self) -> None:
        """Visit the overview, the queues, the jobs and the workers."""
        self.open("/")
        self._take("overview")
        self._follow("Queues")
        self._take("queues")
        self._click("main a", "mail")
        wait_until(lambda: "On the nodes" in self._chrome.text())
        self._take("queue")
        self.open("/jobs?state=running")
        self._wait_for_page("/jobs?state=running", lambda text: "cut" in text)
        self._take("running")
        self._wait_for_page("/jobs?state=dead", lambda text: "send_mail" in text)
        self._take("letters")
        self._wait_for_page("/workers", lambda text: " of " in text and "films" in text)
        self._take("workers")

    def fix_the_letter(self) -> None:
        """Find the dead letter, edit it and send it again."""
        self._follow("Dead letters")
        self._click("main a", "mail.dead")
        wait_until(lambda: "not an address: ann(at)example.org" in self._chrome.text())
        self._take("dead")
        self._chrome.press("ul.ids a")
        wait_until(lambda: "Dead letter" in self._chrome.text())
        self._take("job")
        self._click("summary", "Edit, then redrive")
        body = self._chrome.find("textarea[name=body]")
        text = str(body.get_property("value")).strip()
        self._chrome.type("textarea[name=body]", text.replace("(at)", "@"))
        self._take("edit")
        self._click("button", "Save and redrive")
        sent = self._directory / "sent"
        wait_until(lambda: sent.exists() and "ann@example.org" in sent.read_text())
        self._type()

    def take_a_node_out(self) -> None:
        """Make the third node leave, stop it, and forget it."""
        self._follow("Cluster")
        self._confirm("Take out")
        wait_until(lambda: "leaving" in self._row())
        self._take("leaving")
        wait_until(lambda: re.search(r"\b0\b", self._cell("Jobs")))
        self._type()
        wait_until(lambda: "unreachable" in self._row())
        self._take("away")
        self._wait_for_page("/", lambda text: "Attention" in text)
        self._take("attention")
        self._follow("Cluster")
        self._confirm("Forget")
        wait_until(lambda: not self._row())
        self._wait_for_page("/cluster", lambda text: self.node("7713") not in text)

    def end(self) -> None:
        """End the shop, the worker and the console with Ctrl-C, and the nodes with the last
        commands."""
        self._running.close()
        self._type(until="7712")
        assert next(self._commands, None) is None, "a command of the page was not typed"

    # ---- helpers -----------------------------------------------------------------------------

    def _here(self, text: str) -> str:
        for word, other in self._others.items():
            text = text.replace(word, other)
        return text

    def _type(self, until: str = "") -> None:
        """Type the next command, or all up to one that contains a word. Servers run in the
        background."""
        for command in self._commands:
            typed = self._here(command)
            if ENDLESS.search(command):
                log = self._running.enter_context((self._directory / "log").open("ab"))
                process = subprocess.Popen(
                    ["bash", "-c", f"exec {typed}"],
                    cwd=ROOT, env=self._environment, stdout=log, stderr=log,
                )  # fmt: skip
                self._running.callback(_interrupt, process)
            else:
                subprocess.run(
                    typed, shell=True, cwd=ROOT, env=self._environment, check=True,
                    capture_output=True, timeout=HANG_SECONDS,
                )  # fmt: skip
            if until in command:
                return

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1"}

    def _wait_for_page(self, path: str, says: Callable[[str], bool]) -> None:
        def there() -> bool:
            try:
                self.open(path)
            except Exception:  # not listening yet
                return False
            return says(self._chrome.text("body"))

        wait_until(there)

    def _follow(self, title: str) -> None:
        self._click("nav a", title)
        wait_until(lambda: self._chrome.text("h1") == title)

    def _click(self, selector: str, text: str) -> None:
        def found() -> bool:
            with suppress(StaleElementReferenceException):  # the page is replacing it
                for element in self._chrome.all(selector):
                    if element.text == text:
                        self._chrome.run("arguments[0].scrollIntoView({block: 'center'})", element)
                        element.click()
                        return True
            return False

        wait_until(found)

    def _of_row(self, what: str, *arguments: str) -> object:
        """A value from the third node's ``row``, or null if the page has no such row."""
        script = (
            "const row = [...document.querySelectorAll('tr')].find(row =>"
            f" row.innerText.startsWith(arguments[0])); return row ? {what} : null"
        )
        return self._chrome.run(script, self.node("7713"), *arguments)

    def _row(self) -> str:
        """The text of the third node's row."""
        return str(self._of_row("row.innerText") or "")

    def _cell(self, label: str) -> str:
        return str(
            self._of_row("row.querySelector(`[data-label=${arguments[1]}]`).innerText", label)
        )

    def _confirm(self, button: str) -> None:
        """Press a button of the third node, and confirm."""
        found = (
            "[...row.querySelectorAll('button')].find(b => b.innerText.startsWith(arguments[1]))"
        )
        self._of_row(f"{found}.click()", button)
        self._chrome.press(".confirm button")
        wait_until(lambda: self._chrome.text("h1") == "Cluster")


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
