"""A home of Spark for tests."""

from pathlib import Path

import pyspark


def spark_home(directory: Path) -> Path:
    """Link what is in Spark's home into the directory, except the archive of PySpark, and return
    it.

    Each Python worker would import PySpark from the archive, which compiles all of it again: a
    second of CPU time. And the workers of a cluster write below Spark's home.
    """
    directory.mkdir(exist_ok=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "python" and not (directory / path.name).exists():
            (directory / path.name).symlink_to(path)
    return directory
