"""The parts of a release: the list of dependencies, the Debian package, the container and its descriptions."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from harness import ROOT, SEALBUS

PACKAGING = ROOT / "packaging"


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def bill():
    return json.loads(run(PACKAGING / "dependencies", "sbom"))


def test_the_bill_of_materials_has_what_is_locked_and_linked(bill):
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    locked = {(each["name"], each["version"]): each.get("checksum") for each in lock["package"]}
    listed = {(each["name"], each["version"]): each for each in bill["components"]}
    for name, component in listed.items():
        assert name in locked
        assert (locked[name] is None) == name[0].startswith("sealbus"), "all but our own crates have a checksum"
        assert [each["content"] for each in component.get("hashes", [])] == [each for each in [locked[name]] if each]
        assert component["licenses"][0]["expression"]
    names = {name for name, _ in listed}
    assert {"sealbus-cli", "sealbus-python", "rustls", "aws-lc-sys", "pyo3"} <= names
    assert not names & {"proptest", "sealbus-conformance", "sealbus-bench-driver"}, "tests are not shipped"
    known = {each["bom-ref"] for each in bill["components"]} | {"sealbus"}
    for each in bill["dependencies"]:
        assert {each["ref"], *each["dependsOn"]} <= known


def test_every_dependency_has_a_licence_on_the_list(bill):
    text = run(PACKAGING / "dependencies", "licences")
    for each in bill["components"]:
        if "hashes" in each:
            assert f"{each['name']} {each['version']}: {each['licenses'][0]['expression']}\n" in text
    assert "Permission is hereby granted, free of charge" in text


# ---- the Debian package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is missing: this is no Debian")
    folder = tmp_path_factory.mktemp("deb")
    # The debug program is large, and packing it well takes minutes.
    run(PACKAGING / "debian" / "build", SEALBUS, folder, env=os.environ | {"DPKG_DEB_COMPRESSOR_LEVEL": "0"})
    (file,) = folder.glob("sealbus_*.deb")
    run("dpkg-deb", "-x", file, folder / "tree")
    run("dpkg-deb", "-e", file, folder / "control")
    return file, folder / "tree", folder / "control"


def test_the_package_has_the_program_and_what_belongs_to_it(package):
    file, tree, control = package
    version = run(tree / "usr/bin/sealbus", "--version").split()[1]
    assert file.name.startswith(f"sealbus_{version}-1_")
    assert "Depends: libc6 (>= 2." in (control / "control").read_text()
    page = gzip.decompress((tree / "usr/share/man/man1/sealbus-apply.1.gz").read_bytes()).decode()
    assert "dry" in page
    for completion in ("bash-completion/completions/sealbus", "zsh/vendor-completions/_sealbus", "fish/vendor_completions.d/sealbus.fish"):
        assert "sealbus" in (tree / "usr/share" / completion).read_text()
    assert run(tree / "usr/bin/sealbus", "up", tree / "etc/sealbus/platform.toml", "--check")
    for sum_and_name in (control / "md5sums").read_text().splitlines():
        assert (tree / sum_and_name.split()[1]).is_file()


def test_the_units_are_good_and_hardened(package):
    _, tree, _ = package
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing")
    for unit in sorted((tree / "usr/lib/systemd/system").iterdir()):
        # The program of this tree stands for the installed one.
        unit.write_text(unit.read_text().replace("/usr/bin/sealbus", f"{tree}/usr/bin/sealbus"))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
        # systemd knows that key from version 254 on.
        ours = [line for line in done.stderr.splitlines() if unit.name in line and "'DelegateSubgroup'" not in line]
        assert not ours, done.stderr
        arguments = ["systemd-analyze", "security", "--offline=true", unit]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        exposure = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
        assert exposure and float(exposure[1]) <= 3.5, done.stdout + done.stderr


@pytest.mark.parametrize("unit", ["sealbus.service", "sealbus-node.service"])
def test_a_unit_outlives_what_comes_late_and_has_room_for_agents(unit):
    lines = (PACKAGING / "debian" / unit).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    # systemd gives a unit up after five starts within ten seconds.
    assert int(settings["RestartSec"]) * 5 > 10
    assert settings["RestartPreventExitStatus"] == "2"
    assert settings["TasksMax"] == "infinity"


def test_the_release_workflow_fits_its_schema():
    workflow = PACKAGING.parent / ".github" / "workflows" / "release.yml"
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)


# ---- containers


def test_the_descriptions_of_containers_fit_their_schemas():
    folder = PACKAGING / "container"
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", folder / "compose.yaml")
    run(sys.executable, "-m", "kubernetes_validate", "--strict", folder / "kubernetes.yaml")


def test_containers_have_as_long_to_end_everywhere():
    folder = PACKAGING / "container"
    described = [each for each in yaml.safe_load_all((folder / "kubernetes.yaml").read_text()) if each["kind"] == "StatefulSet"]
    longest = {each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for each in described}
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert {f"{seconds}s" for seconds in longest} == {each["stop_grace_period"] for each in services.values()}


def test_the_manifest_of_the_container_is_the_same_everywhere():
    folder = PACKAGING / "container"
    run(SEALBUS, "up", folder / "platform.toml", "--check")
    described = next(yaml.safe_load_all((folder / "kubernetes.yaml").read_text()))["data"]["platform.toml"]
    assert tomllib.loads(described) == tomllib.loads((folder / "platform.toml").read_text())
