"""The program of the README, and ``examples/spark/backlog.py``, with the session of the tests.
``test_docs.py`` runs the others."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support import ROOT
from tests.support.doc_blocks import block
from tests.support.documented import Typist, until
from tests.support.harness import HANG_SECONDS, LiveNode, free_port, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def test_a_stream_tells_how_far_behind_it_is(
    another_session: SparkSession,
    shared_node: LiveNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    start, look = block("examples/spark/README.md", ".venv/bin/python examples/spark/back").lines()
    program, _, queue = start.split()[1:]
    port = str(free_port())
    names: dict[str, Any] = {"__name__": "backlog"}
    exec((ROOT / program).read_text().replace("9103", port), names)
    session = another_session  # listeners belong to a session
    builder = SimpleNamespace(master=lambda _: SimpleNamespace(getOrCreate=lambda: session))
    names["SparkSession"] = SimpleNamespace(builder=builder)
    served = names["serve_metrics"]
    kept = []
    names["serve_metrics"] = lambda *args: kept.append(served(*args))
    names["tempfile"] = SimpleNamespace(gettempdir=lambda: str(tmp_path))
    shared_node.ask("ADDJOB", queue, "body", 0)
    arguments = (f"127.0.0.1:{shared_node.port}", queue)
    running = threading.Thread(target=names["main"], args=arguments)
    running.start()
    try:
        wait_until(lambda: any(query.lastProgress for query in session.streams.active))
        typist = Typist(tmp_path, {"9103": port})
        printed = typist.type(until(f"{look} | grep -q '{{'") + look)
    finally:
        for query in session.streams.active:
            query.stop()
        running.join(HANG_SECONDS)
        for one in kept:
            one.close()
    assert re.search(rf'disque_spark_queue_behind.*"{queue}".* \d', printed)
    assert "batch 0: 1 jobs" in capfd.readouterr().out


def test_the_program_of_the_readme(
    spark: SparkSession, shared_node: LiveNode, capsys: pytest.CaptureFixture[str]
) -> None:
    shared_node.ask("ADDJOB", "letters", "body", 0)
    program = block("packages/spark/README.md", "from pyspark.sql").text
    exec(program.replace("7711", str(shared_node.port)), {})
    assert "|letters|" in capsys.readouterr().out.replace(" ", "")
