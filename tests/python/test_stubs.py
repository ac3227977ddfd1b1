"""The stub file has exactly the names of the native module."""

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import sealbus
from sealbus import _sealbus

STUB = ast.parse((Path(sealbus.__file__).parent / "_sealbus.pyi").read_text())

# Names that every object has, or that a type checker need not know.
UNTOLD = {"__doc__", "__module__", "__hash__", "__repr__", "__str__", "__reduce__", "__ne__", "__ge__", "__gt__",
          "__le__", "__lt__", "__dict__", "__weakref__", "__class_getitem__"}  # fmt: skip


def is_private(name: str) -> bool:
    return name[0] == "_" and name[1] != "_"


def public(names: object) -> set[str]:
    return {name for name in vars(names) if name not in UNTOLD and not is_private(name)}


def told_classes() -> dict[str, ast.ClassDef]:
    return {
        node.name: node
        for node in STUB.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def told_functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


def has(value: object) -> list[str]:
    signature = inspect.signature(value)  # type: ignore[arg-type]
    names = []
    for name, parameter in signature.parameters.items():
        prefix = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        names.append(prefix + name)
    return [name for name in names if name not in ("self", "cls")]


def module_members(module: ModuleType) -> set[str]:
    return {name for name in vars(module) if not name.startswith("_")}


def test_the_module_has_what_the_stub_tells_and_no_more() -> None:
    assert module_members(_sealbus) == told_classes().keys() | told_functions(STUB.body).keys()


@pytest.mark.parametrize("name", sorted(told_functions(STUB.body)))
def test_functions_take_what_the_stub_tells(name: str) -> None:
    assert has(getattr(_sealbus, name)) == parameters(told_functions(STUB.body)[name])


@pytest.mark.parametrize("name", sorted(told_classes()))
def test_classes_have_what_the_stub_tells(name: str) -> None:
    told = told_functions(told_classes()[name].body)
    native = getattr(_sealbus, name)
    shown = {member for member in told if not is_private(member)}
    assert public(native) - {"__new__"} == shown - {"__new__", "__hash__"}
    for member, function in told.items():
        decorators = [node.id for node in function.decorator_list if isinstance(node, ast.Name)]
        value = native if member == "__new__" else getattr(native, member)
        if "property" in decorators:
            assert inspect.isgetsetdescriptor(value), f"{name}.{member} is no property"
        elif not member.startswith("__") or member == "__new__":
            assert has(value) == parameters(function), f"{name}.{member}"


def test_the_stub_tells_which_values_have_no_hash() -> None:
    values = [
        sealbus.AID("anna"),
        sealbus.AclMessage("inform"),
        sealbus.ServiceDescription(),
        sealbus.DfAgentDescription(),
        sealbus.AmsAgentDescription(),
    ]
    compared = {name for name, node in told_classes().items() if "__eq__" in told_functions(node.body)}
    assert {type(value).__name__ for value in values} == compared
    for value in values:
        body = told_classes()[type(value).__name__].body
        told = [node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
        if "__hash__" in told:
            with pytest.raises(TypeError, match="unhashable"):
                hash(value)
        else:
            hash(value)


# ``code``, `code` and :role:`code`.
MARKUP = re.compile(r":\w+:`~?([^`]*)`|``?([^`]*)``?")


def plain(text: str) -> str:
    """A docstring in one line, without markup."""
    return " ".join(MARKUP.sub(lambda found: found[1] or found[2] or "", text).split())


def test_the_docstrings_of_the_module_begin_as_the_stub_tells() -> None:
    pairs: list[tuple[object, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]] = []
    for name, function in told_functions(STUB.body).items():
        pairs.append((getattr(_sealbus, name), function))
    for name, told in told_classes().items():
        native = getattr(_sealbus, name)
        pairs.append((native, told))
        members = told_functions(told.body).items()
        pairs += [(getattr(native, member), function) for member, function in members if not member.startswith("_")]
    for value, node in pairs:
        said, stated = value.__doc__, ast.get_docstring(node)
        if said and stated:
            assert plain(stated).startswith(plain(said)), node.name
