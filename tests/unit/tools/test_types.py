"""tools/types.py leaves out what cannot be checked without libraries, and nothing else."""

import tomllib

from tools.types import configuration, missing


def test_imports_of_what_is_not_installed_are_found_wherever_they_are() -> None:
    text = (
        '"""Imports nothing from the text\nfrom here on."""\nimport os\nimport not_here.a as x\n'
        "from nor_here.deeper import y\n\ndef f():\n    from and_not_here import z\n"
    )
    assert missing(text) == {"not_here", "nor_here", "and_not_here"}
    assert missing("import trio\nfrom disque_trio.resp import request\n") == set()


def test_the_other_settings_of_mypy_stay() -> None:
    text = "[tool.mypy]\nstrict = true\n\n[[tool.mypy.overrides]]\nmodule = ['a']\n"
    settings = tomllib.loads(configuration(text, {"pyspark"}, {"tools.x", "disque_trio.y"}))
    mypy = settings["tool"]["mypy"]
    assert mypy["strict"] is True
    assert mypy["plugins"] == ["tools.narrow"]
    first, packages, modules = mypy["overrides"]
    assert first == {"module": ["a"]}
    assert packages == {"module": ["pyspark", "pyspark.*"], "ignore_missing_imports": True}
    assert modules == {"module": ["disque_trio.y", "tools.x"], "ignore_errors": True}
