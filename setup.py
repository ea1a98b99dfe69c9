"""Compiles the state machine, the protocol and the commands with mypyc, when it is asked to.

    pip install setuptools mypy
    DISQUE_TRIO_COMPILE=1 pip install --no-build-isolation .

Without the variable, or without a C compiler at hand, the same sources run as they are: about 2.5
times slower in the state machine, the same in every other way. ``disque-server --version`` says
which form is installed. All else about the distribution is in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import setup

PACKAGES = ("core", "protocol", "commands", "bananaq/core", "bananaq/commands")
MORE = (
    "disque_trio/aof/format.py",
    "disque_trio/aof/loader.py",
    "disque_trio/bananaq/redis_keys.py",
    "disque_trio/bananaq/redis_wire.py",
)
# What surrounds the state machine derives from these, which a compiled class does not allow.
PURE = {
    "disque_trio/core/host.py",
    "disque_trio/core/peers.py",
    "disque_trio/bananaq/core/store.py",
}


def modules() -> list[str]:
    """The files to compile, as mypyc wants them named."""
    found = [
        path.as_posix()
        for package in PACKAGES
        for path in sorted(Path("disque_trio", package).glob("*.py"))
    ]
    return [path for path in [*found, *MORE] if path not in PURE]


if os.environ.get("DISQUE_TRIO_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(modules(), opt_level="3"))
else:
    setup()
