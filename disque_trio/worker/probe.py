"""Imports an app and asks its node, for ``check``: ``python -m disque_trio.worker.probe`` with the
options on standard input. The last line of standard output describes the result."""

import json
import sys

import trio

from disque_trio.client import DisqueError
from disque_trio.client.connecting import connect_to
from disque_trio.tasks import Disque
from disque_trio.worker.child import find_app, no_node
from disque_trio.worker.options import Options
from disque_trio.worker.target import AppError


async def _ask(app: Disque) -> str:
    async with connect_to(app.cluster, 0) as client:
        return f"the app can be imported, and node {client.address} answers"


def main() -> int:
    """Probe, and return the exit status."""
    options = Options.from_json(json.load(sys.stdin))
    try:
        app = find_app(options)
    except AppError as error:
        if options.debug:
            print(error.details, file=sys.stderr, end="")
        print(error.line(debug=options.debug))
        return 1
    try:
        print(trio.run(_ask, app))
    except (DisqueError, ValueError) as error:
        print(no_node(app, error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
