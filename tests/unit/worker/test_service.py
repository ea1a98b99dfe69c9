"""The systemd unit matches the program."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from disque_trio.process.fleet import MARGIN
from disque_trio.worker.options import parse
from tests.support import ROOT

TEXT = (ROOT / "config" / "disque-worker.service").read_text()


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", TEXT, re.MULTILINE)
    return str(value)


def test_systemd_waits_longer_than_the_worker_does() -> None:
    options = parse(["shop:app"])
    assert int(setting("TimeoutStopSec")) > options.grace + 2 * MARGIN
    assert int(setting("TimeoutStartSec")) > options.wait
    assert setting("KillMode") == "mixed"


def test_the_suggested_arguments_can_be_parsed() -> None:
    arguments = re.findall(r"DISQUE_WORKER=(.*)", TEXT)[0]
    assert parse(arguments.split()).processes == 4


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (package systemd)")
    copy = tmp_path / "disque-worker.service"
    copy.write_text(TEXT.replace("/opt/disque/bin/disque-worker", sys.executable))
    result = subprocess.run(
        [program, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "disque-worker" not in result.stderr


def test_the_unit_is_as_closed_as_the_others() -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (package systemd)")
    command = [program, "security", "--offline=true", "--threshold=20"]
    unit = str(ROOT / "config" / "disque-worker.service")
    result = subprocess.run(
        [*command, unit], capture_output=True, text=True, timeout=60, check=False
    )
    if "--offline" in result.stderr:
        pytest.skip("systemd-analyze is older than 250")
    assert result.returncode == 0, result.stdout
