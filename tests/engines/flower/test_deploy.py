"""The files of deploy/, by which machines start a server or a site, against the commands and docs/sites.md."""

import re
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from fedaction.cli import app
from tests.engines.flower.processes import ROOT

SITES = {"clinic", "gym", "home"}


def test_units_of_systemd_are_sound(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze here")
    for name in ("fedaction-server.service", "fedaction-site@.service"):
        text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
        assert text.count("/opt/fedaction/bin/fedaction ") == 1
        unit = tmp_path / name.replace("@.", "@gym.")
        unit.write_text(text.replace("/opt/fedaction/bin/fedaction ", "/bin/true "))
        done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        broken = tmp_path / "broken.service"
        broken.write_text(unit.read_text().replace("NoNewPrivileges", "NoNewPrivilege"))
        done = subprocess.run([program, "verify", str(broken)], capture_output=True, text=True, check=False)
        assert "NoNewPrivilege" in done.stderr  # it would say so
        command = [program, "security", "--offline=true", "--threshold=30", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-500:]


def test_commands_of_units_and_containers_are_those_that_there_are():
    """Every option that they name is one of the command's, and what is said of --resume holds."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "deploy").iterdir()) if path.is_file()]
    lines = [line for text in texts for line in text.splitlines() if re.search(r"\b(serve|join)\b .*--", line)]
    assert len(lines) == 6
    known = {
        verb: set(re.findall(r"--[a-z]+", CliRunner().invoke(app, [verb, "--help"]).stdout))
        for verb in ("serve", "join")
    }
    for line in lines:
        verb = "serve" if "serve " in line else "join"
        assert set(re.findall(r"--[a-z]+", line)) <= known[verb], line


def test_containers_have_no_root_and_write_their_state_alone():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Flower and with pre-commit")
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {"server", *SITES}
    text = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    targets = re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE)
    assert '"/source[flower,video]"' in text  # what any site's data need
    for name, service in services.items():
        assert (
            service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "${FEDACTION_UID:-10001}"
        )
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["build"]["target"] in targets and (ROOT / service["build"]["dockerfile"]).is_file()
        assert service["restart"] == ("on-failure" if name == "server" else "always")
        writable = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
        assert writable == [f"./state/{name}:/var/lib/fedaction"] and "--keys /config/keys" in service["command"]
