"""The command line of measurements: ``python -m PACKAGE RUN [options]``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from types import ModuleType

from tools.bench import cli
from tools.bench.callgrind import CountError
from tools.bench.load import LoadError
from tools.bench.servers import GENERATOR_CPUS, ServerError


def module_of(package: str, name: str) -> ModuleType:
    """The module of a run."""
    return import_module(f"{package}.{name.replace('-', '_')}")


def main(package: str, runs: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Runs the benchmark named by the first argument. Returns the exit status.

    Args:
        package: has a module for each of ``runs``, which say what they measure.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=import_module(package).__doc__,
        epilog="runs:\n" + "\n".join(f"  {name:16} {what}" for name, what in runs.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", choices=runs, help="one of the runs below")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see RUN --help")
    name = parser.parse_args(arguments[:1]).run
    module = module_of(package, name)
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
    head = cli.heading(package, arguments, facts)
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


def start(package: str, runs: Mapping[str, str]) -> None:
    """Runs the benchmark that the command line names, and exits."""
    signal.signal(signal.SIGTERM, _terminated)  # so that servers are stopped
    try:
        sys.exit(main(package, runs, sys.argv[1:]))
    except (ServerError, LoadError, CountError, cli.DocsError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
