"""A process for one task: ``python -m disque_trio.worker.solo LINK``, started by a worker process.

It imports the app, calls the function, says how that ended, and is gone. The worker process settles
the job.
"""

import os
import socket
import sys
import threading
from base64 import b64decode, b64encode
from typing import Any

import trio

from disque_trio.client.jobs import Letter
from disque_trio.process.logs import Logging
from disque_trio.tasks import Disque
from disque_trio.tasks.calling import InLoop, call
from disque_trio.tasks.current import CurrentJob, running
from disque_trio.tasks.ending import Failed
from disque_trio.tasks.hooks import Running, around
from disque_trio.tasks.messages import describe
from disque_trio.tasks.retrying import of_job
from disque_trio.worker.child import CannotStart, find_app, leave, start
from disque_trio.worker.link import inherited, line, read_line
from disque_trio.worker.options import Options
from disque_trio.worker.target import AppError


class _Alone:
    """Stands for the job, which the worker process holds.

    Args:
        letter: see ``HeldJob``.
        link: to the worker process.
    """

    lost = False

    def __init__(self, letter: Letter | None, link: socket.socket) -> None:
        self.letter = letter
        self._link = link

    def progress(self, fraction: float, text: str = "") -> None:
        """Have the worker process say how far the job is."""
        self._link.sendall(line("progress", fraction=fraction, text=text))


async def run(app: Disque, orders: dict[str, Any], link: socket.socket) -> bytes:
    """Call the function; return the message that says how that ended."""
    told, letter = orders["job"], orders["letter"]
    definition = of_job(app.core.tasks[told["task"]], told["headers"])
    args, kwargs = definition.serializer.loads(b64decode(orders["args"]))
    alone = _Alone(None if letter is None else Letter(**letter), link)
    job = CurrentJob(**told, _job=alone, _backoff=definition.backoff)
    caller = InLoop(None, app.core.backend)
    definition = around(app.core.hooks, definition, Running(job, args, kwargs), caller.wait)
    try:
        with running(job):
            value = await call(caller, definition, args, kwargs)
        try:
            data = definition.serializer.dumps(value)
        except Exception as error:
            raise Failed(describe(error), final=True) from None
    except Failed as failed:
        said = {name: vars(failed)[name] for name in ("error", "trace", "delay", "final")}
        return line("raised", failed=said)
    return line("returned", value=b64encode(data).decode())


def main() -> int:
    """Run the process and return its exit status."""
    [ours] = inherited()
    sock = socket.socket(fileno=ours)
    orders = read_line(sock)
    options = Options.from_json(orders["options"])
    Logging(options.log_level, options.log_format)
    try:
        app = find_app(options)
        start(app)
    except (AppError, CannotStart) as failure:
        sock.sendall(line("raised", failed={"error": str(failure)}))
        return 1
    threading.Thread(target=_end_with, args=(sock,), daemon=True).start()
    sock.sendall(line("begun"))
    sock.sendall(trio.run(run, app, orders, sock))
    leave()
    return 0


def _end_with(sock: socket.socket) -> None:
    """End when the worker process does."""
    sock.recv(1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
