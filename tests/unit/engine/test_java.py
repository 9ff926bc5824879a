"""Which Java is good enough, and the one sentence where none is."""

from pathlib import Path

import pytest

from headrace.engine.spark.java import check_java, install_command, java_version
from headrace.errors import HeadraceError


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_major_version_is_read_from_every_form(line: str, version: int | None) -> None:
    assert java_version(line) == version


def java_at(home: Path, version: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_a_recent_java_passes_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_at(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_at(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(HeadraceError, match="17 or newer, but .* is Java 11: install it with `"):
        check_java()


def test_no_java_at_all_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HeadraceError) as caught:
        check_java()
    assert str(caught.value) == (
        "Spark needs Java 17 or newer, but none is on the PATH: "
        f"install it with `{install_command()}`."
    )


def test_the_command_suits_the_package_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command() == "sdk install java 17-tem"
    (tmp_path / "dnf").write_text("#!/bin/sh\n")
    (tmp_path / "dnf").chmod(0o755)
    assert install_command().endswith("dnf install java-21-openjdk-headless")
