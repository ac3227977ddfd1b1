"""The README's agent runs as it stands, and its commands exist."""

import re
import subprocess
import sys

import pytest

from harness import DEADLINE, ROOT, clean_environment, sealbus, wait_for

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_agents_in_the_readme_run_by_themselves(program, tmp_path):
    assert len(program.strip().splitlines()) <= 30
    file = tmp_path / "agents.py"
    # The answers come on a busy machine, too.
    file.write_text(program.replace("timeout=5)", "timeout=60)"))
    done = subprocess.run(
        [sys.executable, file],
        capture_output=True,
        env=clean_environment(),
        cwd=tmp_path,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b" offers " in done.stdout, done.stdout + done.stderr


def test_the_same_file_runs_on_the_platform_of_the_readme(platform):
    program, *_ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (manifest,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    shops = platform(manifest.replace('"python"', '"PYTHON"'))
    (shops.directory / "books.py").write_text(program.replace("timeout=5)", "timeout=60)"))
    shops.up()
    wait_for(
        lambda: "seller@bookshops offers" in shops.tell("logs", "buyer", expect=None).stdout.decode(),
        "the seller's offer",
        also=shops.logs,
    )
    pids = {name: agent["process"] for name, agent in shops.agents().items()}
    assert pids["seller"] != pids["buyer"]


def test_the_commands_in_the_readme_exist():
    commands = set(re.findall(r"`sealbus ([a-z]+(?: [a-z]+)?)", README))
    assert commands
    for command in commands:
        words = command.split()
        nested = words[0] in ("ca", "df", "acl", "describe")
        text = sealbus(*words[: 2 if nested else 1], "--help").stdout
        assert b"Usage" in text


def test_the_files_the_readme_points_to_exist():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target
