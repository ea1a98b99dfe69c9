"""Who tells of an incident: all places where people and programs look, and since when each says
what."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from disque_trio.health.lines import lines_in
from tests.support.commands import run_command
from tests.support.drill.stage import COUNT, Prober, Stage

LOG: Final = "log"
INFO: Final = "INFO alarms"
METRICS: Final = "metrics"
CHECK: Final = "disque check"
CONSOLE: Final = "console"
ALERT: Final = "alert"
CLIENT: Final = "client"
WORKER: Final = "worker's log"
QUEUES: Final = "disque queues"
LOOK: Final = "the page's first command"  # not before somebody asks
CHANNELS: Final = (LOG, INFO, METRICS, CHECK, CONSOLE, ALERT, CLIENT, WORKER, QUEUES, LOOK)
_ALARM: Final = re.compile(r'^disque_alarm\{kind="([\w-]+)".*\} [1-9]', re.MULTILINE)
_OK: Final = re.compile(r"DISQUE OK\b")


class Sight(NamedTuple):
    """Something that was said. text: shortened. after: s since the incident began."""

    channel: str
    text: str
    after: float


class Watch:
    """Looks at all places of a stage, since its creation. ``look``: what people type to find the
    cause; empty: nothing.

    Attributes:
        sights: what was said for the first time, in this order.
    """

    def __init__(self, stage: Stage, prober: Prober | None, look: str) -> None:
        self._stage = stage
        self._look = look
        self._prober = prober
        self._began = time.monotonic()
        self._known: set[tuple[str, str]] = set()
        self._read = {path: path.stat().st_size for path in self._logs()}
        self._errors = len(stage.load.errors)
        self.sights: list[Sight] = []
        self._now: dict[str, list[str]] = {}

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def look(self) -> None:
        """Look everywhere once."""
        stage = self._stage
        self._take(LOG, list(self._log_lines()))
        self._take(WORKER, list(self._worker_lines()))
        self._take(INFO, list(self._alarms()))
        self._take(METRICS, list(self._metrics()))
        self._take(CONSOLE, self._console())
        if stage.prometheus is not None:
            self._take(ALERT, stage.prometheus.pending())
        errors = stage.load.errors[self._errors :]
        self._errors += len(errors)
        self._take(CLIENT, errors + (self._prober.errors if self._prober else []))
        done = run_command("disque", "-p", str(self._asked().port), "check", text=True)
        self._take(CHECK, [done.stdout.partition("|")[0].strip()])
        done = run_command("disque", "-p", str(self._asked().port), "queues", "--json", text=True)
        self._take(QUEUES, list(_unserved(done.stdout)))

        if self._look:
            self._take(LOOK, self._stage.type(self._look).splitlines())

    def found(self, channel: str, sign: str) -> Sight | None:
        """The first thing said in a channel that contains the pattern ``sign``."""
        for sight in self.sights:
            if sight.channel == channel and re.search(sign, sight.text):
                return sight
        return None

    def is_well(self, lingers: str) -> bool:
        """Whether, when it looked last, all was well, but for what ``lingers`` is in."""
        wrong = [*self._now[INFO], *self._now[METRICS], *self._now.get(ALERT, [])]
        wrong += [line for line in self._now[CONSOLE] if line not in ("ok", "warning", "critical")]
        wrong += [line for line in self._now[CHECK] if not _OK.match(line)]
        return not [line for line in wrong if not (lingers and re.search(lingers, line))]

    def wrong(self) -> str:
        """What is not well."""
        return str({name: self._now.get(name) for name in (INFO, METRICS, ALERT, CONSOLE, CHECK)})

    def _take(self, channel: str, texts: list[str]) -> None:
        self._now[channel] = texts
        for text in texts:
            if (channel, text) not in self._known:
                self._known.add((channel, text))
                self.sights.append(Sight(channel, text, self.seconds()))

    def _asked(self) -> Any:
        """The first node that runs."""
        return self._stage.cluster.running()[0]

    def _logs(self) -> list[Path]:
        return [node.log for node in self._stage.cluster if node.log.exists()]

    def _log_lines(self) -> Iterator[str]:
        for path in self._logs():
            yield from _events(path, self._read)

    def _worker_lines(self) -> Iterator[str]:
        path = self._stage.worker.output
        if path not in self._read:
            self._read[path] = path.stat().st_size
        yield from _events(path, self._read)

    def _alarms(self) -> Iterator[str]:
        for node in self._stage.cluster.running():
            with suppress(OSError, EOFError, AssertionError):
                yield from (line.kind for line in lines_in(node.info("alarms")))

    def _metrics(self) -> Iterator[str]:
        for port in self._stage.metrics[:COUNT]:
            with suppress(OSError, URLError), urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                yield from _ALARM.findall(page.read().decode())

    def _console(self) -> list[str]:
        visitor = self._stage.console.visitor()
        visitor.get("/queues")  # as somebody does who looks
        return visitor.get("/health/cluster").text.splitlines()


def _events(path: Path, read: dict[Path, int]) -> Iterator[str]:
    """The new lines of a log of the level ``notice`` and above, each as one text."""
    with path.open("rb") as file:
        file.seek(read.get(path, 0))
        data = file.read()
    whole = data.rpartition(b"\n")[0] + b"\n" if b"\n" in data else b""
    read[path] = read.get(path, 0) + len(whole)
    for line in whole.splitlines():
        with suppress(ValueError):
            fields: Mapping[str, Any] = json.loads(line)
            if fields.get("level") in ("notice", "warning"):
                words = [fields.get("condition", ""), str(fields.get("event", ""))]
                others = [f"{k}={v}" for k, v in fields.items() if k in ("user", "about", "jobs")]
                yield " ".join(filter(None, [*words, *others]))


def _unserved(printed: str) -> Iterator[str]:
    """The queues with jobs for which nobody has ever asked, in what ``disque queues`` prints."""
    for line in printed.splitlines():
        with suppress(ValueError):
            queue = json.loads(line)
            if queue.get("never_asked_for"):
                yield f"{queue['queue']}: never asked for"
