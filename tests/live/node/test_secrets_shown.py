"""Secrets on the command line do not show in the process list."""

import subprocess
import sys
from pathlib import Path

from tests.support.harness import HANG_SECONDS, free_port, wait_until

RUN = "import sys; from disque_trio.node.command import main; sys.exit(main())"
SECRETS = ["the-secret-of-the-nodes", "the-one-before-of-them", "password-of-clients"]


def test_secrets_of_the_command_line_are_hidden(tmp_path: Path) -> None:
    options = ["--port", str(free_port()), "--bind", "127.0.0.1"]
    options += ["--cluster-secret", *SECRETS[:2], "--requirepass", SECRETS[2]]
    command = [sys.executable, "-c", RUN, *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        try:
            shown = Path(f"/proc/{process.pid}/cmdline")
            wait_until(lambda: b"*" * len(SECRETS[0]) in shown.read_bytes())
            hidden = ["*" * len(word) if word in SECRETS else word for word in options]
            wait_until(lambda: shown.read_text().split("\0")[3:-1] == hidden)
        finally:
            process.terminate()
            process.wait(HANG_SECONDS)
