"""A user of a program is given to the next one: nothing of the former program is there, and nothing of the platform is given away."""

import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from harness import Platform, Program, alive, wait_for
from isolated import lines, needs, provide, said
from ports import free_port

#: Where the nodes of this machine note which users are taken.
NOTES = Path("/run/sealbus/uids")
#: Nobody else has these: above the users that nodes give by themselves, and below those of containers.
USERS = range(90_000, 99_990, 4)
MANIFEST = """
    [platform]
    name = "factory"

    [[agent]]
    name = "one"
    command = ["PYTHON", "FOLDER/squatter.py"]
    environment = { PORT = "NUMBER", STATE = "FOLDER/state/node-1" }
    restart = "never"

    [[agent]]
    name = "two"
    command = ["PYTHON", "FOLDER/squatter.py"]
    environment = { PORT = "NUMBER", STATE = "FOLDER/state/node-1" }
    restart = "never"
"""


@pytest.fixture
def users(modes):
    """A user and two users that no programs have had, each time with another for the node's own trials."""
    needs(modes, "uid")
    first = next(first for first in USERS if not any((NOTES / str(first + it)).exists() for it in range(5)))
    yield first, first + 2
    for uid in (first, first + 2, first + 3):
        (NOTES / str(uid)).unlink(missing_ok=True)


def starts(factory: Platform, agent: str) -> None:
    """Starts an agent's program, which never attaches."""
    factory.tell("start", agent, "--timeout", "1s", expect=None)


def refusals(factory: Platform, agent: str) -> int:
    return sum("are taken, or were used within the last hour" in line for line in lines(factory, agent))


def finds(factory: Platform, agent: str, count: int = 1) -> dict[str, object]:
    """The findings of the latest of so many starts of an agent's program, and the process that it left."""
    found = wait_for(lambda: said(factory, agent)[count - 1 :], f"{agent} to run", also=factory.logs)
    assert alive(found[0]["left"])
    return found[0]


def is_refused(factory: Platform, agent: str) -> None:
    before = refusals(factory, agent)
    starts(factory, agent)
    wait_for(lambda: refusals(factory, agent) > before, "the refusal", also=factory.logs)
    assert said(factory, agent) == []


def test_nothing_of_a_program_is_left_to_the_next_one_with_its_user(open_folder, users):
    first, second = users
    provide(open_folder, "squatter.py")
    text = MANIFEST.replace("FOLDER", str(open_folder)).replace("NUMBER", str(free_port()))
    factory = Platform(open_folder, text)
    nothing = {"memory": False, "shared file": False, "port": "free"}
    try:
        factory.up("--isolation", "uid", "--uids", f"{first}-{first + 1}")
        # There is one user for two programs.
        (owner,) = wait_for(lambda: [it for it in ("one", "two") if said(factory, it)], "a program", also=factory.logs)
        (other,) = {"one", "two"} - {owner}
        wait_for(lambda: refusals(factory, other), "the refusal", also=factory.logs)
        found = finds(factory, owner)
        assert found == nothing | {"uid": first, "file": False, "left": found["left"]}
        # The same program again keeps its files, and nothing else.
        factory.tell("kill", owner)
        wait_for(lambda: not alive(found["left"]), "what the program left to end", also=factory.logs)
        starts(factory, owner)
        found = finds(factory, owner, 2)
        assert found == nothing | {"uid": first, "file": True, "left": found["left"]}
        assert not Path("/dev/shm/sealbus-squatter").exists()
        factory.tell("kill", owner)
        # Another program gets the user neither while the folder is there, nor soon after, nor while a process has it.
        is_refused(factory, other)
        shutil.rmtree(factory.state / "node-1" / "work" / owner)
        is_refused(factory, other)
        long_ago = time.time() - 7200
        os.utime(NOTES / str(first), (long_ago, long_ago))
        straggler = Program(["setpriv", f"--reuid={first}", "--clear-groups", "sleep", "1000"], open_folder / "straggler.log")
        try:
            wait_for(lambda: os.stat(f"/proc/{straggler.pid}").st_uid == first, "a process of that user")
            is_refused(factory, other)
        finally:
            straggler.kill()
        starts(factory, other)
        found = finds(factory, other)
        assert found == nothing | {"uid": first, "file": False, "left": found["left"]}
        gets_another_user(factory, other, second)
    finally:
        factory.down()


def gets_another_user(factory: Platform, agent: str, uid: int) -> None:
    """A node gives a program's folder to the program's new user. The links in it lead to the node's own files, which stay its own."""
    assert factory.master is not None
    factory.master.end()
    folder = factory.state / "node-1" / "work" / agent
    assert (folder / "tmp").is_symlink() and (folder / "key").is_symlink()
    # Either program may be the first.
    factory.up("--isolation", "uid", "--uids", f"{uid}-{uid + 2}")
    starts(factory, agent)
    found = finds(factory, agent, 2)
    assert found["uid"] in (uid, uid + 1) and found["file"]
    assert {path.lstat().st_uid for path in [folder, *folder.iterdir()]} == {found["uid"]}
    for path in (factory.state, factory.state / "node-1", factory.state / "node-1" / "node.json"):
        about = path.stat()
        assert about.st_uid == os.getuid() and stat.S_IMODE(about.st_mode) & 0o077 == 0, path
