"""Compiles the state machine and the commands with mypyc, if ``DISQUE_TRIO_COMPILE=1`` asks for it.

The compiled modules work with either build of disque-trio, as these do: each sees the other as
Python. So classes that derive from one of disque-trio's are ``native_class=False`` here, and those
they derive from allow it. Types come from the sources above, or from the installed disque-trio.
"""

import os
from pathlib import Path

from setuptools import setup

PACKAGES = ("core", "commands")
MORE = ("disque_bananaq/redis_store/keys.py", "disque_bananaq/redis_store/wire.py")

if os.environ.get("DISQUE_TRIO_COMPILE") == "1":
    os.environ.setdefault("MYPY_CACHE_DIR", "build/mypy-cache")
    os.environ.setdefault("MYPYPATH", str(Path(__file__).resolve().parents[2]))
    try:
        from mypyc.build import mypycify
    except ImportError:  # pip asks what the build requires
        setup(setup_requires=["mypy>=2.4"])
        raise

    found = [
        path.as_posix()
        for package in PACKAGES
        for path in sorted(Path("disque_bananaq", package).glob("*.py"))
    ]
    compiled = mypycify(["--ignore-missing-imports", *found, *MORE], opt_level="2", debug_level="0")
    for extension in compiled:
        extension.extra_compile_args += ["-fvisibility=hidden", "-Wno-all"]
    setup(ext_modules=compiled)
else:
    setup()
