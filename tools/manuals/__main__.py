"""Writes all man pages and completions, in the same directories as below ``/usr``."""

import sys
from pathlib import Path

from disque_trio.version import VERSION
from tools.manuals import completions, man
from tools.manuals.described import commands


def main(directory: Path) -> None:
    """Write them below ``directory``."""
    for command in commands():
        name = command.name
        section = man.section(name)
        _write(directory / f"share/man/man{section}/{name}.{section}", man.page(command, VERSION))
        _write(directory / "share/bash-completion/completions" / name, completions.bash(command))
        _write(directory / "share/zsh/vendor-completions" / f"_{name}", completions.zsh(command))
        _write(
            directory / f"share/fish/vendor_completions.d/{name}.fish", completions.fish(command)
        )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
