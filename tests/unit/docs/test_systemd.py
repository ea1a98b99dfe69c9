"""docs/systemd.md agrees with ``disque-server --install-hints``, and the commands are about files
that are installed."""

import re
import tomllib
from fnmatch import fnmatch

from disque_trio.node.texts import INSTALL_HINTS
from tests.support import ROOT
from tests.support.documented import commands


def one_line_each(script: str) -> list[str]:
    return [
        " ".join(line.split())
        for line in re.sub(r"\\\n", "", script).splitlines()
        if line.strip() and not line.startswith("#")
    ]


def test_the_hints_have_all_commands_of_the_page() -> None:
    hinted = "\n".join(one_line_each(INSTALL_HINTS))
    named, *steps = one_line_each(commands("systemd.md", "Installing"))
    assert named == "disque-server --install-hints"
    assert len(steps) == 9
    assert [step for step in steps if step not in hinted] == []


def test_what_they_install_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["setuptools"]["data-files"]["share/disque"]
    used = re.findall(r"/opt/disque/share/disque/(\S+)", commands("systemd.md", "Installing"))
    assert len(used) == 3
    assert all(any(fnmatch(f"config/{name}", one) for one in shared) for name in used)
