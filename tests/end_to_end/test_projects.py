"""`sealbus new`: each template runs by itself, under `sealbus up`, and in its tests; its types are right."""

import json
import os
import subprocess
import sys

import pytest
from harness import DEADLINE, ROOT, SEALBUS, Platform, clean_environment, sealbus, wait_for

TEMPLATES = {
    "books": ("buyer", "offers Middlemarch for 12 euros"),
    "sensors": ("dashboard", "kitchen"),
    "painters": ("owner", "painter-2 has painted it for 720 euros"),
}
HERE = os.pathsep.join([os.path.dirname(sys.executable), str(SEALBUS.parent), os.environ["PATH"]])


def run(project, *command):
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=project, env=clean_environment({"PATH": HERE}), timeout=DEADLINE * 4, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=TEMPLATES)
def project(request, tmp_path):
    told = sealbus("new", tmp_path / "shop", "--template", request.param, "--json")
    assert json.loads(told.stdout)["platform"] == "shop"
    return request.param, tmp_path / "shop"


def test_a_template_runs_in_one_program_and_passes_its_tests(project):
    template, folder = project
    assert TEMPLATES[template][1] in run(folder, sys.executable, "agents.py")
    assert " passed" in run(folder, sys.executable, "-m", "pytest", "-q")
    run(folder, sys.executable, "-m", "mypy", "--strict", "agents.py", "test_agents.py")


def test_a_template_runs_as_processes(project):
    template, folder = project
    agent, said = TEMPLATES[template]
    shop = Platform(folder, (folder / "platform.toml").read_text())
    try:
        shop.master = shop.program(SEALBUS, "up", "--state", shop.state, shop.manifest, name="up", environment={"PATH": HERE})
        wait_for(
            lambda: said in sealbus("logs", agent, "--state", shop.state, expect=None).stdout.decode(),
            f"{agent} to print {said!r}",
            also=shop.logs,
        )
    finally:
        shop.down()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "notes").write_text("mine")
    assert b"not empty" in sealbus("new", tmp_path / "shop", expect=2).stderr
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["notes"]
    assert sealbus("new", tmp_path / "not legal@all", expect=2).stderr
    assert sealbus("new", tmp_path / "shop", "--template", "cars", expect=2).stderr


def test_the_templates_of_the_command_line_are_those_of_the_tests():
    folders = {path.name for path in (ROOT / "crates" / "cli" / "templates").iterdir() if path.is_dir()}
    assert folders == TEMPLATES.keys()
