"""The Java that tests run on, whether the machine has one or not."""

from __future__ import annotations

import subprocess

import pytest

from support.java.home import OLDEST, installed_java_home, java_home, java_version

pytestmark = pytest.mark.slow


def test_there_is_a_java_on_every_machine() -> None:
    assert java_version(java_home() / "bin" / "java") >= OLDEST


def test_an_installed_java_starts_although_spark_asks_for_a_module_that_it_lacks() -> None:
    java = installed_java_home() / "bin" / "java"
    assert java_version(java) >= OLDEST
    arguments = ["--add-modules=jdk.incubator.vector", "-Dgreeting=two words", "-XshowSettings:properties", "-version"]
    report = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert "greeting = two words" in report.stderr
