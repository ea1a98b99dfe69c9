"""The status line."""

import io
import sys

import pytest
import structlog

from disque_trio.process.logs import Log
from disque_trio.version import VERSION
from disque_trio.worker.display import Banner, Display
from disque_trio.worker.tally import Tally
from disque_trio.worker.view import View


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log() -> tuple[Log, list[structlog.typing.EventDict]]:
    """A log and its lines."""
    lines: list[structlog.typing.EventDict] = []

    def keep(logger: object, method: str, event: structlog.typing.EventDict) -> str:
        lines.append(event)
        raise structlog.DropEvent

    return Log(None, [keep], {}), lines


def view(count: int) -> View:
    tally = Tally()
    for _ in range(count):
        tally.add("send", "mail", "done", 0.1)
    return View(1, 8, [], tally, {}, {})


def test_on_a_terminal_it_is_rewritten_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    display = Display(log()[0], quiet=False)
    assert display.update(view(0), 100.0)
    assert not display.update(view(5), 100.9)
    assert display.update(view(20), 102.0)
    assert "10/s" in terminal.getvalue()
    assert "20 done" in terminal.getvalue()
    display.end()
    # Nothing of it remains on the terminal afterwards.
    assert terminal.getvalue().endswith("\r\x1b[J")


def test_elsewhere_it_is_a_line_per_minute_without_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    target, lines = log()
    display = Display(target, quiet=False)
    for second in range(130):
        display.update(view(10 * second), 100.0 + second)
    display.end()
    assert stream.getvalue() == ""
    assert len(lines) == 2
    assert all("10/s" in line["line"] for line in lines)


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    target, lines = log()
    display = Display(target, quiet=True)
    for second in range(130):
        display.update(view(second), 100.0 + second)
    assert (terminal.getvalue(), lines) == ("", [])


def banner(*tasks: str) -> Banner:
    return Banner(
        app="shop:app",
        nodes=["10.0.0.1:7711"],
        queues=["mail:1", "sms:5"],
        not_taken=["hooks"],
        tasks=tasks,
        processes="2..8",
        concurrency=8,
    )


def test_a_terminal_gets_a_banner_once(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    display = Display(log()[0], quiet=False)
    for _ in range(2):
        display.start(banner("shop.send"))
    shown = terminal.getvalue()
    assert shown.count("runs shop:app") == 1
    for text in (VERSION, "10.0.0.1:7711", "mail:1, sms:5", "hooks", "shop.send", "2..8, with 8"):
        assert text in shown
    display.start(banner("shop.send", "shop.new"))  # after a reload
    assert terminal.getvalue().count("runs shop:app") == 2
    assert "and 3 more" in "\n".join(banner(*map(str, range(23))).lines())


def test_elsewhere_the_banner_is_a_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    said, lines = log()
    Display(said, quiet=True).start(banner())
    assert lines == []
    Display(said, quiet=False).start(banner("shop.send"))
    assert [(line["app"], line["tasks"], line["version"]) for line in lines] == [
        ("shop:app", ("shop.send",), VERSION)
    ]
