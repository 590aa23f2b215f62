"""What depends on the version of pyarrow that is installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow
import pytest
from packaging.version import Version

from pypaimon.streaming.errors import UnsupportedTableError

FAR_ARE_REFUSED = Version(pyarrow.__version__) >= Version("25")
"""Timestamps of ORC before 1677 or after 2262."""

refused_by_pyarrow = pytest.mark.xfail(FAR_ARE_REFUSED, reason="pyarrow 25 and later refuse them: a documented limit")
"""A test that reads them beside much else."""


def read_or_refused() -> AbstractContextManager[Any]:
    """Around a read of such timestamps, with what compares them."""
    if not FAR_ARE_REFUSED:
        return nullcontext()
    return pytest.raises(UnsupportedTableError, match=r"beyond Arrow's nanoseconds: pyarrow .* does not read it")


ends_with_s3_in_flight = pytest.mark.xfail(
    not Version("18") <= Version(pyarrow.__version__) < Version("21"),
    reason="other versions crash, or wait, at exit while a request of their S3 client hangs: a documented limit",
    strict=False,
)
"""A test in which a program ends while a request of pyarrow's S3 client is under way."""
