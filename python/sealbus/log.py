"""The log of the native half, in Python's :mod:`logging`.

If a program has set up :mod:`logging` before it joins a platform, all records go there. The logger of a record is named after
the part of Sealbus that wrote it, such as ``sealbus.certification``. The level of the logger ``sealbus`` at that time, or the
variable ``SEALBUS_LOG``, sets the amount. Without handlers the records go to stderr.
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import TYPE_CHECKING

from sealbus import _sealbus

if TYPE_CHECKING:
    from sealbus._sealbus import Pump

LOG_VARIABLE = "SEALBUS_LOG"

log = logging.getLogger("sealbus")

_forwards = False


def begin(pump: Pump) -> bool:
    """Sends the records to :mod:`logging` if that is set up. The records then wake `pump`."""
    global _forwards
    if not _forwards and log.hasHandlers() and _sealbus.forward_log(_filter()):
        _forwards = True
        atexit.register(flush)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: _sealbus.tell_of_log(None))
    if _forwards:
        _sealbus.tell_of_log(pump)
    return _forwards


def flush() -> None:
    """Hands over the waiting records."""
    records, left_out = _sealbus.take_log()
    for seconds, level, target, text in records:
        logger = logging.getLogger(_name(target))
        if logger.isEnabledFor(level):
            record = logger.makeRecord(logger.name, level, target, 0, text, (), None)
            record.created = seconds
            record.msecs = seconds % 1 * 1000
            logger.handle(record)
    if left_out:
        log.warning("%d records were left out: they came faster than they were taken", left_out)


def _filter() -> str:
    given = os.environ.get(LOG_VARIABLE)
    if given:
        return given
    wanted = log.getEffectiveLevel()
    for level, name in ((5, "trace"), (10, "debug"), (20, "info"), (30, "warn")):
        if wanted <= level:
            # Other libraries log much below warnings.
            return _sealbus.quiet_log(f"warn,sealbus={name}")
    return _sealbus.quiet_log("error")


def _name(target: str) -> str:
    """The logger of a target: ``sealbus.bus.peer`` of ``sealbus_bus::peer``."""
    return target.replace("sealbus_", "sealbus.", 1).replace("::", ".")
