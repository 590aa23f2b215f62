"""`ObjectReads`: requests for objects, by the client of the extra `fast` or by the table's FileIO."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from pypaimon.streaming.io import object_client
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_client import Bucket, BusyError, ConflictError, NotServedError, ObjectClient, Part
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.paimon.internals import arrow_file_io

T = TypeVar("T")

SWITCH = "PYPAIMON_STREAMING_FAST"
"""The environment variable that turns the client off: `0`, `off`, `false` or `no`."""

_LOG = StreamLog(__name__)
_SPECIAL = "its keys are not among the options, or its settings are special"
_OVERWRITES = "it overwrites an existing file in spite of the condition not to"
_REPLACES = "it replaces a file although the condition names another entity tag"
_OTHER_TAG = '"00000000000000000000000000000000"'


class ObjectReads:
    """Reads and writes of objects by a client that needs no separate request for their size, or by the table's FileIO.

    The client serves S3-like stores that pypaimon's own FileIO classes would reach through Arrow, with keys from the
    table's options or the current token of a REST catalog. The FileIO serves everything else, including all files of a
    custom FileIO. The first request of the client that fails is repeated by the FileIO. If both miss the object, the
    client is trusted. If they disagree, and the client fails again, the FileIO serves this bucket from then on.
    Thread-safe.

    Args:
        file_io: The table's FileIO.
        timeout: Seconds that one request may take.
    """

    def __init__(self, file_io: Any, timeout: float) -> None:
        self._file_io = file_io
        self._timeout = timeout
        self._wanted = os.environ.get(SWITCH, "").strip().lower() not in ("0", "off", "false", "no")
        self._known: tuple[Any, dict[str, ObjectClient | None]] = (None, {})

    def read(self, path: str, otherwise: Callable[[], bytes]) -> bytes:
        """All bytes of an object.

        Args:
            path: The object.
            otherwise: Reads it by the FileIO.

        Raises:
            FileNotFoundError: The object does not exist.
            OSError: The request failed.
        """
        return self._ask(path, lambda client, key: bytes(client.get(key).data), otherwise)

    def part(self, path: str, start: int | None, length: int, otherwise: Callable[[], Part]) -> Part:
        """Some bytes of an object, fewer at its end.

        Args:
            path: The object.
            start: Offset of the first byte; None for the last `length` bytes.
            length: Number of bytes, at least one.
            otherwise: Reads them by the FileIO.

        Raises:
            FileNotFoundError: The object does not exist.
            OSError: The request failed.
        """
        return self._ask(path, lambda client, key: client.get(key, start, length), otherwise)

    def tagged(self, path: str, otherwise: Callable[[], tuple[bytes, str | None]]) -> tuple[bytes, str | None]:
        """All bytes of an object, and their entity tag (None if the FileIO reads them). Raises as `read`."""
        return self._ask(path, lambda client, key: client.tagged(key), otherwise)

    def put(self, path: str, data: bytes, tag: str | None, create: bool, otherwise: Callable[[], None]) -> None:
        """Write an object, if it does not exist (`create`), or if the existing one has this tag.

        Args:
            path: The object.
            data: The content.
            tag: Tag of the object that is replaced; None if it is not known, and for a new object.
            create: Whether the object is new.
            otherwise: Writes it by the FileIO, if the store ignores conditions.

        Raises:
            FileExistsError: The object exists, or has another tag.
            FileNotFoundError: The object to be replaced does not exist.
            OSError: The request failed.
        """
        served = self._comparing(path) if create or tag else None
        if served is None:
            otherwise()
            return
        client, key = served
        _put(client, key, data, None if create else tag)
        client.conditions.bare_tags |= tag is not None and not tag.endswith('"')

    def write(self, path: str, data: bytes, otherwise: Callable[[], None]) -> None:
        """Write an object unconditionally, in one request; the FileIO needs three.

        Args:
            path: The object.
            data: The content.
            otherwise: Writes it by the FileIO.

        Raises:
            OSError: The request failed.
        """
        served = self._client(path)
        if served is None or not served[0].trusted:
            otherwise()
            return
        client, key = served
        with one_request():
            client.overwrite(key, data)

    def deletes_together(self, path: str) -> bool:
        """Whether `delete` may take several objects of this bucket in one request."""
        served = self._client(path)
        return served is not None and served[0].trusted and served[0].deletes_together

    def delete(self, paths: Sequence[str]) -> bool:
        """Delete objects of one bucket in one request; the FileIO needs four for each.

        Args:
            paths: The objects, at least one.

        Returns:
            Whether all are gone. False: the client or the store cannot delete them together, or the store refused to
            delete one of them. Then each has to be deleted by the FileIO, whose error names the object.

        Raises:
            OSError: The request failed.
        """
        if not self.deletes_together(paths[0]):
            return False
        served = [self._client(path) for path in paths]
        keys = [each[1] for each in served if each is not None]
        if served[0] is None or len(keys) < len(paths):
            return False
        try:
            with one_request():
                served[0][0].delete(keys)
        except (NotServedError, FileNotFoundError):
            return False
        return True

    def serves(self, path: str) -> bool:
        """Whether the client serves a path. Makes no request."""
        return self._client(path) is not None

    def creates(self, path: str) -> bool:
        """Whether `create` works there. The first call of a process for a bucket probes it with four requests,
        and once more if it refuses one.

        Raises:
            OSError: The store could not be probed.
        """
        return self._comparing(path) is not None

    def known_to_create(self, path: str) -> bool | None:
        """As `creates`, without a request; None if the bucket was not probed yet."""
        served = self._client(path)
        return False if served is None or not served[0].trusted else served[0].conditions.heeded

    def why_not_created(self, path: str) -> str:
        """Why `create` does not work there."""
        if arrow_file_io(self._file_io, path) is None:
            return "no client here can make conditional writes to it"
        served = self._client(path)
        if served is not None:
            return served[0].conditions.why_not or "it was not read yet"
        if not self._wanted:
            return f"the variable {SWITCH} turns the extra 'fast' off"
        return object_client.unusable() or _SPECIAL

    def create(self, path: str, data: bytes) -> bool | None:
        """Write an object if it does not exist, in one conditional request.

        Returns:
            Whether it was written; None if that is not possible there, and no request was made.

        Raises:
            OSError: The request failed; the object may have been written.
        """
        served = self._comparing(path)
        if served is None:
            return None
        try:
            _put(*served, data, None)
        except FileExistsError:
            return False
        return True

    def _comparing(self, path: str) -> tuple[ObjectClient, str] | None:
        """The client that serves a path, and its key, if the store heeds conditions."""
        served = self._client(path)
        if served is None or not served[0].trusted:
            return None
        conditions = served[0].conditions
        if conditions.heeded is None:
            # A store that does not know conditions may report success and overwrite. So the first conditional
            # write waits for a probe, an object of its own in the same directory.
            with conditions.probing.held:
                if conditions.heeded is None:
                    why_not = self._probe(*served, path)
                    # One refusal of a gateway in trouble must not decide for the life of the process. That something
                    # was replaced against the condition is a proof.
                    if why_not not in (None, _OVERWRITES, _REPLACES):
                        why_not = self._probe(*served, path)
                    if why_not is None:
                        conditions.heeded = True
                    else:
                        _note_ignored(served[0], why_not)
        return served if conditions.heeded else None

    def _probe(self, client: ObjectClient, key: str, path: str) -> str | None:
        """How the store ignores conditions; None if it heeds them."""
        name = f".probe-{uuid4().hex}"
        probe = f"{path.rpartition('/')[0]}/{name}"
        try:
            return _ignored(client, "/".join((*key.split("/")[:-1], name)))
        finally:
            try:
                if not self.delete([probe]):
                    self._file_io.delete(probe)
            except OSError as error:
                _LOG.debug("store_client", "%(probe)s could not be deleted: %(reason)s", probe=probe, reason=str(error))

    def _ask(self, path: str, request: Callable[[ObjectClient, str], T], otherwise: Callable[[], T]) -> T:
        served = self._client(path)
        if served is None:
            return otherwise()
        client, key = served
        try:
            answer = request(client, key)
        except NotServedError:
            with one_request():
                return otherwise()
        except OSError as error:
            if client.trusted or isinstance(error, BusyError):
                raise
            return _second_opinion(client, error, partial(request, client, key), otherwise)
        client.trusted = True
        return answer

    def _client(self, path: str) -> tuple[ObjectClient, str] | None:
        """The client that serves a path, and the key of its object; None if the FileIO does."""
        if not self._wanted or object_client.forked:
            return None
        arrow = arrow_file_io(self._file_io, path)
        if arrow is None:
            return None
        bucket, _, key = arrow.to_filesystem_path(path).partition("/")
        system, clients = self._known
        if system is not arrow.filesystem:
            # A new token of a REST catalog comes with a new file system.
            self._known = system, clients = arrow.filesystem, {}
        if bucket not in clients:
            clients[bucket] = _client_of(system, bucket, self._timeout)
        client = clients[bucket]
        # The client would drop slashes at either end of a key.
        fits = client is not None and not client.given_up and key.strip("/") == key != ""
        return (client, key) if client is not None and fits else None


def _client_of(file_system: Any, name: str, timeout: float) -> ObjectClient | None:
    reason = object_client.unusable()
    bucket = None if reason else Bucket.of(file_system, name, timeout)
    if bucket is not None:
        try:
            client = ObjectClient.of(bucket)
        except Exception as error:  # noqa: BLE001 (the FileIO serves the bucket then)
            reason = f"obstore refuses its settings ({type(error).__name__})"
        else:
            _LOG.debug("store_client", "%(bucket)s is read by the client of the extra 'fast'", bucket=name, reason=None)
            return client
    reason = reason or _SPECIAL
    _LOG.debug("store_client", "%(bucket)s is read by the table's FileIO: %(reason)s", bucket=name, reason=reason)
    return None


def _put(client: ObjectClient, key: str, data: bytes, tag: str | None) -> None:
    """As `ObjectClient.put`, in a store that has heeded conditions: one that refuses them now has failed.

    Without the condition the write could replace what another program has written by one.
    """
    try:
        with one_request():
            client.put(key, data, tag)
    except NotServedError as refused:
        text = f"the store refuses a condition on a write, though it heeded conditions before ({refused})"
        raise OSError(f"{text}; if it does not know them any more, start the program again") from refused


def _ignored(client: ObjectClient, key: str) -> str | None:
    """How a store ignores conditions; None if it heeds them."""
    try:
        try:
            with one_request():
                client.put(key, b"probe", None)
        except FileExistsError as error:
            # Only a concurrent write of the same key explains that, and the key is unique: ask again.
            raise OSError(f"{key}: the store refuses to create it, although no such object can be there") from error
        for tag, why_not in ((None, _OVERWRITES), (_OTHER_TAG, _REPLACES)):
            try:
                with one_request():
                    client.put(key, b"another", tag)
            except (FileExistsError, FileNotFoundError, ConflictError):
                continue  # Nobody else writes the object, so a conflict is a refusal, too.
            return why_not
    except NotServedError as refused:
        return str(refused)
    return None


def _note_ignored(client: ObjectClient, why: str) -> None:
    client.conditions.note_ignored(why)
    text = (
        "%(bucket)s ignores conditions on writes (%(reason)s): only one program at a time may write a table there, and "
        "a late write may undo the progress that a reader has saved"
    )
    _LOG.warning("store_unconditional", text, bucket=client.bucket.name, reason=why)


def _second_opinion(client: ObjectClient, error: OSError, again: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """Repeat a failed request by the FileIO, and decide which of the two serves the bucket from now on."""
    absent: FileNotFoundError | None = None
    try:
        with one_request():
            answer = otherwise()
    except FileNotFoundError as missing:
        if isinstance(error, FileNotFoundError):
            client.trusted = True
            raise
        absent = missing
    # The client asks once more: the object may have been written between the two requests, or a connection was reset.
    # Without the client, writes have no conditions.
    agrees: bool | None = True
    try:
        answer, absent = again(), None
    except FileNotFoundError:
        agrees = absent is not None
    except BusyError:
        agrees = None  # A store that is busy decides nothing.
    except (OSError, NotServedError):
        agrees = False
    if agrees:
        client.trusted = True
    elif agrees is False:
        _give_up(client, error)
    if absent is not None:
        raise absent
    return answer


def _give_up(client: ObjectClient, error: OSError) -> None:
    client.given_up = True
    text = "%(bucket)s is read by the table's FileIO from now on: the client of the extra 'fast' failed: %(reason)s"
    _LOG.warning("store_client_left", text, bucket=client.bucket.name, reason=str(error))
