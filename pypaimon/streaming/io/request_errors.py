"""`translated`: the error of this package for a failed request."""

from __future__ import annotations

import errno
import re

from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, StoreError

_AWS_CODE = re.compile(r"AWS Error ([A-Z_]+)")
_REFUSED_CODES = frozenset(
    (
        "ACCESS_DENIED",
        "INVALID_ACCESS_KEY_ID",
        "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN",
        "NO_SUCH_BUCKET",
        "OPT_IN_REQUIRED",
        "SIGNATURE_DOES_NOT_MATCH",
        "UNRECOGNIZED_CLIENT",
    )
)
_REFUSED = re.compile(
    r"HTTP status:? (?:401|403)\b|\b(?:AccessDenied|InvalidAccessKeyId|NoSuchBucket|SignatureDoesNotMatch)\b", re.I
)
_MISSING_CODES = frozenset(("NO_SUCH_KEY", "RESOURCE_NOT_FOUND"))
_MISSING = re.compile(r"HTTP status:? 404\b|\bNoSuchKey\b", re.I)
_REFUSED_NUMBERS = frozenset(
    (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP)
)
_FULL_NUMBERS = frozenset((errno.ENOSPC, errno.EDQUOT))
# S3 answers a HEAD without a body, so only the status is known.
_ENDED = re.compile(r"ExpiredToken|RequestExpired|TokenRefreshRequired|token .{0,20}expired|HTTP status:? 400\b", re.I)


def translated(path: str, error: OSError) -> FileNotFoundError | StoreError | CorruptTableError:
    """The error for a failed request: file not found, access refused, timed out, or a failure that may pass."""
    if isinstance(error, FileNotFoundError):
        return error
    if isinstance(error, IOTimeoutError):
        return _at(path, IOTimeoutError(f"{path}: {error}"))
    if isinstance(error, (StoreError, CorruptTableError)):
        return error
    message = str(error)
    code = _AWS_CODE.search(message)
    if (code is not None and code[1] in _MISSING_CODES) or _MISSING.search(message):
        return FileNotFoundError(errno.ENOENT, message, path)
    refused = isinstance(error, PermissionError) or error.errno in _REFUSED_NUMBERS
    if refused or (code is not None and code[1] in _REFUSED_CODES) or _REFUSED.search(message):
        return CorruptTableError(path, f"may not be read or written ({error}); check the credentials and permissions")
    return _at(path, StoreError(f"{path}: the store failed repeatedly: {error}{_hint(error)}"))


def place_of(path: str) -> str:
    """The bucket, the file system or the first two directories of a path, which the errors of one outage share."""
    return "/".join(path.split("/", 3)[:3])


def _at(path: str, error: StoreError) -> StoreError:
    error.place = place_of(path)
    return error


def _hint(error: OSError) -> str:
    if error.errno in _FULL_NUMBERS:
        return "; no space is left: free some, or have the quota raised, and try again"
    if _ENDED.search(str(error)):
        return "; stores answer this when credentials have expired: give the catalog new ones, and open the table again"
    return ""
