"""The matrix: the tests on each supported Python, pyarrow, pandas, numpy, PySpark, PyTorch and Ray (`make matrix`).

Not every combination: a row takes one version of each, so that every supported one is met. PySpark asks for pandas 2.2
and pyarrow 18, so its tests run in the rows that have both. pypaimon asks for pyarrow <20, which a row overrides.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"

ROWS = [
    nox.param(
        "3.10",
        "pyarrow==16.* pandas==1.5.* numpy==1.24.* torch==2.4.* torchdata==0.10.* ray[data]==2.49.*",
        id="oldest",
    ),
    nox.param("3.11", "pyarrow==17.* pandas==2.1.* numpy==1.26.*", id="numpy-1"),
    nox.param("3.12", "pyarrow==18.* pandas==2.2.* numpy==2.0.* pyspark==4.2.*", id="spark-4.2"),
    nox.param("3.13", "pyarrow==19.* pandas==2.3.* numpy>=2.3 pyspark==4.3.*", id="newest-of-pypaimon"),
    nox.param("3.11", "pyarrow>=26 pandas==2.3.* pyspark==4.3.*", id="newest-pyarrow"),
    nox.param("3.14", "pyarrow>=26 pandas==2.3.* pyspark==4.3.*", id="python-3.14"),
]
# They test the repository, the documentation or Java, not what a user has installed.
OF_THE_REPOSITORY = ["docs", "notebooks", "packaging", "readme", "differential", "demo", "contributing"]


@nox.session
@nox.parametrize("python,versions", ROWS)
def matrix(session: nox.Session, versions: str) -> None:
    """The tests with one row's versions; what follows `--` goes to pytest."""
    pinned = versions.split()
    overrides = Path(session.create_tmp(), "overrides.txt")
    overrides.write_text("\n".join(pinned))
    session.install("--override", str(overrides), "--editable", ".[cli,spark,test-feeds]", *pinned)
    ignored = [f"pypaimon/tests/*/{name}_test.py" for name in OF_THE_REPOSITORY]
    if "pyspark" not in versions:
        ignored.append("pypaimon/tests/spark/*")  # others drive the source without Spark
    if "pyarrow==16" in versions or "pyarrow==17" in versions:
        ignored.append("pypaimon/tests/*/iceberg_target_test.py")  # pyiceberg asks for pyarrow 18
    command = ["python", "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup", "--no-loadscope-reorder"]
    command += ["-m", "not nightly"]
    session.run(*command, *(f"--ignore-glob={name}" for name in ignored), *session.posargs)
