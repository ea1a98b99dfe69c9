"""Who is told what a watch has found: a webhook, a queue, whoever reads the output."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, Protocol

from disque_trio.respclient.login import Login
from disque_trio.spark.client import WireError
from disque_trio.spark.sink.adder import Adder
from disque_trio.spark.watch.notices import Notice, Row

WEBHOOK_SECONDS = 10.0
_NEEDED = 5000  # ms an ADDJOB waits for its copies


class ReceiverError(Exception):
    """A notice could not be delivered; the text says to whom and why."""


class Receiver(Protocol):
    """Who is told.

    Attributes:
        name: by which it is known in the next run what it was told.
    """

    name: str

    def tell(self, notice: Notice) -> None:
        """Raises ReceiverError: it has not got it, or it is not known whether it has."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, without the notice."""

    def redirect_request(self, *_: object) -> None:
        return None


class Webhook:
    """An address of the web that gets each notice as a POST with JSON.

    Args:
        url: http or https.
        headers: beside the type of the contents, as ``Authorization``.

    Raises:
        ValueError: it is no such address.
    """

    name = "webhook"

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"webhook: {url!r} is no http or https address")
        self._url = url
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._opener = urllib.request.build_opener(_NoRedirects)

    def tell(self, notice: Notice) -> None:
        """See ``Receiver``."""
        data = json.dumps(notice.document()).encode()
        request = urllib.request.Request(self._url, data, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=WEBHOOK_SECONDS) as answer:
                answer.read(1)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise ReceiverError(f"webhook: {refusal.code} {refusal.reason}") from None
        except OSError as problem:
            reason = getattr(problem, "reason", problem)
            raise ReceiverError(f"webhook: {reason}") from None


class QueueOfNotices:
    """A queue of Disque that gets each notice as a job.

    Args:
        nodes: ``host:port`` each.
    """

    name = "queue"

    def __init__(self, queue: str, nodes: Sequence[str], login: Login | None = None) -> None:
        self._queue = queue
        self._nodes = list(nodes)
        self._login = login

    def tell(self, notice: Notice) -> None:
        """See ``Receiver``."""
        body = json.dumps(notice.document())
        adder = Adder(self._nodes, self._login, failover=0)
        try:
            refused = adder.add([["ADDJOB", self._queue, body, _NEEDED]])
        except WireError as problem:
            raise ReceiverError(f"queue {self._queue}: {problem}") from None
        finally:
            adder.close()
        if refused:
            raise ReceiverError(f"queue {self._queue}: {refused[0].error}")


class Lines:
    """A file that gets a line for each finding that is new or gone.

    Args:
        before: is called before lines are written, to clear what else is shown there.
    """

    name = "lines"

    def __init__(self, file: IO[str], before: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._before = before

    def tell(self, notice: Notice) -> None:
        """See ``Receiver``."""
        self._before()
        for word, rows in (("found", notice.found), ("gone", notice.gone)):
            for row in rows:
                print(_line(word, row), file=self._file)
            if notice.more[word]:
                print(f"{word} {notice.more[word]} more", file=self._file)
        self._file.flush()


def _line(word: str, row: Row) -> str:
    time = row.get("time")
    when = "" if time is None else f"{datetime.fromtimestamp(time / 1000, UTC):%Y-%m-%d %H:%M:%S} "
    kind = row["kind"] + (f" ({row['reason']})" if row["reason"] else "")
    of = f" {row['job']} of {row['queue']}" if row["job"] is not None else ""
    detail = f": {row['detail']}" if row.get("detail") else ""
    line = f"{when}{word} {kind}{of}{detail}"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
