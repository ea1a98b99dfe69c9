"""HDFS by the library ``hdfs-native``, the extra ``hdfs``: it needs neither Java nor libhdfs."""

from typing import Any

from hdfs_native.fsspec import BaseFileSystem

# It would try for some minutes to reach a NameNode that does not answer.
_SETTINGS = {"dfs.client.failover.max.attempts": "6"}


class Hadoop(BaseFileSystem):
    """A file system of Hadoop's, for fsspec.

    Args:
        scheme: ``hdfs`` or ``viewfs``. host, port: of the NameNode; "" and None: what Hadoop's
            configuration says (``HADOOP_CONF_DIR``).
    """

    def __init__(self, scheme: str, host: str, port: int | None) -> None:
        self.protocol = scheme
        super().__init__(host or None, port, **_SETTINGS)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Give a file another name; one that has it is replaced."""
        self.client.rename(path1, path2, True)

    def mv_new(self, path1: str, path2: str) -> None:
        """Give a file another name, in one step.

        Raises:
            FileExistsError: another file has it.
        """
        self.client.rename(path1, path2, False)

    def _convert_file_status(self, file_status: Any) -> dict[str, Any]:
        # Where pyarrow looks for it.
        return super()._convert_file_status(file_status) | {
            "mtime": file_status.modification_time / 1000
        }
