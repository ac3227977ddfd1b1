"""Properties whose names agents' authors may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_T = TypeVar("_T")


class Fact(Generic[_T]):
    """A read-only property whose name an agent may use for an attribute of its own, which then hides it."""

    def __init__(self, read: Callable[[Any], _T]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    @overload
    def __get__(self, agent: None, owner: type) -> Self: ...
    @overload
    def __get__(self, agent: object, owner: type) -> _T: ...
    def __get__(self, agent: object | None, owner: type) -> Self | _T:
        return self if agent is None else self._read(agent)
