"""A Dramatiq program that tests run as a process: ``python dramatiq_app.py``."""

import os
import signal
import threading
import time

import dramatiq
from dramatiq import Worker

from disque_integrations.dramatiq import DisqueBroker
from packages.integrations.tests.support.task_story import RETRY, record

broker = DisqueBroker(url=os.environ["DISQUE_URL"], retry=RETRY)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def work(task: str) -> None:
    """Run for a moment, and record it."""
    record(os.environ["RUNS"], "begin", task)
    time.sleep(float(os.environ.get("SECONDS", "0.01")))
    record(os.environ["RUNS"], "end", task)


def main() -> None:
    """Work until SIGTERM."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    worker = Worker(broker, worker_threads=4, worker_timeout=200)
    worker.start()
    stopped.wait()
    worker.stop()
    broker.close()


if __name__ == "__main__":
    main()
