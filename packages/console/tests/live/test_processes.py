"""A server of several processes is one node in the console."""

import os
import re
import signal
from pathlib import Path

from packages.console.tests.support.console import console
from tests.support.several import COUNT, Start


def test_the_processes_of_a_node_are_one_row_that_opens(several: Start, tmp_path: Path) -> None:
    server = several()
    for number in range(COUNT):
        server.add(number)
    name = f"127.0.0.1:{server.main.port}"
    with console(tmp_path, [server.main.port]) as shown:

        def rows(page: str) -> list[str]:
            """The texts of the rows of the table of nodes."""
            text = shown.visitor().get(page).text.partition("Who sees whom")[0]
            found = re.findall(r"<tr data-key=.*?</tr>", text, re.S)
            return [" ".join(re.sub("<.*?>", " ", row).split()) for row in found]

        shown.wait_for("/", lambda text: "2 of 2 processes" in text)
        whole, processes, second, *_ = rows("/")
        assert whole.startswith(f"{name} 2 of 2 processes up 2 ")  # jobs
        assert processes.startswith(f"The processes of {name} {name} ")
        assert second.startswith(f"127.0.0.1:{server.main.port + 1} ")
        shown.wait_for("/cluster", lambda text: text.count("1 of 1") == 2)
        assert rows("/cluster")[0].startswith(f"{name} 2 of 2 processes up ")
        pid = server.pid(0)
        os.kill(pid, signal.SIGSTOP)
        try:
            shown.wait_for("/", lambda text: "1 of 2 processes of" in text)
            assert rows("/")[0].startswith(f"{name} 1 of 2 processes up in part 1 ")
            assert f"not responding: {name}." in shown.visitor().get("/").text
        finally:
            os.kill(pid, signal.SIGCONT)
        shown.wait_for("/", lambda text: "2 of 2 processes" in text)
