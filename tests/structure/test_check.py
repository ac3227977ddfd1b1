"""The check of the structure finds what it is for."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.fixture
def check(tmp_path, monkeypatch):
    """The check, for a repository in a temporary folder."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("check", str(FOLDER / "check"))
    check = module_from_spec(spec_from_loader("check", loader))
    loader.exec_module(check)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    return check


def circles(check, **files):
    """The circles of a crate with these files. `__` stands for the `/` in a file's name."""
    for name, text in files.items():
        file = check.ROOT / f"{name.replace('__', '/')}.rs"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return [circle for circle, _ in check.circles(check.Crate(check.ROOT / "lib.rs"))]


BACK = "use crate::a::General;"


@pytest.mark.parametrize(
    "needs",
    ["use self::x::X; fn f(x: X) {}", "use x::X; fn f(x: X) {}", "fn f() { x::f() }", "pub use x::X; fn f(x: X) {}"],
)
def test_a_circle_through_a_child_is_found(check, needs):
    found = circles(check, lib="mod a; mod b;", a__mod=f"mod x; {needs}", a__x="use crate::b::B;", b=BACK)
    assert found == [["a/mod.rs", "b.rs"]]


def test_a_circle_of_two_files_is_found(check):
    assert circles(check, lib="mod a; mod b;", a="fn f() { crate::b::f() }", b=BACK) == [["a.rs", "b.rs"]]


def test_a_module_and_its_children_may_need_each_other(check):
    found = circles(check, lib="mod a;", a__mod="mod x; mod y; use x::X;", a__x="use super::A; use super::y::Y;", a__y=BACK)
    assert found == []


def test_a_name_that_is_only_handed_on_is_not_needed(check):
    handing = "mod x; pub(crate) use x::X; pub struct General;"
    assert circles(check, lib="mod a; mod b;", a__mod=handing, a__x="use crate::b::B;", b=BACK) == []


def test_the_root_belongs_to_all(check):
    assert circles(check, lib="mod a; mod b; pub use a::A; fn f(a: A) {}", a="use crate::B;", b="use crate::f;") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("use sealbus_brokers::{BROKER_KINDS, rabbitmq::names};", True),
        ("fn f() { sealbus_brokers::rabbitmq::names::queue(1) }", True),
        ("fn f() { sealbus_brokers::broker_kind(name) }", False),
        ("// sealbus_brokers::rabbitmq::names\nuse sealbus_brokers::BROKER_KINDS;", False),
        ("#[cfg(test)] mod tests { use sealbus_brokers::rabbitmq::names; }", False),
    ],
)
def test_a_broker_is_named_by_imports_and_by_paths(check, tmp_path, text, names):
    module = check.Module((), tmp_path / "lib.rs", text)
    assert check.names_one(module, {"rabbitmq"}) == names


@pytest.mark.parametrize("header", ["test", "tests"])
def test_each_row_of_a_table_of_tests_has_one(check, header):
    table = f"| an attacker | {header} |\n|---|---|\n"
    tested = "| asks | `a/test_b.py::test_c` |\n| asks again | the same |\n"
    assert list(check.untested(table + tested + "| lies | |\n\n| other | x |\n| lies | |\n")) == ["| lies | |"]
