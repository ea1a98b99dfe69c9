"""Actors for ``python -m dramatiq packages.integrations.tests.support.poison_actors``, one of which
kills the process that runs it."""

import os
import signal
import time

import dramatiq

from disque_integrations.dramatiq import DisqueBroker
from packages.integrations.tests.support.task_story import RETRY, record

broker = DisqueBroker(url=os.environ["DISQUE_URL"], retry=RETRY)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def innocent(name: str) -> None:
    """Run for a moment, and record it."""
    record(os.environ["RUNS"], "begin", name)
    time.sleep(float(os.environ.get("SECONDS", "1")))
    record(os.environ["RUNS"], "end", name)


@dramatiq.actor(max_retries=0)
def poison() -> None:
    """Kill the process once others have begun."""
    record(os.environ["RUNS"], "begin", "poison")
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
