"""Why a server cannot be had is said in the words of the command that failed."""

import pytest

from headrace.bench.servers import processes
from headrace.bench.servers.processes import CannotHave, installed, run


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo '[ERROR] no such jar'; echo '[ERROR] see the manual'; exit 1", "no such jar"),
        ("echo said; echo no room >&2; exit 1", "no room"),
        ("echo half; echo broken; exit 1", "half\nbroken"),
        ("exit 3", "exit status 3"),
    ],
)
def test_the_reason_is_what_the_command_said(tmp_path, monkeypatch, script, reason):
    monkeypatch.setattr(processes, "CACHE", tmp_path)
    with pytest.raises(CannotHave) as error:
        installed("server-1", lambda home: run("sh", "-c", script))
    assert str(error.value).startswith("server-1 cannot be installed: ")
    assert reason in str(error.value) and "manual" not in str(error.value)
    assert installed("server-1", lambda home: None).is_dir()
