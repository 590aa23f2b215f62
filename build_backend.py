"""Builds with setuptools; an editable install also gets the file by which Spark finds `format("pypaimon")`.

Spark looks for modules named `pyspark_*` in the directories of the Python path, and does not see those of the import
hook that an editable install consists of.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 (the other hooks of a build backend)

_MODULE = "pyspark_pypaimon.py"


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    name = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    _add(Path(wheel_directory, name), Path(_MODULE))
    return name


def _add(wheel: Path, module: Path) -> None:
    with zipfile.ZipFile(wheel) as built:
        parts = {name: built.read(name) for name in built.namelist()}
    record = next(name for name in parts if name.endswith(".dist-info/RECORD"))
    recorded, data = parts.pop(record), module.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    recorded += f"{module.name},sha256={digest},{len(data)}\n".encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as changed:
        for name, part in {**parts, module.name: data, record: recorded}.items():
            changed.writestr(name, part)
