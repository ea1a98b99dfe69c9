"""A real Prometheus that scrapes every second, with faster versions of the rules in ``config/``."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from tests.support.harness import HANG_SECONDS, free_port, wait_until
from tests.support.monitoring import RULES

BURST = 5  # s that replace the minutes of rates
PATIENCE = 2  # s that replace the duration of conditions


def in_seconds(rules: str) -> str:
    """The rules with times short enough for tests."""
    rules = re.sub(r"^( *for:) .*$", rf"\1 {PATIENCE}s", rules, flags=re.MULTILINE)
    return re.sub(r"\[\d+m\]", f"[{BURST}s]", rules)


class Prometheus:
    """A running Prometheus.

    Attributes:
        port: of its API.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str) -> Any:
        """The data in an API response."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=HANG_SECONDS) as reply:
            return json.load(reply)["data"]

    def firing(self, alert: str) -> list[dict[str, str]]:
        """The labels of each firing alert with this name."""
        return [
            found["labels"]
            for found in self.ask("alerts")["alerts"]
            if found["labels"]["alertname"] == alert and found["state"] == "firing"
        ]

    def pending(self) -> list[str]:
        """The names of the alerts whose condition holds, whether it has lasted long enough or
        not."""
        return sorted({found["labels"]["alertname"] for found in self.ask("alerts")["alerts"]})

    def scrapes(self, job: str) -> bool:
        """Whether it has scraped the targets of the job, and all are up."""
        health = [
            target["health"]
            for target in self.ask("targets")["activeTargets"]
            if target["labels"]["job"] == job
        ]
        return bool(health) and set(health) == {"up"}


@contextmanager
def prometheus(directory: Path, config: str, *, hasty: bool = True) -> Iterator[Prometheus]:
    """Run Prometheus with ``config``; ``hasty``: with shortened times. Skips the test if it is not
    installed."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    directory.mkdir()
    rules = directory / "rules.yml"
    rules.write_text(in_seconds(RULES.read_text()) if hasty else RULES.read_text())
    settings = yaml.safe_load(config)
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(rules)]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(settings))
    port = free_port()
    command = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory)
    running = Prometheus(port)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return bool(running.ask("status/buildinfo"))
        except OSError:
            return False

    try:
        wait_until(answers)
        yield running
    finally:
        process.terminate()
        try:
            process.wait(HANG_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def scraping(targets: Mapping[str, Sequence[int]]) -> str:
    """A configuration with these ports, by job."""
    jobs = [
        {
            "job_name": job,
            "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
        }
        for job, ports in targets.items()
    ]
    return yaml.safe_dump({"scrape_configs": jobs})
