"""Web programs and their workers, started as their READMEs and pages say."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.doc_blocks import blocks
from tests.support.documented import ID, Typist, until
from tests.support.harness import LiveNode, free_port

PROGRAMS = ".venv/bin/"
SERVERS = ("flask ", "uvicorn ", "disque-worker ")
PLACES = [
    ("examples/flask/README.md", "Flask with tasks", "flask"),
    ("examples/fastapi/README.md", "FastAPI", "fastapi"),
    ("examples/tracing/README.md", "A trace from the request to the worker", "tracing"),
    ("docs/web.md", "Flask", "flask"),
    ("docs/web.md", "FastAPI", "fastapi"),
    ("docs/web.md", "The client alone", "fastapi"),
    ("packages/integrations/docs/tracing.md", "In five minutes", "tracing"),
]


def typed(page: str, title: str) -> list[str]:
    """What is typed below a title, after the installation; a repeated request only once."""
    lines = [
        line
        for block in blocks(page)
        if block.titles[-1] == title and block.language == ""
        for line in block.lines()
        if line.removeprefix(PROGRAMS).startswith((*SERVERS, "curl "))
    ]
    return [line for line in lines if not re.search(ID, line)]


@pytest.mark.parametrize(("page", "title", "example"), PLACES)
def test_a_request_becomes_a_job(
    page: str,
    title: str,
    example: str,
    shared_node: LiveNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = typed(page, title)
    [request] = [line for line in lines if line.startswith("curl ")]
    servers = [line for line in lines if line != request]
    port, node = free_port(), f"127.0.0.1:{shared_node.port}"
    monkeypatch.setenv("DISQUE_URL", f"disque://{node}")
    monkeypatch.setenv("DISQUE_NODES", node)
    script = "PATH=$PWD/.venv/bin:$PATH\n"
    if not page.startswith("examples/"):
        script += f"cd {ROOT}/examples/{example}\n"
    script += "".join(f"{line} > {tmp_path}/log{n} 2>&1 &\n" for n, line in enumerate(servers))
    script += until(f"curl -s http://127.0.0.1:{port}") + f"echo ---\n{request}\n"
    has_worker = any("disque-worker" in line for line in servers)
    count = 0 if has_worker else 1  # of the remaining jobs
    script += until(f"redis-cli -p 7711 INFO jobs | grep -q registered_jobs:{count}")
    script += "redis-cli -p 7711 INFO jobs\nkill $(jobs -p)\nwait\n"
    others = {
        "7711": str(shared_node.port),
        "flask --app shop:web run": f"flask --app shop:web run --port {port}",
        "uvicorn ": f"uvicorn --port {port} ",
        "8000": str(port),
        "5000": str(port),
    }
    answer = Typist(tmp_path, others).type(script).partition("---\n")[2]
    assert re.search(rf'"id": ?"{ID}"', answer)
    assert f"registered_jobs:{count}\n" in answer
