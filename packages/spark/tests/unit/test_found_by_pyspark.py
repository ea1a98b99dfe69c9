"""PySpark imports modules named ``pyspark_*``, and takes a class from each."""

from importlib import import_module

from disque_spark import sources
from packages.spark.tests.support import HOME

MODULES = [import_module(path.stem) for path in HOME.glob("pyspark_*.py")]


def test_there_is_a_module_for_each_source() -> None:
    found = [module.DefaultSource for module in MODULES]
    assert sorted(found, key=str) == sorted(sources(), key=str)
    assert sorted(source.name().replace("-", "_") for source in found) == sorted(
        module.__name__.removeprefix("pyspark_") for module in MODULES
    )
