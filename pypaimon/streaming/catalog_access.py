"""`open_table`: a table of a catalog, within a limited time, and with errors that name what is missing or wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pypaimon.streaming.catalog_endpoint import S3_SCHEMES, Endpoint
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.clock import is_done_within
from pypaimon.streaming.errors import (
    CorruptTableError,
    IOTimeoutError,
    OpenTableError,
    PaimonStreamError,
    StoreError,
    StreamConfigError,
)
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.metadata.table_directory import naming_unreadable_types
from pypaimon.streaming.options.arguments import a_name, did_you_mean, finite_seconds, nearest, needed
from pypaimon.streaming.paimon.catalogs import CatalogException, CatalogFactory, RESTException
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import TableNotExistException
from pypaimon.streaming.redaction import HIDDEN, SECRET_KEY

T = TypeVar("T")
CONNECT_SECONDS = 10.0
"""How long to wait for a table by default. Clients of stores retry for a minute and more in silence."""
THREAD = "paimon-contact"
_SILENT_SECONDS = 3.0
_MOST_NAMES = 10
_SCHEMES = ("", "file", *S3_SCHEMES, "oss", "hdfs", "viewfs", "gs")
_S3_OPTION = re.compile(r"(?:fs\.)?s3a?\.")
_S3_NAMES = (
    "access-key", "secret-key", "session-token", "security-token", "endpoint", "region", "path-style-access",
    "accessKeyId", "accessKeySecret", "securityToken",
)  # fmt: skip
_KEYS = ("access-key", "access.key", "accessKeyId")
_SECRETS = ("secret-key", "secret.key", "accessKeySecret")
_OTHER_REGION = re.compile(
    r"PermanentRedirect|AuthorizationHeaderMalformed|PERMANENT_REDIRECT|HTTP status:? 301|bucket is located in", re.I
)


def open_table(
    name: str, options: Mapping[str, str], *, connect_timeout: float | timedelta = CONNECT_SECONDS
) -> WritableTable:
    """A table of a catalog, as `CatalogFactory.create(options).get_table(name)`, which may wait for minutes instead.

    Blocks; on an event loop `await asyncio.to_thread(open_table, name, options)`.

    Args:
        name: `database.table`.
        options: Options of pypaimon's catalog: `warehouse`, `metastore`, `s3.endpoint` and the like.
        connect_timeout: Seconds within which the table must be found.

    Raises:
        StreamConfigError: The options cannot work.
        OpenTableError: The table, its bucket or its server is missing, or may not be read.
        StoreError: The store or the catalog failed, or did not answer in time.
    """
    if not all(a_name("open_table: name", name).partition(".")):
        raise StreamConfigError(f"open_table({name!r}): names no database: give 'database.table'")
    needed("open_table: options", options, "a mapping of the catalog's options", "items")
    seconds = finite_seconds("open_table: connect_timeout", connect_timeout)
    given = {key: str(value) for key, value in options.items()}

    def found() -> WritableTable:
        return table_of(open_catalog(given), given, name)

    return reach(given, seconds, found)


def open_catalog(options: Mapping[str, str]) -> Any:
    """pypaimon's catalog.

    Raises:
        StreamConfigError: The options cannot work.
        OpenTableError: The server of the catalog refuses.
    """
    _check(options)
    with naming_causes(options, "the catalog"):
        try:
            return CatalogFactory.create(dict(options))
        except (ValueError, ImportError, RuntimeError) as error:
            if _os_error(error) is not None:
                raise
            text = f"the catalog cannot be made of its options: {' '.join(str(error).split())}{_misspelled(options)}"
            if options.get("warehouse", "").startswith(("hdfs:", "viewfs:")):
                text += " Or pip install 'pypaimon[hdfs]', which needs no Hadoop."
            raise StreamConfigError(text) from error


def table_of(catalog: Any, options: Mapping[str, str], name: str) -> WritableTable:
    """A table of a catalog with these options; raises as `naming_causes`."""
    with naming_unreadable_types("the table"), naming_causes(options, name, catalog):
        table: WritableTable = catalog.get_table(name)
        return table


def reach(
    options: Mapping[str, str],
    seconds: float,
    call: Callable[[], T],
    patiently: bool = False,
    report: Callable[[str], object] = lambda text: None,
) -> T:
    """Make a call to a catalog on another thread, once its server is known to listen.

    Args:
        patiently: Whether to continue waiting. A second call would wait for the first: Arrow does not create an S3
            client while a request of another one hangs.
        report: Called with a line after three seconds of silence, and each time that a patient call waits on.

    Raises:
        StreamConfigError: The options cannot work.
        StoreError: Nothing listens at the endpoint.
        IOTimeoutError: No answer in time; names the endpoint and the result of a connection to it.
    """
    _check(options)
    place = Endpoint.of(options)
    if place.host is None and place.key != "warehouse" and options.get("metastore") != "jdbc":
        example = f"http://localhost:{8080 if place.key == 'uri' else 9000}"
        raise StreamConfigError(f"{place.key}={options.get(place.key, place.address)}: give an address like {example}")
    if (problem := place.problem()) is not None:
        raise StoreError(f"{place} cannot be reached: {problem}")
    future: Future[T] = Future()
    # Nothing ends a call of pypaimon.
    contact = BackgroundThread(_fulfil, THREAD, lambda: None, future, call)
    contact.start()
    if not is_done_within(future, min(seconds, _SILENT_SECONDS)):
        if seconds > _SILENT_SECONDS:
            report(f"waiting for {place} (at most {seconds:g} s){place.state()}")
        left = max(0.0, seconds - _SILENT_SECONDS)
        while not is_done_within(future, left):
            text = f"no answer from {place} within {seconds:g} s{place.state()}"
            if not patiently:
                contact.is_awaited = False
                raise IOTimeoutError(text)
            report(f"{text}; waiting on")
            left = seconds
    return future.result()


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised to the caller that waits
        future.set_exception(error)


# ---- Options that cannot work


def _check(options: Mapping[str, str]) -> None:
    metastore, warehouse = options.get("metastore", "filesystem"), options.get("warehouse", "")
    known = list(CatalogFactory.CATALOG_REGISTRY)
    if metastore == "hive":
        raise StreamConfigError(
            "metastore=hive: pypaimon has no client for a Hive metastore; leave out metastore and uri, and give as "
            "warehouse the directory in which Hive keeps its databases (hive.metastore.warehouse.dir)"
        )
    if metastore not in known:
        hint = did_you_mean(nearest(metastore, known))
        raise StreamConfigError(f"metastore={metastore}: pypaimon has no such catalog; give {', '.join(known)}.{hint}")
    if metastore != "filesystem" and not options.get("uri"):
        raise StreamConfigError(f"metastore={metastore}: give the address of the catalog's server as uri")
    if metastore == "rest" and not options.get("token.provider"):
        raise StreamConfigError("metastore=rest: give token.provider, either bear with a token, or dlf with its keys")
    if not warehouse:
        raise StreamConfigError(
            "the catalog has no warehouse: give its directory, its URI, or its name in a REST catalog"
        )
    if metastore == "rest":
        return
    found = re.match(r"([a-z][a-z0-9+.-]+):", warehouse)
    scheme = "" if found is None else found[1]
    if scheme not in _SCHEMES:
        known_schemes = ", ".join(each for each in _SCHEMES if each)
        raise StreamConfigError(f"warehouse={warehouse}: pypaimon reads no '{scheme}' stores, but {known_schemes}")
    if scheme in (*S3_SCHEMES, "oss", "gs") and not urlsplit(warehouse).netloc:
        raise StreamConfigError(f"warehouse={warehouse}: names no bucket; give {scheme}://BUCKET/DIRECTORY")
    if scheme == "oss" and not options.get("fs.oss.endpoint"):
        raise StreamConfigError(f"warehouse={warehouse}: give the store's address as fs.oss.endpoint")
    has_key, has_secret = (_has(options, names) for names in (_KEYS, _SECRETS))
    if scheme in S3_SCHEMES and has_key != has_secret:
        lacking = "secret-key" if has_key else "access-key"
        raise StreamConfigError(f"s3.access-key and s3.secret-key go together; give s3.{lacking}{_misspelled(options)}")


def _has(options: Mapping[str, str], names: tuple[str, ...]) -> bool:
    return any(_S3_OPTION.match(key) and key.endswith(names) for key in options)


def _misspelled(options: Mapping[str, str]) -> str:
    for key in options:
        if (family := _S3_OPTION.match(key)) is not None:
            name = key[family.end() :]
            if (
                name.replace(".", "-") not in _S3_NAMES
                and name not in _S3_NAMES
                and (meant := nearest(name, _S3_NAMES))
            ):
                return f". There is no option '{key}'.{did_you_mean(family[0] + meant)}"
    return ""


# ---- Errors of pypaimon and of clients


@contextmanager
def naming_causes(options: Mapping[str, str], name: str, catalog: Any = None) -> Iterator[None]:
    """Turn the errors of pypaimon for a table into errors that name the cause.

    Raises:
        OpenTableError: The bucket, the warehouse, the database or the table is missing, or may not be read.
        StoreError: The store failed in a way that may pass.
    """
    try:
        yield
    except PaimonStreamError:
        raise
    except TableNotExistException as error:
        raise OpenTableError(f"table {name} does not exist{what_is_missing(catalog, options, name)}") from error
    except RESTException as error:
        raise _of_rest(options, error) from error
    except (CatalogException, OSError, RuntimeError) as error:
        cause = _os_error(error)
        if cause is None:
            raise
        place = Endpoint.of(options)
        if _OTHER_REGION.search(str(cause)):
            text = f"the bucket of {options.get('warehouse')} is in another region; correct s3.region: {cause}"
            raise OpenTableError(text) from error
        found = translated(name, cause)
        if isinstance(found, CorruptTableError):
            raise OpenTableError(f"{place} refuses: {cause}{_credentials(options)}") from error
        if isinstance(found, StoreError):
            raise StoreError(f"{place} failed: {cause}{_credentials(options)}") from error
        raise


def _of_rest(options: Mapping[str, str], error: Any) -> PaimonStreamError:
    place, kind = Endpoint.of(options), type(error).__name__
    text = " ".join(str(error.__cause__ or error).split())
    for key, value in options.items():
        if SECRET_KEY.fullmatch(key) and value:
            text = text.replace(value, HIDDEN)
    if kind in ("NotAuthorizedException", "ForbiddenException"):
        return OpenTableError(f"{place} refuses: {text}; check token.provider and token, or its keys")
    if kind in ("ServiceFailureException", "ServiceUnavailableException"):
        return StoreError(f"{place} failed: {text}")
    return OpenTableError(f"{place} does not answer as a REST catalog of Paimon: {text}; correct uri and warehouse")


def _os_error(error: BaseException | None) -> OSError | None:
    while error is not None:
        if isinstance(error, OSError):
            return error
        error = error.__cause__
    return None


def _credentials(options: Mapping[str, str]) -> str:
    if any("access" in key and "key" in key.lower() for key in options) or "AWS_ACCESS_KEY_ID" in os.environ:
        return f"; check the credentials and their permissions{_misspelled(options)}"
    return (
        "; no credentials were given: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or s3.access-key and "
        f"s3.secret-key{_misspelled(options)}"
    )


def what_is_missing(catalog: Any, options: Mapping[str, str], name: str) -> str:
    """What an error says of a table that a catalog does not find, after its name; empty if nothing more is known."""
    warehouse = options.get("warehouse", "")
    database, _, table = name.partition(".")
    try:
        if options.get("metastore", "filesystem") == "filesystem" and not catalog.file_io.exists(warehouse):
            parts = urlsplit(warehouse)
            bucket = f"{parts.scheme}://{parts.netloc}"
            if parts.netloc and not catalog.file_io.exists(bucket):
                return f": there is no bucket {bucket}"
            return f": there is no warehouse {warehouse}"
        databases = catalog.list_databases()
        if database not in databases:
            return f": there is no database {database}; the warehouse {_there_is(database, databases)}"
        tables = catalog.list_tables(database)
        if table in tables:
            return f": {database} lists it, but it has no schema: it was or is being dropped, or is another directory"
        return f"; {database} {_there_is(table, tables)}"
    except Exception:  # noqa: BLE001 - the table is missing; more details are optional
        return ""


def _there_is(wanted: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return "holds nothing"
    if (meant := nearest(wanted, found)) is not None:
        return f"has {meant}"
    more = "" if len(found) <= _MOST_NAMES else f" and {len(found) - _MOST_NAMES} more"
    return f"has {', '.join(found[:_MOST_NAMES])}{more}"
