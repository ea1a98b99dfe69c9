"""The commands in README.md, as typed, except for ports and directories."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, shims
from tests.support.harness import HANG_SECONDS, LiveNode

pytestmark = pytest.mark.live

ID = re.compile(r"D-[0-9a-f]{8}-[\w/+]{24}-[0-9a-f]{4}")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def environment(shared_node: LiveNode) -> dict[str, str]:
    programs = f"{shims.programs()}:{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "REDISCLI_AUTH": ""}


def test_the_commands_of_redis_cli_print_what_is_shown(
    shared_node: LiveNode, environment: dict[str, str]
) -> None:
    block = re.search(r"(?:    .*\n)*    \$ redis-cli(?:.*\n    )*.*\n", README)
    assert block
    shown = re.findall(r"    \$ (.*)\n((?:    [^$].*\n)*)", block[0])
    assert [command.split()[3] for command, _ in shown] == ["ADDJOB", "GETJOB", "ACKJOB"]
    added = ""
    for command, output in shown:
        typed = ID.sub(added, command).replace("-p 7711", f"-p {shared_node.port}")
        printed = subprocess.run(
            typed, shell=True, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
        ).stdout
        found = ID.search(printed)
        added = found[0] if found else added
        assert ID.sub("ID", printed) == ID.sub("ID", re.sub("(?m)^    ", "", output))


def test_the_task_is_run_by_the_worker(
    shared_node: LiveNode, environment: dict[str, str], tmp_path: Path
) -> None:
    source = re.search(r"Save this as `shop.py`:\n\n```python\n(.*?)```", README, re.DOTALL)
    assert source
    shop = source[1].replace("127.0.0.1:7711", f"127.0.0.1:{shared_node.port}")
    (tmp_path / "shop.py").write_text(shop)
    worker, producer = re.findall(r"`((?:disque-worker|python) shop[^`]*)`", README)
    with subprocess.Popen(worker.split(), cwd=tmp_path, env=environment) as running:
        try:
            printed = subprocess.run(
                producer.split(), cwd=tmp_path, env=environment, capture_output=True, text=True,
                timeout=HANG_SECONDS,
            )  # fmt: skip
        finally:
            running.terminate()
    assert printed.stdout == "sent to ann@example.org\n", printed.stderr
