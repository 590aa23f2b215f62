"""`Endpoint`: the server that a catalog's options name, and what is wrong with a connection to it."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies

S3_SCHEMES = ("s3", "s3a", "s3n")
_AWS = "AWS, because s3.endpoint is not given"
_LOOK_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_AWS_REGION = re.compile(r"(?:[a-z]{2}|us-gov|cn)-[a-z]+-\d")
_ENDPOINTS = {
    **dict.fromkeys(S3_SCHEMES, ("fs.s3.endpoint", "s3.endpoint", "s3a.endpoint")),
    "oss": ("fs.oss.endpoint",),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server that has to answer.

    Attributes:
        key: The option that names it.
        host: The host; None if the address is not one of a server.
        bucket: The bucket whose name the clients put before the host; None if they do not.
    """

    key: str
    address: str
    host: str | None
    port: int
    bucket: str | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> Endpoint:
        """The endpoint of a catalog: of its server, or of its store; otherwise the warehouse."""
        warehouse = options.get("warehouse", "")
        scheme, _, rest = warehouse.partition("://")
        is_served = options.get("metastore", "filesystem") != "filesystem"
        keys = ("uri",) if is_served else _ENDPOINTS.get(scheme, ())
        key = next((key for key in keys if key in options), "warehouse")
        text = options.get(key, "")
        if key == "warehouse" and scheme in S3_SCHEMES and not is_served:
            key, text = _of_environment(options) or (key, text)
        if "://" not in text and (key.endswith(".endpoint") or options.get("metastore") == "rest"):
            # As their clients read it.
            text = f"http://{text}" if key == "uri" else f"https://{text}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            return Endpoint(key, text, None, 0)
        if parts.scheme not in _PORTS or host is None:
            return Endpoint(key, text, None, 0)
        address = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
        styles = (
            f"{family}.{name}" for family in ("s3", "fs.s3") for name in ("path-style-access", "path.style.access")
        )
        before_host = key != "uri" and not _is_address(host) and not any(_is_on(options.get(each)) for each in styles)
        bucket = rest.partition("/")[0] if before_host else None
        return Endpoint(key, address, host, port or _PORTS[parts.scheme], bucket)

    def __str__(self) -> str:
        return f"{self.address} ({self.key})"

    def problem(self) -> str | None:
        """Why nothing can be read there, and what to do; None if a connection succeeds, or cannot be tried."""
        if self.host is None or (self.key == "uri" and getproxies()):
            return None
        try:
            with closing(socket.create_connection((self.host, self.port), _LOOK_SECONDS)) as connection:
                if self.address.startswith("https:"):
                    _greet(connection, self.host)
        except ssl.SSLError:
            return f"it does not speak TLS; give {self.key} as http://{self.host}:{self.port}"
        except TimeoutError:
            return f"no connection within {_LOOK_SECONDS:g} s; {self._remedy}"
        except OSError as error:
            return f"{error.strerror or error}; {self._remedy}"
        return self._problem_of_bucket()

    @property
    def _remedy(self) -> str:
        if self.key == _AWS:
            return "give s3.endpoint and s3.path-style-access=true for another store, or a network that reaches AWS"
        return f"correct {self.key}, or start what serves there"

    def _problem_of_bucket(self) -> str | None:
        if self.bucket and self.key.startswith(("s3", "fs.s3")):
            try:
                socket.getaddrinfo(f"{self.bucket}.{self.host}", self.port)
            except OSError:
                return f"there is no host {self.bucket}.{self.host}; set s3.path-style-access=true"
        return None

    def state(self) -> str:
        """The result of a connection to it, to end a sentence; empty if it cannot be tried."""
        if self.host is None:
            return ""
        problem = self.problem()
        return f": {problem}" if problem else ": it accepts connections, but does not answer"


def _greet(connection: socket.socket, host: str) -> None:
    """Raise ssl.SSLError if a server does not speak TLS. The client says whether it trusts its certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection, server_hostname=host).close()
    except TimeoutError as error:
        # It waits for the end of a line, which the greeting holds by chance only.
        raise ssl.SSLError(str(error)) from error
    except ssl.SSLError as error:
        if isinstance(error, ssl.SSLEOFError) or error.reason in _NO_TLS:
            raise


def _of_environment(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Where S3's client turns to without an option: what names the endpoint, and its address; None if not known."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if text := os.environ.get(name):
            return name, text
    given = (options.get(key) for key in ("fs.s3.region", "s3.region", "s3a.region"))
    region = next(
        filter(None, (*given, os.environ.get("AWS_REGION"), os.environ.get("AWS_DEFAULT_REGION"))), "us-east-1"
    )
    if not _AWS_REGION.fullmatch(region):
        return None
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return _AWS, f"https://s3.{region}.{domain}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() == "true"
