"""The program that ``frameworks`` measures: sends or runs messages, and prints the seconds and CPU
seconds that it took."""

import json
import sys
import threading
import time

import dramatiq
from dramatiq import Broker, Worker
from dramatiq.brokers.redis import RedisBroker

from disque_integrations.dramatiq import DisqueBroker


def main(part: str, url: str, messages: int, threads: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, for ``messages`` messages.

    Args:
        part: ``send`` or ``work``.
        url: of the server.
        threads: of the worker.
    """
    broker: Broker = DisqueBroker(url=url) if url.startswith("disque:") else RedisBroker(url=url)
    done = threading.Semaphore(0)

    @dramatiq.actor(broker=broker)
    def idle() -> None:
        done.release()

    worker = Worker(broker, worker_threads=threads) if part == "work" else None
    start, cpu = time.perf_counter(), time.process_time()
    if worker is None:
        for _ in range(messages):
            idle.send()
    else:
        worker.start()
        for _ in range(messages):
            done.acquire()
    taken = time.perf_counter() - start, time.process_time() - cpu
    if worker is not None:
        worker.stop()
    broker.close()
    return taken


if __name__ == "__main__":
    part, url, messages, threads = sys.argv[1:]
    print(json.dumps(main(part, url, int(messages), int(threads))))
