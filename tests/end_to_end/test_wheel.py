"""The parts of `make wheel` and `make reproducible`, without their long builds."""

import fcntl
import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from harness import ROOT

import sealbus._sealbus

PACKAGING = ROOT / "packaging"
# A name that means something else in a pattern.
BESIDE = "environment [1]*"


@pytest.fixture
def program(tmp_path):
    """The program of the wheel, in the folder of programs of an environment."""
    program = tmp_path / BESIDE / "bin" / "sealbus"
    program.parent.mkdir(parents=True)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2"]
    subprocess.run(["cc", *flags, "-o", program, PACKAGING / "program.c", "-ldl"], check=True)
    return program


def refusal(program):
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "help: install the wheel again" in done.stderr
    return done.stderr


def test_the_program_without_its_package_says_what_to_do(program):
    assert f"beside {program.parent}: it is not there" in refusal(program)


@pytest.mark.parametrize("place", ["lib/python3.11/site-packages", "lib64/python3.14/site-packages", "lib/python3.11/dist-packages", "."])
def test_the_program_finds_its_package_where_installers_put_it(program, place):
    package = program.parents[1] / place / "sealbus" / "_sealbus.abi3.so"
    package.parent.mkdir(parents=True)
    package.write_text("no library")
    assert "_sealbus.abi3.so: file too short" in refusal(program)


def test_the_package_loads_where_there_is_no_interpreter(program):
    package = program.parents[1] / "lib/python3.11/site-packages/sealbus/_sealbus.abi3.so"
    package.parent.mkdir(parents=True)
    shutil.copyfile(sealbus._sealbus.__file__, package)
    assert re.search("undefined symbol: _?Py", refusal(program))
    without_interpreter = runpy.run_path(str(PACKAGING / "wheel"))["without_interpreter"]
    package.write_bytes(without_interpreter(package.read_bytes()))
    # The tests' package comes without the command line; all else is there.
    assert "undefined symbol: sealbus_command" in refusal(program)


def test_a_second_build_in_one_checkout_waits_for_the_first(tmp_path):
    placed = ROOT / "python/sealbus._sealbus.data"
    lock = ROOT / "target/wheel.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, PACKAGING / "wheel", "dev", tmp_path / "wheel"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with second:
            assert "this one waits" in second.stdout.readline()
            assert not placed.exists()
            second.kill()


def test_what_is_built_does_not_tell_where(tmp_path):
    source = '#[unsafe(no_mangle)] pub extern "C" fn place() { println!("{} {}", file!(), std::panic::Location::caller()) }'
    built = []
    for name in ("one", "another/place"):
        folder = tmp_path / name
        (folder / "packaging").mkdir(parents=True)
        shutil.copy(PACKAGING / "anywhere", folder / "packaging")
        shutil.copy(ROOT / "rust-toolchain.toml", folder)
        (folder / "place.rs").write_text(source)
        (folder / "place.c").write_text("const char *place(void) { return __FILE__; }\n")
        build = f"cc $CFLAGS -g -c -o c.o {folder}/place.c && rustc $RUSTFLAGS -g --crate-type rlib -o r.rlib {folder}/place.rs"
        environment = {name: value for name, value in os.environ.items() if name not in ("RUSTFLAGS", "CFLAGS")}
        subprocess.run([folder / "packaging/anywhere", "sh", "-euc", build], cwd=folder, env=environment, check=True)
        built.append([(folder / file).read_bytes() for file in ("c.o", "r.rlib")])
    for first, second in zip(*built, strict=True):
        assert first == second
        assert b"/sealbus/place." in first
        assert bytes(tmp_path) not in first
