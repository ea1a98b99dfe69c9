"""The five minutes of docs/celery.md, as typed."""

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support import PYTHONPATH
from tests.support.documented import page_of
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until

PAGE = page_of("celery.md").read_text(encoding="utf-8")
GUIDE = PAGE.partition("## Five minutes")[2].partition("\n## ")[0]
DONE_ALREADY = ("pip ", "disque-server ")


def test_five_minutes(node: LiveNode, tmp_path: Path) -> None:
    [(name, program)] = re.findall(r"This is `(.+?)`.*?```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / name).write_text(program.replace("7711", str(node.port)))
    lines = re.findall(r"^    \$ (.+)\n((?:    [^$].*\n)*)", GUIDE, re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": PYTHONPATH}
    workers: list[subprocess.Popen[bytes]] = []
    ran = 0
    try:
        for line, output in lines:
            if line.startswith(DONE_ALREADY):
                continue
            if line.endswith(" &"):
                with (tmp_path / "log").open("wb") as log:
                    words = shlex.split(line.removesuffix(" &"))
                    workers.append(
                        subprocess.Popen(
                            words,
                            cwd=tmp_path,
                            env=environment,
                            stdout=log,
                            stderr=log,
                            start_new_session=True,
                        )
                    )
                wait_until(lambda: node.info("clients")["consuming_clients"] == "2")
            else:
                done = subprocess.run(
                    line,
                    shell=True,
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=HANG_SECONDS,
                    check=False,
                )
                assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
                assert not output or done.stdout.split() == output.split(), line
            ran += 1
        for worker in workers:
            worker.terminate()
            assert worker.wait(HANG_SECONDS) == 0
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait(HANG_SECONDS)
    assert ran == 4
