"""A home of Spark for tests."""

from fnmatch import fnmatch
from pathlib import Path

import pyspark

# What no test uses. Java looks for a class in one library after the other, and PySpark asks for
# many that are not there, such as java.lang.PythonUtils. Half of the time of a start goes there.
_UNUSED = (
    *("JTransforms-*", "arpack*", "breeze*", "datanucleus-*", "derby*", "hive-*", "jersey-*"),
    *("jjwt-*", "kubernetes-*", "netty-*-aarch_64*", "netty-*-osx-*", "netty-*-riscv64*"),
    *("netty-*-windows-*", "spark-hive*", "spark-kubernetes*", "spark-yarn*", "spire*", "vertx-*"),
    "volcano-*",
)


def spark_home(directory: Path) -> Path:
    """Link what is in Spark's home into the directory, except libraries that no test uses and the
    archive of PySpark, and return it.

    Each Python worker would import PySpark from the archive, which compiles all of it again: a
    second of CPU time. And the workers of a cluster write below Spark's home.
    """
    real = Path(pyspark.__file__).parent
    links = {directory / path.name: path for path in real.iterdir()}
    del links[directory / "python"], links[directory / "jars"]
    for path in (real / "jars").iterdir():
        if not any(fnmatch(path.name, unused) for unused in _UNUSED):
            links[directory / "jars" / path.name] = path
    (directory / "jars").mkdir(parents=True, exist_ok=True)
    for link, path in links.items():
        if not link.exists():
            link.symlink_to(path)
    return directory
