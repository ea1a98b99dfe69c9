"""The commands of docs/spark-process.md are run as they stand there; only the port and the
directory are others."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.harness import free_port

PAGE = (ROOT / "docs" / "spark-process.md").read_text()
EXAMPLE = ROOT / "examples" / "spark" / "score.py"
LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))


def test_the_model_of_the_page_tells_mails_apart() -> None:
    spec = importlib.util.spec_from_file_location("score", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    model = score.Model([score.mail(number) for number in range(10_000, 10_300)])
    mails = [score.mail(number) for number in range(300)]
    right = (model([text for text, _ in mails]) > 0.5) == [odd for _, odd in mails]
    assert right.mean() > 0.95


@pytest.mark.skipif(not LONG, reason="starts a Spark of its own; set DISQUE_SPARK_LONG")
@pytest.mark.live
@pytest.mark.timeout(300)
def test_the_page_says_what_is_printed(tmp_path: Path) -> None:
    part = PAGE.partition("## A small model")[2].partition("\n## ")[0]
    script = "".join(line[4:] for line in part.splitlines(True) if line.startswith("    "))
    expected = re.findall(r"```text\n(.*?)```", part, re.DOTALL)[0]
    port = str(free_port())
    program = tmp_path / "score.py"
    program.write_text(EXAMPLE.read_text().replace("7711", port))
    for old, new in [
        ("examples/spark/score.py", str(program)),
        ("7711", port),
        ("/tmp/score", str(tmp_path / "score")),
        (".venv/bin", str(Path(sys.executable).parent)),
    ]:
        script = script.replace(old, new)
    try:
        done = subprocess.run(
            ["bash"],
            cwd=ROOT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)},
            input=script,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        for pid in tmp_path.glob("score/pid"):
            os.kill(int(pid.read_text()), signal.SIGKILL)
    assert expected in done.stdout, done.stdout + done.stderr
