"""The connection to a catalog and its store: limited in time, and with errors that name what is missing."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from pypaimon.streaming.cli.messages import say
from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, PaimonStreamError, StoreError
from pypaimon.streaming.io.pool_registry import longest_wait
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.options.arguments import nearest
from pypaimon.streaming.paimon.internals import TableNotExistException

T = TypeVar("T")
_MOST_NAMES = 10

_THREAD = "paimon-contact"
_SILENT_SECONDS = 3.0
_LOOK_SECONDS = 2.0
_HANG_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


def reach(options: Mapping[str, str], seconds: float, call: Callable[[], T], patiently: bool = False) -> T:
    """Make a call on another thread. After three seconds a line on stderr names the endpoint that it waits for.

    Without that line the program would seem to hang: clients of stores retry for a minute and more in silence.

    Args:
        patiently: Whether to continue waiting, with another line each time. A second call would wait for the first:
            Arrow does not create an S3 client while a request of another one hangs.

    Raises:
        IOTimeoutError: No answer in time; names the endpoint and the result of a connection to it.
    """
    future: Future[T] = Future()
    threading.Thread(target=_fulfil, args=(future, call), name=_THREAD, daemon=True).start()
    if not wait((future,), min(seconds, _SILENT_SECONDS)).done:
        place = Endpoint.of(options)
        problem = place.problem()
        if seconds > _SILENT_SECONDS:
            say(f"waiting for {place} (at most {seconds:g} s){problem}")
        left = max(0.0, seconds - _SILENT_SECONDS)
        while not wait((future,), left).done:
            text = f"no answer from {place} within {seconds:g} s{problem}"
            if not patiently:
                raise IOTimeoutError(text)
            say(f"{text}; waiting on")
            left, problem = seconds, place.problem()
    return future.result()


@contextmanager
def reporting_hangs(options: Mapping[str, str]) -> Iterator[None]:
    """Report on stderr each request that has not returned for some seconds, once, and its endpoint."""
    ended = threading.Event()

    def watch() -> None:
        is_reported = False
        while not ended.wait(_HANG_SECONDS / 5):
            waited = longest_wait()
            if waited < _HANG_SECONDS:
                is_reported = False
            elif not is_reported:
                is_reported = True
                place = Endpoint.of(options)
                text = f"waiting for {place}: a request has not returned for {waited:.0f} s{place.problem()}"
                say(text)

    threading.Thread(target=watch, name="paimon-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def is_given_up() -> bool:
    """Whether a call of `reach` is still running: the interpreter would wait for it at its exit."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised to the caller that waits
        future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server that has to answer.

    Attributes:
        host: The host; None if the address is not one of a server.
    """

    key: str
    address: str
    host: str | None
    port: int

    @staticmethod
    def of(options: Mapping[str, str]) -> Endpoint:
        """The endpoint of a catalog: of its store, or of its server; otherwise the warehouse."""
        keys = [key for key in options if key.endswith(".endpoint")] + ["uri", "warehouse"]
        key = next(key for key in keys if key in options or key == "warehouse")
        text = options.get(key, "")
        if key.endswith(".endpoint") and "://" not in text:
            text = f"https://{text}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            return Endpoint(key, text, None, 0)
        if parts.scheme not in _PORTS or host is None:
            return Endpoint(key, text, None, 0)
        address = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
        return Endpoint(key, address, host, port or _PORTS[parts.scheme])

    def __str__(self) -> str:
        return f"{self.address} ({self.key})"

    def problem(self) -> str:
        """The result of a connection to it, such as `: Connection refused`; empty if it cannot be tried."""
        if self.host is None or (self.key == "uri" and getproxies()):
            return ""
        try:
            socket.create_connection((self.host, self.port), _LOOK_SECONDS).close()
        except OSError as error:
            return f": {error.strerror or error}"
        return ": it accepts connections, but does not answer"


class NotLoadedError(PaimonStreamError):
    """The table is missing, or may not be read."""


@contextmanager
def naming_causes(catalog: Any, options: Mapping[str, str], name: str) -> Iterator[None]:
    """Turn the errors of pypaimon for a table into errors that name the cause.

    Raises:
        NotLoadedError: The bucket, the warehouse, the database or the table is missing, or may not be read.
        StoreError: The store failed in a way that may pass.
    """
    try:
        yield
    except TableNotExistException as error:
        raise NotLoadedError(f"table {name} does not exist{_what_is_missing(catalog, options, name)}") from error
    except (OSError, RuntimeError) as error:
        cause = _os_error(error)
        if cause is None:
            raise
        found = translated(name, cause)
        if isinstance(found, CorruptTableError):
            raise NotLoadedError(f"{Endpoint.of(options)} refuses: {cause}{_credentials(options)}") from error
        if isinstance(found, StoreError):
            raise StoreError(f"{Endpoint.of(options)} failed: {cause}") from error
        raise


def _os_error(error: BaseException | None) -> OSError | None:
    while error is not None:
        if isinstance(error, OSError):
            return error
        error = error.__cause__
    return None


def _credentials(options: Mapping[str, str]) -> str:
    if any("access" in key and "key" in key for key in options) or "AWS_ACCESS_KEY_ID" in os.environ:
        return "; check the credentials and their permissions"
    return "; no credentials were given: neither s3.access-key and s3.secret-key nor AWS_ACCESS_KEY_ID"


def _what_is_missing(catalog: Any, options: Mapping[str, str], name: str) -> str:
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
        return f"; {database} {_there_is(table, catalog.list_tables(database))}"
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
