"""For the official kit of A2A, which loads this before its tests: each of its messages gets a name of its own.

The kit gives one name to many messages. The specification calls it unique, and to the gateway the same message is the same task.
"""

import itertools

from tck.requirements import base  # type: ignore[import-not-found]

_numbers = itertools.count(1)
_named = base.tck_id


def _new(name: str) -> str:
    return f"{_named(name)}-{next(_numbers)}"


base.tck_id = _new
