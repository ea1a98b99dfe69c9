"""Opens file systems with pyarrow, with options from URIs, Spark settings and the environment.

Options have pyarrow's names. What they leave open, pyarrow finds out itself, such as the role of a
machine or the profile of a user.
"""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow.fs as pafs

from disque_trio.extras import how_to_install
from disque_trio.notation.addresses import Address, read_address

Options = tuple[tuple[str, str], ...]  # names and values, sorted
Kind = tuple[str, ...]  # the schemes of a kind of file system

LOCAL = "file"
S3 = ("s3", "s3a", "s3n")
AZURE = ("abfs", "abfss", "wasb", "wasbs")
GOOGLE = ("gs", "gcs")
HADOOP = ("hdfs", "viewfs")

_ATTEMPTS = 6  # attempts of a request to S3 that fails for a transient reason
_SECONDS = {"connect_timeout": "10", "request_timeout": "30"}  # defaults for S3
_RETRY_SECONDS = 60.0  # default time for retries of requests to Google
_KEYS = ("access_key", "secret_key", "session_token")  # only used together, from one place
_TEXTS: dict[Kind, str] = {
    S3: "access_key secret_key session_token endpoint_override region scheme role_arn session_name"
    " external_id tls_ca_file_path proxy_options",
    AZURE: "account_name account_key sas_token tenant_id client_id client_secret"
    " blob_storage_authority dfs_storage_authority blob_storage_scheme dfs_storage_scheme",
    GOOGLE: "access_token target_service_account scheme endpoint_override project_id"
    " default_bucket_location",
    HADOOP: "user kerb_ticket",
}
_FLAGS: dict[Kind, str] = {
    S3: "anonymous force_virtual_addressing allow_bucket_creation",
    GOOGLE: "anonymous",
}
_NUMBERS: dict[Kind, str] = {
    S3: "connect_timeout request_timeout",
    GOOGLE: "retry_time_limit",
    HADOOP: "replication buffer_size",
}
# Settings of Spark's S3A file system, and pyarrow's names for them.
_S3A = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint": "endpoint_override",
    "endpoint.region": "region",
}
_ENVIRONMENT: dict[Kind, tuple[tuple[str, str], ...]] = {
    S3: (
        ("AWS_ENDPOINT_URL_S3", "endpoint_override"),
        ("AWS_ENDPOINT_URL", "endpoint_override"),
        ("AWS_REGION", "region"),
        ("AWS_DEFAULT_REGION", "region"),
        ("AWS_ACCESS_KEY_ID", "access_key"),
        ("AWS_SECRET_ACCESS_KEY", "secret_key"),
        ("AWS_SESSION_TOKEN", "session_token"),
    ),
    AZURE: (("AZURE_STORAGE_KEY", "account_key"), ("AZURE_STORAGE_SAS_TOKEN", "sas_token")),
}
_PREFIX = "spark.hadoop."


class FileSystemError(OSError):
    """A file system refuses or fails; the text, one line, says where and why."""


class Opened(NamedTuple):
    """A file system, and a path in it.

    Attributes:
        system: the pyarrow file system.
        path: the path, in the form that ``system`` takes.
        needs_directories: whether the directory of a file must be created before the file.
    """

    system: Any
    path: str
    needs_directories: bool


def options_of(
    scheme: str,
    authority: str,
    query: str = "",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Options:
    """The options of a file system. The query overrides settings, which override the environment.

    Args:
        settings: Spark settings, with or without the prefix ``spark.hadoop.``; only those of file
            systems are used.
        environment: None: that of this process.

    Raises:
        FileSystemError: the query has an option that this file system does not have.
    """
    kind = _kind(scheme)
    said = dict(parse_qsl(query, keep_blank_values=True))
    known = [name for names in (_TEXTS, _FLAGS, _NUMBERS) for name in names.get(kind, "").split()]
    for name in said:
        if kind and name not in known:
            raise FileSystemError(
                f"{scheme}://{authority}: this file system has no option {name!r}"
            )
    environment = os.environ if environment is None else environment
    from_environment: dict[str, str] = {}
    for variable, name in _ENVIRONMENT.get(kind, ()):
        if environment.get(variable):
            from_environment.setdefault(name, environment[variable])
    found: dict[str, str] = {}
    for level in (said, _from_spark(kind, authority, settings or {}), from_environment):
        has_keys = any(name in found for name in _KEYS)
        for name, value in level.items():
            if not (has_keys and name in _KEYS):
                found.setdefault(name, value)
    return tuple(sorted(_with_plain_endpoint(found).items()))


def _kind(scheme: str) -> Kind:
    return next((kind for kind in (S3, AZURE, GOOGLE, HADOOP) if scheme in kind), ())


def _from_spark(kind: Kind, authority: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The options that Spark's settings give for a file system, under pyarrow's names."""
    plain = {name.removeprefix(_PREFIX): value for name, value in settings.items() if value}
    found: dict[str, str] = {}
    if kind == S3:
        for prefix in ("fs.s3a.", f"fs.s3a.bucket.{authority}."):
            for setting, name in _S3A.items():
                if prefix + setting in plain:
                    found[name] = plain[prefix + setting]
            if plain.get(prefix + "connection.ssl.enabled") == "false":
                found["scheme"] = "http"
            if plain.get(prefix + "path.style.access") == "false":
                found["force_virtual_addressing"] = "true"
    if kind == AZURE:
        host = authority.rpartition("@")[2]
        for name in (f"fs.azure.account.key.{host}", "fs.azure.account.key"):
            if name in plain:
                found.setdefault("account_key", plain[name])
    return found


def _with_plain_endpoint(found: dict[str, str]) -> dict[str, str]:
    """Split an endpoint that is a URL into host and scheme, as pyarrow needs it."""
    endpoint = found.get("endpoint_override", "")
    if "://" in endpoint:
        url = urlsplit(endpoint)
        found["endpoint_override"] = url.netloc
        found["scheme"] = url.scheme
    return found


def opened(scheme: str, authority: str, path: str, options: Options) -> Opened:
    """The file system of a URI. Cached: there is one object for each file system in a process.

    Raises:
        FileSystemError: it is of an unknown kind, or cannot be reached.
    """
    system, needs_directories = _system(scheme, authority, options)
    if scheme in (LOCAL, *HADOOP):
        return Opened(system, path or "/", needs_directories)
    if scheme in AZURE:
        return Opened(system, authority.partition("@")[0] + path, needs_directories)
    if _kind(scheme):
        return Opened(system, authority + path, needs_directories)
    inner = system.handler.fs._strip_protocol(f"{scheme}://{authority}{path}")
    return Opened(system, inner, needs_directories)


@cache
def _system(scheme: str, authority: str, options: Options) -> tuple[Any, bool]:
    kind = _kind(scheme)
    given: dict[str, Any] = dict(options)
    try:
        for name in _FLAGS.get(kind, "").split():
            if name in given:
                given[name] = given[name].lower() not in ("false", "0", "")
        for name in _NUMBERS.get(kind, "").split():
            if name in given:
                given[name] = int(given[name])
        if scheme == LOCAL:
            return pafs.LocalFileSystem(), True
        if kind == S3:
            retries = pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
            times = {name: float(given.pop(name, _SECONDS[name])) for name in _SECONDS}
            return pafs.S3FileSystem(retry_strategy=retries, **times, **given), False
        if kind == GOOGLE:
            limit = timedelta(seconds=given.pop("retry_time_limit", _RETRY_SECONDS))
            if "access_token" in given:  # its expiry is unknown here; the server checks it
                given["credential_token_expiration"] = datetime.max.replace(tzinfo=UTC)
            return pafs.GcsFileSystem(retry_time_limit=limit, **given), False
        if kind == AZURE:
            host = authority.rpartition("@")[2]
            given.setdefault("account_name", host.partition(".")[0])
            return pafs.AzureFileSystem(**given), False
        if kind == HADOOP:
            return _hadoop(scheme, authority, given), True
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError) as problem:
        said = str(problem).strip().partition("\n")[0]
        if kind == HADOOP and "load lib" in said:
            said += f": {how_to_install('hdfs')}, or give pyarrow Hadoop's libhdfs"
        raise FileSystemError(f"{scheme}://{authority}: {said}") from problem
    return _by_fsspec(scheme, given), True


def _hadoop(scheme: str, authority: str, given: Mapping[str, Any]) -> Any:
    """HDFS through hdfs-native if that is installed and there are no options, or else libhdfs."""
    found = read_address(authority, 0) if authority else Address()
    host, port = found.host, found.port
    if not given:
        try:
            from disque_spark.hadoop import Hadoop
        except ImportError:
            pass
        else:
            return pafs.PyFileSystem(pafs.FSSpecHandler(Hadoop(scheme, host, port or None)))
    place = f"{scheme}://{host}" if scheme == "viewfs" else host or "default"
    return pafs.HadoopFileSystem(place, port, **given)


def renamer(system: Any) -> Callable[[str, str], None] | None:
    """A function that renames a file of this file system atomically, or raises FileExistsError if
    the new name is taken; None if the file system cannot do that."""
    handler = getattr(system, "handler", None)
    return getattr(handler.fs, "mv_new", None) if isinstance(handler, pafs.FSSpecHandler) else None


def _by_fsspec(scheme: str, options: Mapping[str, str]) -> Any:
    try:
        import fsspec
    except ImportError:
        text = f"{scheme}://: pyarrow has no such file system; fsspec may: pip install fsspec"
        raise FileSystemError(text) from None
    try:
        system = fsspec.filesystem(scheme, **options)
    except (ImportError, ValueError, TypeError) as problem:
        raise FileSystemError(f"{scheme}://: {problem}") from problem
    return pafs.PyFileSystem(pafs.FSSpecHandler(system))


def local_path(uri: str) -> str:
    """The path of a ``file:`` URL.

    Raises:
        FileSystemError: the URL names another machine.
    """
    url = urlsplit(uri)
    if url.netloc not in ("", "localhost"):
        raise FileSystemError(f"expected a path on this machine, got {uri!r}")
    return unquote(url.path)


def s3_client(options: Options) -> Any | None:
    """A botocore client, for what pyarrow cannot do; None if botocore is not installed."""
    try:
        return _s3_client(options)
    except ImportError:
        return None


@cache
def _s3_client(options: Options) -> Any:
    import botocore.config
    import botocore.session

    given = dict(options)
    endpoint = given.get("endpoint_override")
    config: dict[str, Any] = {
        "connect_timeout": float(given.get("connect_timeout", _SECONDS["connect_timeout"])),
        "read_timeout": float(given.get("request_timeout", _SECONDS["request_timeout"])),
        "retries": {"max_attempts": _ATTEMPTS, "mode": "standard"},
    }
    if given.get("anonymous", "false") not in ("false", "0"):
        config["signature_version"] = botocore.UNSIGNED
    return botocore.session.Session().create_client(
        "s3",
        region_name=given.get("region", "us-east-1" if endpoint else None),
        endpoint_url=f"{given.get('scheme', 'https')}://{endpoint}" if endpoint else None,
        aws_access_key_id=given.get("access_key"),
        aws_secret_access_key=given.get("secret_key"),
        aws_session_token=given.get("session_token"),
        verify=given.get("tls_ca_file_path"),
        config=botocore.config.Config(**config),
    )
