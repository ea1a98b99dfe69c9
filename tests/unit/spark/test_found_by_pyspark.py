"""PySpark imports modules named ``pyspark_*``, and takes a class from each."""

from importlib import import_module

from disque_trio.spark import sources
from tests.support import ROOT


def test_there_is_a_module_for_each_source() -> None:
    names = [path.stem for path in ROOT.glob("pyspark_*.py")]
    found = [import_module(name).DefaultSource for name in names]
    assert sorted(found, key=str) == sorted(sources(), key=str)
    assert sorted(source.name().replace("-", "_") for source in found) == sorted(
        name.removeprefix("pyspark_") for name in names
    )
