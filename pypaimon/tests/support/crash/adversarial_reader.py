"""Reads damaged files in a process of its own, so that a test sees whether it lives on.

Run with a pickled `Samples`. A line is printed before each sample, and one for each that came to something else than
all rows or a typed error.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pypaimon import CatalogFactory

from pypaimon.streaming import PaimonStreamError
from pypaimon.streaming.formats import record_files
from pypaimon.streaming.model.plan import SplitMode
from support import programs
from support.repository import program
from support.tables.stream_files import meta, reader, split

MEMORY = 4 << 30
SECONDS = 20
PATIENCE = 600
"""Seconds after which, and one more for each sample, a process that has not ended hangs."""


@dataclass(frozen=True)
class Samples:
    """Files to be read.

    Attributes:
        warehouse: Where the table `db.t` is.
        name: The file's name in the table; a manifest if it has no suffix.
        contents: What the file holds, one time after the other.
    """

    warehouse: str
    name: str
    rows: int
    contents: list[bytes]


def oddities(samples: Samples, directory: Path) -> list[str]:
    """What came to something else than rows or a typed error; also the end of the process, and what it printed."""
    path = directory / "samples"
    path.write_bytes(pickle.dumps(samples))
    command = program("support.crash.adversarial_reader", str(path))
    try:
        limit = PATIENCE + len(samples.contents)
        done = programs.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as error:
        return [f"no end after {(error.stdout or b'').decode().splitlines()[-1:]}"]
    lines = done.stdout.splitlines()
    odd = [line for line in lines if not line.startswith("sample ")]
    if done.returncode:
        odd.append(f"exit code {done.returncode} after {lines[-1:]}: {done.stderr[-2000:]}")
    if "panicked" in done.stderr:
        odd.append(done.stderr[-2000:])
    return odd


def main(path: str) -> None:
    with open(path, "rb") as file:
        samples: Samples = pickle.load(file)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    table = CatalogFactory.create({"warehouse": samples.warehouse}).get_table("db.t")
    data_file = Path(str(table.table_path)) / "bucket-0" / samples.name
    data_file.parent.mkdir(exist_ok=True)
    read = reader(table)
    for number, content in enumerate(samples.contents):
        print("sample", number, flush=True)
        started = time.process_time()
        try:
            if data_file.suffix:
                data_file.write_bytes(content)
                found = read.to_arrow([split(SplitMode.ROWS, [meta(data_file, samples.rows)])]).num_rows
                if found != samples.rows:
                    print(f"{number}: {found} rows")
            else:
                record_files.parse(content)
        except PaimonStreamError:
            pass
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
            # The store makes a CorruptTableError of a ValueError.
            if data_file.suffix or not isinstance(error, ValueError):
                print(f"{number}: {error!r}")
        if time.process_time() - started > SECONDS:
            print(f"{number}: took more than {SECONDS} seconds of a processor")


if __name__ == "__main__":
    main(sys.argv[1])
