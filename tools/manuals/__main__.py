"""Writes all man pages and completions, in the same directories as below ``/usr``."""

import argparse
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
        for shell, place in completions.SHELLS.items():
            text = completions.completion(command, shell)
            _write(directory / "share" / place.format(name), text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.manuals", description=__doc__)
    parser.add_argument("directory", type=Path, help="where to write them, like /usr")
    main(parser.parse_args().directory)
