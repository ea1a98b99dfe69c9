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
    "throughput": "what a command costs a node, beside redis-server",
    "latency": "how long a job's life takes at a given load, and how long a node pauses",
    "tenants": "how long a quiet tenant's jobs wait beside a noisy one, with and without groups",
    "queues": "what taking a job costs in queues of several kinds, with few jobs and with many",
    "memory": "what jobs take of a node's memory, and how long it stops to free them",
    "push": "what a job costs that is pushed, beside one that is asked for",
    "frameworks": "what a message of Dramatiq costs, beside its Redis broker",
    "client": "what the Python client costs a program on Trio, on asyncio and in threads",
    "tls": "what TLS costs a command, beside the TLS of redis-server",
    "scrapes": "how long a scrape keeps clients waiting with many queues, and what it costs",
    "turns": "how long the longest turns are of commands about many jobs or queues",
    "trailers": "what jobs take of memory that have more than C Disque has fields for",
    "cores": "what two nodes gain on the cores of one machine",
    "cluster": "what a job with copies costs a whole cluster",
    "bus": "what a cluster costs whose bus has a secret, or TLS",
    "beside-c": "what the same work costs C Disque",
    "compare": "a job's life beside Redis, beanstalkd, RabbitMQ and NATS",
    "persistence": "memory and latencies during a rewrite of the AOF, the rate of loading",
    "eventlog": "what the event log costs a node",
    "bananaq": "what an event costs bananaq, beside Redis Streams",
    "celery": "what a task of Celery costs, beside its Redis transport",
    "pressure": "what a queue of pressure costs beside a list of the same Redis",
    "spark": "how fast Spark reads and writes jobs",
    "audit": "how fast the audit of an event log is",
    "audit-increments": "what an hour of events costs the audit, the first and the hundredth",
    "guard": "fails when a hot path takes a tenth more instructions",
    "profile": "where the time of a loaded node goes",
    "steps": "what each step of a command costs, in this process",
}


def module_of(name: str) -> ModuleType:
    """The module of a run."""
    return import_module(f"tools.bench.{name.replace('-', '_')}")


def main(arguments: Sequence[str]) -> int:
    """Runs what the first argument names. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=__doc__,
        epilog="runs:\n" + "\n".join(f"  {name:12} {what}" for name, what in RUNS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", choices=RUNS, help="one of those below")
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
    signal.signal(signal.SIGTERM, _terminated)  # servers end on the way out
    try:
        sys.exit(main(sys.argv[1:]))
    except (ServerError, LoadError, CountError, cli.DocsError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
