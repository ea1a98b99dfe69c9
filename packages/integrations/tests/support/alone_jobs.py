"""What jobs in processes of their own do in tests: ``python -m ... LINK``."""

import os
import signal
import sys
from typing import Any

from disque_integrations.alone import NotAloneError, serve


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Do what the order says."""
    started = os.getpid()
    if order["what"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order["what"] == "exit":
        os._exit(3)
    if order["what"] == "cannot":
        raise NotAloneError("it is not there")
    if order["what"] == "wait":
        signal.pause()
    if order["what"] == "long":
        return {"text": "a" * 10_000_000}
    if order["what"] == "close":
        os.closerange(3, 1024)
    if order["what"] == "fork" and (child := os.fork()):
        os.waitpid(child, 0)
    return {"pid": os.getpid(), "started": started, "argv": sys.argv}


if __name__ == "__main__":
    sys.exit(serve(run))
