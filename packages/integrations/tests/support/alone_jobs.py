"""What jobs in processes of their own do in tests: ``python -m ... LINK``."""

import os
import signal
import sys
from typing import Any

from disque_integrations.alone import NotAloneError, serve


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Do what the order says."""
    if order["what"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order["what"] == "exit":
        os._exit(3)
    if order["what"] == "cannot":
        raise NotAloneError("it is not there")
    if order["what"] == "wait":
        signal.pause()
    return {"pid": os.getpid(), "argv": sys.argv}


if __name__ == "__main__":
    sys.exit(serve(run))
