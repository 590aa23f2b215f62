"""The first contact with a catalog and its store: bounded, and with a word about what is being waited for."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, PaimonStreamError, StoreError
from pypaimon.streaming.internals import TableNotExistException
from pypaimon.streaming.io.pool_registry import longest_wait
from pypaimon.streaming.io.request_errors import translated

T = TypeVar("T")
_MOST_NAMES = 10

_THREAD = "paimon-contact"
_SILENT_SECONDS = 3.0
_LOOK_SECONDS = 2.0
_HANG_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


def reach(options: Mapping[str, str], seconds: float, call: Callable[[], T], patiently: bool = False) -> T:
    """The result of a call on another thread. After three seconds stderr says whom it waits for.

    Clients of stores repeat what fails for a minute and more, and tell nobody meanwhile.

    Args:
        options: Of the catalog.
        seconds: How long to wait.
        call: Asks the catalog.
        patiently: Whether to wait on, and say so each time. A second call would wait for the first one: Arrow makes no
            client of S3 while a request of another one hangs.

    Raises:
        IOTimeoutError: No answer in time; names the endpoint, and what a connection to it comes to.
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
    """Say on stderr, once for each, that a request within has not come back for some seconds, and whose it is.

    Args:
        options: Of the catalog.
    """
    ended = threading.Event()

    def watch() -> None:
        told = False
        while not ended.wait(_HANG_SECONDS / 5):
            waited = longest_wait()
            if waited < _HANG_SECONDS:
                told = False
            elif not told:
                told = True
                place = Endpoint.of(options)
                text = f"waiting for {place}: a request has not come back for {waited:.0f} s{place.problem()}"
                say(text)

    threading.Thread(target=watch, name="paimon-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def is_given_up() -> bool:
    """Whether a call of `reach` goes on though nobody waits for it: the interpreter would wait for it at its end."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
        future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who has to answer.

    Attributes:
        key: The option of the catalog that names it.
        address: As people read it; without user and password.
        host: Its host; None if there is none to connect to.
        port: Of that host.
    """

    key: str
    address: str
    host: str | None
    port: int

    @staticmethod
    def of(options: Mapping[str, str]) -> Endpoint:
        """The endpoint of a catalog: of its store, or of its server; else the warehouse."""
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
        """What a connection to it comes to: `: Connection refused`; empty if that cannot be told."""
        if self.host is None or (self.key == "uri" and getproxies()):
            return ""
        try:
            socket.create_connection((self.host, self.port), _LOOK_SECONDS).close()
        except OSError as error:
            return f": {error.strerror or error}"
        return ": it takes connections, and does not answer"


class NotLoadedError(PaimonStreamError):
    """The table is not there, or may not be read."""


@contextmanager
def naming_causes(catalog: Any, options: Mapping[str, str], name: str) -> Iterator[None]:
    """Turn what pypaimon raises for a table into what is the matter.

    Args:
        catalog: Of pypaimon.
        options: Of that catalog.
        name: Of the table.

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
    """The error of the store that another one was made of."""
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
    """The first part of a table's path that is not there, and what is there in its place."""
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
    except Exception:  # noqa: BLE001 - that it is missing is known; the rest is help
        return ""


def _there_is(wanted: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return "holds nothing"
    near = get_close_matches(wanted, found, n=1)
    if near:
        return f"has {near[0]}"
    more = "" if len(found) <= _MOST_NAMES else f" and {len(found) - _MOST_NAMES} more"
    return f"has {', '.join(found[:_MOST_NAMES])}{more}"
