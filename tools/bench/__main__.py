"""The command line of all measurements: ``python -m tools.bench RUN [options]``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from types import ModuleType
from typing import Final

from tools.bench import cli
from tools.bench.callgrind import CountError
from tools.bench.load import LoadError
from tools.bench.servers import GENERATOR_CPUS, ServerError

RUNS: Final = {
    "throughput": "cost of a command, compared with redis-server",
    "latency": "latency of a job's life at a given load, and pauses of the node",
    "tenants": "waiting time of a quiet tenant's jobs beside a noisy one, with and without groups",
    "queues": "cost of taking a job from several kinds of queue, short and long",
    "memory": "memory per job, and how long a node stops to free it",
    "push": "cost of a pushed job, compared with a requested one",
    "frameworks": "cost of a Dramatiq message, compared with its Redis broker",
    "client": "cost of the Python client on Trio, on asyncio and in threads",
    "tls": "cost of TLS per command, compared with redis-server's TLS",
    "scrapes": "cost of a scrape with many queues, and how long clients wait for it",
    "turns": "longest turn of commands about many jobs or queues",
    "trailers": "memory of jobs with features that C Disque lacks",
    "cores": "gain from two nodes on one machine",
    "cluster": "cost of a replicated job for the whole cluster",
    "bus": "cost of a secret or TLS on the cluster bus",
    "beside-c": "comparison with C Disque",
    "compare": "comparison with Redis, beanstalkd, RabbitMQ and NATS",
    "persistence": "memory and latency during a rewrite of the AOF, and loading speed",
    "eventlog": "cost of the event log",
    "bananaq": "cost of an event in bananaq, compared with Redis Streams",
    "celery": "cost of a Celery task, compared with its Redis transport",
    "pressure": "cost of a pressure queue, compared with a list in the same Redis",
    "spark": "speed of Spark reading and writing jobs",
    "audit": "speed of auditing an event log",
    "audit-increments": "cost of auditing an hour of events, the first and the hundredth",
    "console": "response time of the console with a million jobs in 10,000 queues",
    "guard": "fails if a hot path takes 10% more instructions",
    "profile": "where the time of a loaded node goes",
    "steps": "cost of each step of a command, in this process",
}


def module_of(name: str) -> ModuleType:
    """The module of a run."""
    return import_module(f"tools.bench.{name.replace('-', '_')}")


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark named by the first argument. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=__doc__,
        epilog="runs:\n" + "\n".join(f"  {name:12} {what}" for name, what in RUNS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", choices=RUNS, help="one of the runs below")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see RUN --help")
    name = parser.parse_args(arguments[:1]).run
    module = module_of(name)
    plan, options = cli.parse(name, module, arguments[1:])
    write_docs = getattr(options, "write_docs", False)
    if write_docs:
        cli.check_place(module, plan)
    if getattr(module, "PINNED", True):
        os.sched_setaffinity(0, GENERATOR_CPUS)
    found = module.run(plan)
    if isinstance(found, int):
        return found
    facts = {**cli.machine(), **found.facts}
    head = cli.heading(arguments, facts)
    print(f"{head}\n\n{found.text}")
    for picture in found.pictures:
        directory = cli.DOCS if write_docs else cli.ROOT / "build"
        directory.mkdir(exist_ok=True)
        (directory / picture.name).write_text(picture.svg)
        cli.say(f"written: {(directory / picture.name).relative_to(cli.ROOT)}")
    if write_docs:
        cli.write_docs(module, plan, head, found)
    if getattr(options, "json", None) is not None:
        samples = [asdict(sample) for sample in found.samples]
        whole = {"arguments": list(arguments), "machine": facts, "results": samples}
        options.json.write_text(json.dumps(whole, indent=1, default=str) + "\n")
    return 0


def _terminated(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)  # so that servers are stopped
    try:
        sys.exit(main(sys.argv[1:]))
    except (ServerError, LoadError, CountError, cli.DocsError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
