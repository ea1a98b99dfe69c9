"""Receivers of a watch's notices: a webhook, a queue, the standard output."""

import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import IO, Protocol
from urllib.parse import urlsplit

from disque_spark.client import WireError
from disque_spark.sink.adder import Adder
from disque_spark.watch.notices import Notice, Row
from disque_trio import humanize
from disque_trio.respclient.login import Login

WEBHOOK_SECONDS = 10.0  # limit for a whole notice
QUEUE_SECONDS = 10.0  # limit for a connection, and for a reply
_NEEDED = 5000  # ms that ADDJOB waits for its copies


class ReceiverError(Exception):
    """A notice could not be delivered; the text says to whom, and why."""


class Receiver(Protocol):
    """A receiver of notices.

    Attributes:
        name: what it is, for people.
        key: identifies it in the next run, to know what it was told.
    """

    name: str
    key: str

    def tell(self, notice: Notice) -> None:
        """Deliver a notice. Raises ReceiverError if it did not arrive, or may not have arrived."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a redirected POST would arrive as a GET, without the notice."""

    def redirect_request(self, *_: object) -> None:
        return None


class Webhook:
    """A URL that gets each notice as a POST with JSON.

    Args:
        url: http or https.
        headers: headers in addition to ``Content-Type``, such as ``Authorization``.
        seconds: time limit for an answer.

    Raises:
        ValueError: it is not such a URL.
    """

    name = "webhook"

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, seconds: float = WEBHOOK_SECONDS
    ) -> None:
        _check(url)
        self.key = f"webhook {hashlib.sha256(url.encode()).hexdigest()[:16]}"  # it may be a secret
        self._url = url
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._seconds = seconds
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._posting: threading.Thread | None = None

    def tell(self, notice: Notice) -> None:
        """See ``Receiver``."""
        if self._posting is not None and self._posting.is_alive():
            raise ReceiverError("webhook: has not answered the last notice yet")
        data = json.dumps(notice.document()).encode()
        outcome: list[str | None] = []
        # In a thread, because the timeout of a connection starts again with each byte received.
        self._posting = threading.Thread(
            target=lambda: outcome.append(self._post(data)), daemon=True
        )
        self._posting.start()
        self._posting.join(self._seconds)
        problem = outcome[0] if outcome else f"no answer within {self._seconds:g} s"
        if problem is not None:
            raise ReceiverError(f"webhook: {problem}")

    def _post(self, data: bytes) -> str | None:
        """Post data. Returns what went wrong, or None."""
        request = urllib.request.Request(self._url, data, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._seconds):
                return None
        except urllib.error.HTTPError as refusal:
            with refusal:
                return f"{refusal.code} {refusal.reason}"
        except (OSError, HTTPException, ValueError) as problem:
            return str(getattr(problem, "reason", problem)) or type(problem).__name__


def _check(url: str) -> None:
    """Raise ValueError if it is not a URL that can be posted to."""
    wrong = f"webhook: {url!r} is not an http or https URL"
    if not url.startswith(("http://", "https://")) or not (url.isascii() and url.isprintable()):
        raise ValueError(wrong)
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0 and " " not in url
    except ValueError as problem:
        raise ValueError(f"{wrong}: {problem}") from None
    if not is_whole:
        raise ValueError(wrong)
    if "@" in parts.netloc:
        raise ValueError("webhook: a password belongs in a header: Authorization: Basic ...")


class QueueOfNotices:
    """A Disque queue that gets each notice as a job.

    Args:
        queue: name of the queue.
        nodes: addresses ``host:port``.
        login: how to log in.
    """

    name = "queue"

    def __init__(self, queue: str, nodes: Sequence[str], login: Login | None = None) -> None:
        self.key = f"queue {queue}"
        self._queue = queue
        self._nodes = list(nodes)
        self._login = login

    def tell(self, notice: Notice) -> None:
        """See ``Receiver``."""
        body = json.dumps(notice.document())
        # No retries here: the next look tries again.
        adder = Adder(self._nodes, self._login, timeout=QUEUE_SECONDS, retries=0, failover=0)
        try:
            refused = adder.add([["ADDJOB", self._queue, body, _NEEDED]])
        except WireError as problem:
            raise ReceiverError(f"queue {self._queue}: {problem}") from None
        finally:
            adder.close()
        if refused:
            raise ReceiverError(f"queue {self._queue}: {refused[0].error}")


class Lines:
    """A text file that gets a line for each finding that is new or gone.

    Args:
        file: the file.
        before: called before lines are written, to clear a progress line.
    """

    name = key = "lines"

    def __init__(self, file: IO[str], before: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._before = before

    def tell(self, notice: Notice) -> None:
        """See ``Receiver``."""
        self._before()
        coding = getattr(self._file, "encoding", None) or "utf-8"
        try:
            for word, rows in (("found", notice.found), ("gone", notice.gone)):
                for row in rows:
                    line = _line(word, row).encode(coding, "backslashreplace").decode(coding)
                    print(line, file=self._file)
            self._file.flush()
        except OSError as problem:
            raise ReceiverError(f"standard output: {problem.strerror or problem}") from None


def _line(word: str, row: Row) -> str:
    time = row.get("time")
    when = "" if time is None else f"{humanize.moment(time / 1000)} "
    kind = row["kind"] + (f" ({row['reason']})" if row["reason"] else "")
    of = f" {row['job']} of {row['queue']}" if row["job"] is not None else ""
    detail = row.get("detail") or ", ".join(row.get("nodes") or ())
    line = f"{when}{word} {kind}{of}{detail and f': {detail}'}"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
