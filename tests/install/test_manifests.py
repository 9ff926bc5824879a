"""The files that the deployment guides offer: valid, and naming commands and options that exist."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.test_commands import check_options
from tests.spark.support import ROOT

ASSETS = ROOT / "docs" / "assets" / "deploy"
UNIT = ASSETS / "headrace@.service"


def manifest() -> dict[str, Any]:
    text = (ASSETS / "kubernetes.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("path", [*ASSETS.glob("*.y*ml"), ROOT / "mkdocs.yml"], ids=str)
def test_every_yaml_file_is_valid(path: Path) -> None:
    assert all(isinstance(each, dict) for each in yaml.safe_load_all(path.read_text()))


def test_the_parts_of_the_manifest_name_each_other() -> None:
    parts = manifest()
    assert set(parts) == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment"}
    account = parts["ServiceAccount"]["metadata"]["name"]
    binding = parts["RoleBinding"]
    assert binding["roleRef"]["name"] == parts["Role"]["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account
    deployment = parts["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert pod["serviceAccountName"] == account
    [volume] = pod["volumes"]
    assert volume["configMap"]["name"] == parts["ConfigMap"]["metadata"]["name"]
    [container] = pod["containers"]
    assert [each["name"] for each in container["volumeMounts"]] == [volume["name"]]
    settings = dict(
        line.split(None, 1)
        for line in parts["ConfigMap"]["data"]["spark-defaults.conf"].splitlines()
        if not line.startswith("#")
    )
    assert all(name.startswith("spark.") for name in settings)
    assert settings["spark.kubernetes.container.image"] == container["image"]


def test_the_command_of_the_manifest_exists() -> None:
    [container] = manifest()["Deployment"]["spec"]["template"]["spec"]["containers"]
    program, *words = container["command"]
    assert program == "headrace"
    given = [part for word in container["args"] for part in word.split("=", 1)[:1]]
    check_options([*words, *given], "kubernetes.yaml")
    assert {"--standby", "--supervised"} <= set(container["args"])
    used = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
    assert used <= {each["name"] for each in container["env"]}
    code = container["livenessProbe"]["exec"]["command"][-1]
    ast.parse(code)
    assert "/healthz" in code


def test_the_command_of_the_unit_exists() -> None:
    [line] = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    program, *words = line.split()
    assert program.endswith("/bin/headrace")
    env = dict(
        each.split("=", 1)
        for each in (ASSETS / "orders.env").read_text().splitlines()
        if each and not each.startswith("#")
    )
    filled = [word for word in words if not word.startswith("$")] + env["OPTIONS"].split()
    check_options(filled, line)
    used = set(re.findall(r"\$\{?(\w+)", line))
    assert used <= set(env)
    assert "KillMode=mixed" in UNIT.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # Its program and its user are not on this machine; everything else is as it is shipped.
    program = tmp_path / "headrace"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = UNIT.read_text().replace("/srv/headrace/venv/bin/headrace", str(program))
    unit = tmp_path / "headrace@orders.service"
    unit.write_text(text.replace("User=headrace", "User=root"))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    about = [line for line in said.stderr.splitlines() if "headrace@orders" in line]
    assert said.returncode == 0 and about == [], said.stderr


def test_the_program_for_spark_submit_is_the_command() -> None:
    tree = ast.parse((ASSETS / "submit.py").read_text())
    assert "from headrace.cli.main import main" in ast.unparse(tree)
