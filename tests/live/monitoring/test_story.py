"""The story in docs/certificates.md, as typed: certificates, users, a node, a worker, an alert.

Directories and ports differ, systemd is replaced by a stand-in, and minutes are seconds.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.harness import free_port
from tests.support.prometheus import in_seconds
from tests.support.systemctl import INSTALL, stop

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "certificates.md"
TITLE = "From certificates to an alert"
PROGRAMS = ("openssl", "redis-cli", "prometheus", "promtool", "curl")
# Commands that only root may run, on a machine of one's own.
PRELUDE = """\
set -eu
apt-get() { :; }
useradd() { :; }
systemctl() { "$PYTHON" "$SYSTEMCTL" "$UNITS" "$@"; }
"""


def commands() -> str:
    """Return everything that is indented below the title."""
    part = PAGE.read_text(encoding="utf-8").partition(f"\n## {TITLE}\n")[2]
    lines = part.partition("\n## ")[0].splitlines(True)
    return "".join(line[4:] if line.strip() else "\n" for line in lines if line[:4].strip() == "")


class Machine:
    """A directory that stands for a machine.

    Attributes:
        units: where the units of systemd are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {number: str(free_port()) for number in ("7711", "9711", "9100", "9090")}
        self.units = directory / "etc/systemd/system"
        for place in ("etc/systemd/system", "etc/ssl", "etc/prometheus", "srv", "var/lib"):
            (directory / place).mkdir(parents=True)
        share = directory / "share"
        share.mkdir()
        for file in filter(Path.is_file, (ROOT / "config").iterdir()):
            (share / file.name).write_text(self.here(file.read_text()))
        rules = share / "prometheus-alerts.yml"
        rules.write_text(in_seconds(rules.read_text()))
        words = (
            shutil.which("prometheus"),
            f"--config.file={directory}/etc/prometheus/prometheus.yml",
            f"--storage.tsdb.path={directory}/var/lib/prometheus",
            f"--web.listen-address=127.0.0.1:{self._ports['9090']}",
        )
        (self.units / "prometheus.service").write_text(f"ExecStart={' '.join(map(str, words))}\n")

    def here(self, text: str) -> str:
        """Translate words of the document, or of a unit, for this machine."""
        text = text.replace("/opt/disque/share/disque", f"{self._directory}/share")
        text = text.replace("/opt/disque/bin", str(Path(sys.executable).parent))
        text = re.sub(r"(?<![\w./])/(etc|srv|var/lib)/", rf"{self._directory}/\1/", text)
        return re.sub("|".join(self._ports), lambda port: self._ports[port[0]], text)

    def type(self, script: str) -> str:
        """Run it in a shell; return what it prints."""
        script = re.sub(r"_interval: \d+s", "_interval: 1s", self.here(script))
        script = script.replace("sleep 5", "sleep 0.2")
        environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith("DISQUE")},
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SYSTEMCTL": str(ROOT / "tests/support/systemctl.py"),
            "UNITS": str(self.units),
        }
        done = subprocess.run(
            ["bash"],
            input=PRELUDE + INSTALL + script,
            env=environ,
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def end(self) -> None:
        """Leave nothing behind."""
        for name in ("prometheus", "disque-worker", "disque"):
            stop(self.units.parent / "run" / f"{name}.pid")


def test_an_alert_fires_without_a_worker_and_clears_with_one_as_documented(tmp_path: Path) -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed")
    machine = Machine(tmp_path)
    try:
        printed = machine.type(commands())
    finally:
        machine.end()
    log = (tmp_path / "etc/systemd/run/disque-worker.log").read_text()
    assert log.count("to ann@example.org") == 2
    assert "ok: 1 of 1 processes serve" in printed
    assert printed.count("NOPERM") == 2
    assert printed.rstrip().endswith("\n0")
    fired = re.findall(r'alertname="(\w+)"', printed)
    assert "DisqueNoWorker" in fired
