"""The commands in the READMEs of examples in other languages, if their tools are installed."""

from pathlib import Path

import pytest

from tests.support.doc_blocks import blocks
from tests.support.documented import Typist, until
from tests.support.examples import need
from tests.support.harness import LiveNode

INSTALLS = ("apt-get ", "npm ")


@pytest.mark.parametrize("language", ["c", "go", "node", "php", "ruby", "shell"])
def test_greetings_are_added_and_done(
    language: str, shared_node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(language)
    [block] = blocks(f"examples/{language}/README.md")
    printed, script = tmp_path / "work.log", ""
    for line in block.lines():
        if line.startswith(INSTALLS):
            continue
        if " work " in line:
            line = f"{line} > {printed} &\n" + until(f"[ $(wc -l < {printed}) -ge 2 ]")
            line += f"kill $!\nwait $! || true\nsort {printed}\nrm {printed}"
        script += f"{line}\n"
    monkeypatch.setenv("DISQUE_NODES", f"127.0.0.1:{shared_node.port}")
    others = {"./jobs": f"{tmp_path}/jobs", "-o jobs": f"-o {tmp_path}/jobs"}
    text = Typist(tmp_path, others).type(script)
    rounds = script.count(" work ")
    assert rounds >= 1
    assert text.count("done anna\ndone bert\n") == rounds
