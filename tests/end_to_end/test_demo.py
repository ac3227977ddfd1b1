"""The demo, with the binary under test: the whole idea at once."""

import json
import sys

from harness import SEALBUS, clean_environment

import subprocess


def test_the_demo_loses_nothing_and_refuses_every_attack(tmp_path):
    report = tmp_path / "report.json"
    done = subprocess.run(
        [SEALBUS, "demo", "--python", sys.executable, "--report", report, "--json"],
        capture_output=True,
        env=clean_environment(),
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    told = json.loads(report.read_text())
    assert told == json.loads(done.stdout)
    assert set(told) == {"nodes", "agents", "certificates", "levels", "refusals"}
    assert told["nodes"] == 2 and told["agents"] == 20 and told["certificates"] >= 20
    assert [each["level"] for each in told["levels"]] == ["none", "tls", "auth"]
    for level in told["levels"]:
        assert level["pairs"] == 10
        assert level["sent"] == level["received"] == 5000
        assert 0 < level["latency_p50_us"] <= level["latency_p99_us"]
        assert level["throughput_per_s"] > 0
    assert len(told["refusals"]) == 4
    for refusal in told["refusals"]:
        assert refusal["refused"] is True and refusal["reason"] and refusal["attack"]
    assert len({refusal["reason"] for refusal in told["refusals"]}) == 4, "each its own reason"


def test_one_level_alone(tmp_path):
    report = tmp_path / "report.json"
    done = subprocess.run(
        [SEALBUS, "demo", "--level", "none", "--python", sys.executable, "--report", report],
        capture_output=True,
        env=clean_environment(),
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    assert [each["level"] for each in json.loads(report.read_text())["levels"]] == ["none"]
    text = done.stdout.decode()
    assert "Try next" in text and "sealbus up" in text
    # It says what happens and why: at this level, and not at others.
    assert "Plain TCP" in text and "yellow pages" in text and "four programs attack" not in text


def test_a_python_without_the_package_is_named(tmp_path):
    done = subprocess.run(
        [SEALBUS, "demo", "--python", "/usr/bin/false", "--report", tmp_path / "report.json"],
        capture_output=True,
        env=clean_environment(),
        timeout=800,
        check=False,
    )
    assert done.returncode == 1
    assert b"sealbus" in done.stderr and b"/usr/bin/false" in done.stderr
