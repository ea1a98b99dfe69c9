"""Decides where an audit is done: in this process, or on Spark."""

import argparse
import os
from collections.abc import Mapping
from importlib.util import find_spec

from disque_spark.audit.engine import Engine, LocalEngine
from disque_spark.audit.run import new_bytes
from disque_spark.cli.checks import UsageError
from disque_spark.defaults import AUTO, LOCAL, SPARK
from disque_spark.files import location

# With more new lines than this, Spark is as fast on two cores, in spite of its start.
LOCAL_BYTES = 8 << 30


def local_engine(options: argparse.Namespace) -> Engine | None:
    """The engine of this process; None: the command needs a Spark session.

    Raises:
        UsageError: ``--engine local`` is given with what needs Spark.
    """
    chosen = getattr(options, "engine", SPARK)
    needs = needed(options, os.environ if chosen == AUTO else {})
    if chosen == LOCAL and needs is not None:
        raise UsageError(f"--engine local: not with {needs}")
    if chosen == SPARK or needs is not None:
        return None
    settings = dict(options.conf)
    if chosen == AUTO and _size_of(options) > LOCAL_BYTES and find_spec("pyspark") is not None:
        return None
    return LocalEngine(settings=settings)


def needed(options: argparse.Namespace, environment: Mapping[str, str]) -> str | None:
    """What was given that only Spark can do; None: nothing."""
    for name in ("master", "remote", "explain"):
        if getattr(options, name):
            return f"--{name}"
    for name, _ in options.conf:
        if not name.startswith("spark.hadoop."):  # of file systems
            return f"--conf {name}"
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):  # the latter is set by spark-submit
        if environment.get(name):
            return name
    return None


def _size_of(options: argparse.Namespace) -> int:
    """The approximate size in bytes of the lines to read; 0 if some logs do not exist yet."""
    settings = dict(options.conf)
    if not all(location(path, settings).glob() for path in options.log):
        return 0
    return new_bytes(options.log, options.output, settings)
