"""A program that gives its secrets away: its ticket, and the secret with which it attaches again. As the thief (its only
argument), it shows the secrets of another program to the node, in every way."""

import errno
import os
import sys
import time
from functools import partial
from pathlib import Path

from obedient import ordered, tell
from rpc import ATTACHING, Rpc, Token, encoded, over_tls, over_unix


def leave_mark(folder):
    """A program without unix sockets leaves one in its own folder."""
    mark = encoded(os.urandom(32))
    Path(folder, ".sealbus-mark").write_text(mark)
    return mark


def attach(opening, secret, **more):
    rpc = Rpc(opening())
    return rpc, rpc.call(ask="attach", ticket=secret, now=time.time_ns() // 1_000_000, **more)


def leak():
    way, secret = os.environ["SEALBUS_ATTACH"], os.environ["SEALBUS_TICKET"]
    if is_remote := way == "tls":
        token = Token.parse(secret)
        secret = encoded(token.secret)
    tell("ticket", secret)
    ordered("attach")

    def opening():
        return over_tls(token.addresses[0], ATTACHING) if is_remote else over_unix(way.removeprefix("unix:"))

    for name in ("attached", "attached-again"):
        more = {"mark": leave_mark(os.environ["SEALBUS_FOLDER"])} if is_remote else {}
        _held, answer = attach(opening, secret, **more)
        secret = answer.get("reattach")
        tell(name, answer)
        ordered("attach-again")
    time.sleep(3600)


def shown(opening, secret, mark=lambda: None):
    """The node's answer, or the error of the system."""
    try:
        text = mark()
        rpc, answer = attach(opening, secret, **({"mark": text} if text else {}))
        rpc.stream.close()
    except EOFError:
        return "ended"
    except OSError as error:
        return errno.errorcode.get(error.errno, "OSError")
    return answer["fault"]["code"] if "fault" in answer else answer["answer"]


def steal():
    attempt = 0
    while True:
        told = ordered(f"steal-{attempt}")
        secret, own = told["secret"], os.environ["SEALBUS_FOLDER"]
        socket, door = partial(over_unix, told["socket"]), partial(over_tls, told["door"], ATTACHING)
        outcomes = {
            "at the socket": shown(socket, secret),
            "at the door": shown(door, secret),
            "at the door with a mark of its own": shown(door, secret, partial(leave_mark, own)),
            "at the door with a mark in the other's folder": shown(door, secret, partial(leave_mark, told["folder"])),
        }
        tell(f"stolen-{attempt}", outcomes)
        attempt += 1


if sys.argv[1:] == ["thief"]:
    steal()
else:
    leak()
