"""`ObjectClient`: objects of one bucket of an S3-like store, by obstore, the client of the extra `fast`."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import Any

from pypaimon.streaming.concurrency.forking import ForkSafeLock

_FIRST_RELEASE = (0, 11)
"""With older releases the interpreter aborts if it exits while a thread waits for an answer."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""Names that can be part of the path or the host without encoding. The SDKs encode other names differently."""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_CAUSE = re.compile(r"\b(TimedOut|UnexpectedEof|BrokenPipe|Connection(?:Refused|Reset|Aborted)|dns error)\b")
_NO_CONDITIONS = ("400", "405", "501")
# Answers of S3 with status 400 that are not about conditions.
_OTHERWISE_BAD = re.compile(r"ExpiredToken|InvalidToken|TokenRefreshRequired|RequestExpired|RequestTimeout")
_REFUSED_KEY = re.compile(r"DeleteObjects request failed for key")
_NO_RANGE = re.compile(r"status code: 416|non-partial|[Cc]ontent.[Rr]ange|CONTENT_RANGE")
_PATIENCE = 1.5
"""How many times longer than `Store` the client waits, so that `Store` reports the timeout."""


class NotServedError(Exception):
    """The client cannot make this request: it would change the key, or the object lacks the range."""


class BusyError(OSError):
    """The store cannot serve the request at present (429, 5xx)."""


class ConflictError(BusyError):
    """Another program is writing the object that is replaced (409)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of an object.

    Attributes:
        data: The bytes, as a buffer with `len()` and slices.
        start: Offset of the first byte.
        size: Size of the whole object.
    """

    data: Any
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, its endpoint and the credentials.

    Attributes:
        name: Name of the bucket.
        endpoint: URL, with the bucket in its host if `in_host`.
        in_host: Whether requests name the bucket in the host instead of the path.
        region: The region that requests are signed for.
        access_key: Id of the key that signs requests.
        secret_key: The key.
        session_token: The token of temporary keys.
        timeout: Seconds that one request may take.
    """

    name: str
    endpoint: str
    in_host: bool
    region: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    timeout: float

    @staticmethod
    def of(file_system: Any, name: str, timeout: float) -> Bucket | None:
        """The bucket with the settings of Arrow's `S3FileSystem`; None if obstore might treat them differently.

        That is the case without explicit keys (a role, those of the machine, or none), with a proxy, and with special
        names.
        """
        try:
            (settings,) = file_system.__reduce__()[1]
            refused = settings["anonymous"] or settings["role_arn"] or settings["proxy_options"]["host"]
            keys = settings["access_key"], settings["secret_key"], settings["session_token"] or None
            endpoint, scheme = settings["endpoint_override"], settings["scheme"]
            in_host = bool(settings["force_virtual_addressing"] or not endpoint)
        except (LookupError, TypeError, ValueError):
            return None
        region = str(file_system.region)
        if not endpoint:
            endpoint = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
        given, _, host = endpoint.rpartition("://")
        host = host.rstrip("/")
        if refused or not (keys[0] and keys[1]) or not _BUCKET.fullmatch(name) or re.search(r"[/@?#\s]", host):
            return None
        in_host = in_host and not _is_address(host)
        url = f"{given or scheme}://{name}.{host}" if in_host else f"{given or scheme}://{host}"
        return Bucket(name, url, in_host, region, *keys, timeout)


@dataclass(eq=False)
class Conditions:
    """How a store handles conditional writes, as this process has found out.

    Attributes:
        heeded: Whether it heeds the conditions; None if it was not probed yet.
        why_not: How it ignores them.
        bare_tags: Whether it matches entity tags only without the quotes that its answers contain.
        probing: Held by the thread that probes.
    """

    heeded: bool | None = None
    why_not: str = ""
    bare_tags: bool = False
    probing: ForkSafeLock = field(default_factory=ForkSafeLock)

    @staticmethod
    @lru_cache(maxsize=256)
    def of(endpoint: str, bucket: str) -> Conditions:
        """The instance that all clients of a bucket share, since a REST catalog replaces temporary keys every hour."""
        return Conditions()

    def note_ignored(self, why: str) -> None:
        """Note that the store ignores conditions."""
        self.heeded, self.why_not = False, why


class ObjectClient:
    """Requests for objects of a bucket, without retries. Thread-safe.

    Args:
        bucket: The bucket.

    Attributes:
        trusted: Whether its answers have agreed with those of the table's FileIO.
        given_up: Whether they have disagreed.
        conditions: How the store handles conditional writes.
        deletes_together: Whether the store deletes several objects in one request, as far as is known.
    """

    def __init__(self, bucket: Bucket) -> None:
        from obstore.store import S3Store

        self.bucket = bucket
        self.trusted = False
        self.given_up = False
        self.deletes_together = True
        self.conditions = Conditions.of(bucket.endpoint, bucket.name)
        limit = timedelta(seconds=bucket.timeout * _PATIENCE)
        # obstore takes settings that are not given here from environment variables.
        self._store = S3Store(
            bucket.name,
            endpoint=bucket.endpoint,
            aws_endpoint_url_s3=bucket.endpoint,
            region=bucket.region,
            virtual_hosted_style_request=bucket.in_host,
            skip_signature=False,
            unsigned_payload=False,
            request_payer=False,
            s3_express=False,
            client_options={
                "allow_http": bucket.endpoint.lower().startswith("http://"),
                "timeout": limit,
                "connect_timeout": limit,
            },
            # `Store` retries. A retry in here could not distinguish its own first attempt from another
            # writer's object.
            retry_config={"max_retries": 0, "retry_timeout": limit},
            credential_provider=self._credentials,
        )

    @staticmethod
    @lru_cache(maxsize=32)
    def of(bucket: Bucket) -> ObjectClient:
        """The client of a bucket that this process shares, with its open connections."""
        return ObjectClient(bucket)

    def get(self, key: str, start: int | None = 0, length: int | None = None) -> Part:
        """Bytes of an object.

        Args:
            key: Key of the object.
            start: Offset of the first byte; None for the last bytes.
            length: Number of bytes, fewer at the end of the object; None for all that follow.

        Raises:
            FileNotFoundError: The object does not exist.
            PermissionError: It may not be read.
            BusyError: The store cannot answer at present.
            NotServedError: The client cannot make the request.
            OSError: The request failed otherwise.
        """
        span: Any = None
        if start is None:
            span = {"suffix": length}
        elif length is not None:
            span = (start, start + length)
        elif start:
            span = {"offset": start}
        try:
            result = self._store.get(key, options={"range": span} if span else None)
            return Part(result.bytes(), result.range[0], result.meta["size"])
        except Exception as error:  # noqa: BLE001 (the classes depend on the release)
            failure = _failure(error, key)
        # Raised here, without the first error as its context: that quotes the answer, which may contain credentials.
        raise failure

    def tagged(self, key: str) -> tuple[bytes, str | None]:
        """All bytes of an object, and its entity tag. Raises as `get`."""
        try:
            result = self._store.get(key)
            return bytes(result.bytes()), result.meta.get("e_tag")
        except Exception as error:  # noqa: BLE001 (as in `get`)
            failure = _failure(error, key)
        raise failure

    def overwrite(self, key: str, data: bytes) -> None:
        """Write an object unconditionally.

        Raises:
            PermissionError: It may not be written.
            OSError: The request failed otherwise.
        """
        try:
            self._store.put(key, data, use_multipart=False)
            return
        except Exception as error:  # noqa: BLE001 (as in `get`)
            failure = _failure(error, key)
        raise failure

    def put(self, key: str, data: bytes, tag: str | None) -> None:
        """Write an object, if the existing one has this tag; or, if the tag is None, if the object does not exist.

        Raises:
            FileExistsError: The object exists, or has another tag.
            FileNotFoundError: The object to be replaced does not exist.
            NotServedError: The store does not accept conditions.
            ConflictError: Another program is writing the object.
            PermissionError: It may not be written.
            OSError: The request failed otherwise.
        """
        if tag is not None and self.conditions.bare_tags:
            tag = tag.strip('"')
        mode: Any = "create" if tag is None else {"e_tag": tag}
        try:
            self._store.put(key, data, mode=mode, use_multipart=False)
            return
        except Exception as error:  # noqa: BLE001 (as in `get`)
            status = _STATUS.search(str(error))
            if tag is not None and status is not None and status[1] == "409":
                # S3 answers so while another program writes the object. The tag may still be right.
                failure: Exception = ConflictError(_reason(str(error)))
            elif type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
                missing = status is not None and status[1] == "404"
                failure = (FileNotFoundError if missing else FileExistsError)(errno.EEXIST, "", key)
            elif _OTHERWISE_BAD.search(str(error)):
                failure = _failure(error, key)
            elif type(error).__name__ == "NotSupportedError" or (status is not None and status[1] in _NO_CONDITIONS):
                failure = NotServedError(_reason(str(error)))
            else:
                failure = _failure(error, key)
        raise failure

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, if they exist, up to a thousand in one request.

        Raises:
            NotServedError: The store cannot delete several objects at once, or did not delete one of them.
            FileNotFoundError: The bucket does not exist.
            PermissionError: The request is forbidden.
            OSError: The request failed otherwise.
        """
        try:
            self._store.delete(list(keys))
            return
        except Exception as error:  # noqa: BLE001 (as in `get`)
            status = _STATUS.search(str(error))
            if _REFUSED_KEY.search(str(error)):
                failure: Exception = NotServedError("the store did not delete all objects")
            elif status is not None and status[1] in _NO_CONDITIONS and not _OTHERWISE_BAD.search(str(error)):
                self.deletes_together = False
                failure = NotServedError(_reason(str(error)))
            else:
                failure = _failure(error, keys[0])
        raise failure

    def _credentials(self) -> Any:
        keys = {"access_key_id": self.bucket.access_key, "secret_access_key": self.bucket.secret_key}
        return {**keys, "token": self.bucket.session_token, "expires_at": None}


def _failure(error: Exception, key: str) -> Exception:
    """The error that pypaimon's FileIO would raise for the same failure."""
    name, text = type(error).__name__, str(error)
    reason, status = _reason(text), _STATUS.search(text)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, reason, key)
    if name in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(errno.EACCES, reason)
    if isinstance(error, ValueError) or name == "InvalidPathError" or _NO_RANGE.search(text):
        return NotServedError(reason)
    if not any(each.__module__.partition(".")[0] == "obstore" for each in type(error).__mro__):
        return error
    if status is not None and (status[1].startswith("5") or status[1] == "429"):
        return BusyError(reason)
    return OSError(reason)


def _reason(text: str) -> str:
    status, code, cause = _STATUS.search(text), _CODE.search(text), _CAUSE.search(text)
    if status is not None:
        return f"HTTP status {status[1]}" + (f" ({code[1]})" if code else "")
    said = re.split(r" - |error: ", text.partition("\n")[0], maxsplit=1)[-1]
    return f"{said[:200]} ({cause[1]})" if cause else said[:200]


@cache
def unusable() -> str | None:
    """Why obstore cannot be used in this process; None if it can."""
    from importlib import metadata
    from urllib.request import getproxies

    try:
        release = metadata.version("obstore")
    except metadata.PackageNotFoundError:
        return "the extra 'fast' is not installed"
    if tuple(int(number) for number in re.findall(r"\d+", release)[:2]) < _FIRST_RELEASE:
        return f"obstore {release} is too old"
    if getproxies().keys() & {"http", "https", "all"}:
        # Arrow's client ignores proxies, obstore's would use them.
        return "the environment names a proxy"
    return None


def _is_address(host: str) -> bool:
    try:
        ip_address(re.sub(r":\d+$", "", host).strip("[]"))
    except ValueError:
        return False
    return True


forked = False
"""Whether this process was forked from one with obstore, whose threads are missing here: requests would hang."""


def _after_fork() -> None:
    global forked
    forked = forked or "obstore" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
