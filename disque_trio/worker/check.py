"""``disque-worker --check``: reports whether all is well, for the probes of a deployment.

A separate process imports the app and asks its node. It is killed when the time is over, since code
of the app may hang.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from disque_trio.notation.addresses import format_address
from disque_trio.process import health
from disque_trio.process.health import HealthError
from disque_trio.worker.options import Options

FRESH = 10.0  # s for which a status file is valid


def check(options: Options) -> tuple[bool, str]:
    """Check that the app imports, and that its node answers and accepts the password. With
    ``metrics`` or ``status_file``, also check that the worker with these options is alive and not
    stuck. Returns whether all is well, and a line that describes the result."""
    deadline = time.monotonic() + options.check_timeout
    said: list[str] = []
    well, text = _probe(options, deadline)
    said.append(text)
    if well and options.metrics is not None:
        well, text = _ask(*options.metrics, max(deadline - time.monotonic(), 0.1))
        said.append(text)
    if well and options.status_file:
        well, text = read_status(Path(options.status_file))
        said.append(text)
    return well, "; ".join(said) if well else text


def _probe(options: Options, deadline: float) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "disque_trio.worker.probe"],
            input=json.dumps(options.to_json()),
            stdout=subprocess.PIPE,
            text=True,
            timeout=max(deadline - time.monotonic(), 0),
            check=False,
        )
    except subprocess.TimeoutExpired:
        limit = f"{options.check_timeout:g} s"
        return False, f"the app could not be imported, or its node did not answer, within {limit}"
    lines = done.stdout.splitlines()
    return done.returncode == 0, lines[-1] if lines else f"exit status {done.returncode}"


def _ask(host: str, port: int, limit: float) -> tuple[bool, str]:
    place = format_address(host, port)
    # Do not use any proxy for this.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{place}/healthz", timeout=limit) as answer:
            return True, f"worker {answer.read().decode().strip()}"
    except urllib.error.HTTPError as error:
        with error:
            return False, f"the worker at {place} is not well: {error.read().decode().strip()}"
    except OSError as error:
        reason = getattr(error, "reason", error)
        return False, f"no worker answers at {place}: {reason}"


def read_status(path: Path) -> tuple[bool, str]:
    """Return whether the worker that writes its state to ``path`` is well, and a description."""
    try:
        status = health.read(path)
        if not health.lives(status["pid"]):
            return False, f"{path}: the worker {status['pid']} is gone, but has left its file"
        health.age(status["time"], time.time(), FRESH)
    except HealthError as problem:
        return False, f"the worker is not well: {problem}"
    if status.get("well"):
        return True, f"worker {status.get('text')}"
    return False, f"the worker {status['pid']} is not well: {status.get('text')}"
