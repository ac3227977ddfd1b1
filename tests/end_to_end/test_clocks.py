"""A machine whose clock is wrong is told so, and by how much; the platform goes on without it."""

import time
from pathlib import Path

import harness
import pytest
from harness import SEALBUS, one_worker, wait_for

DAY = 86_400
MANIFEST = """
    [platform]
    name = "factory"
    nodes = 1
"""


@pytest.fixture(scope="session")
def wrong_clock(tmp_path_factory):
    """Makes the environment of a program whose clock is wrong by so many seconds, or by as many as stand in a file."""
    library = harness.wrong_clock(tmp_path_factory.mktemp("clock"))
    by = lambda shift: "SHIFT_FILE" if isinstance(shift, Path) else "SHIFT"
    return lambda shift: {"LD_PRELOAD": str(library), by(shift): str(shift)}


def late(factory, clock, *arguments):
    state = factory.directory / "late"
    return factory.program(SEALBUS, "node", *arguments, "--state", state, name="late", environment=clock)


def goes_on(factory):
    wait_for(
        lambda: factory.nodes().get("node-1", {}).get("state") == "alive", "node-1 to be alive", also=factory.logs
    )


def is_told(factory, text):
    log = factory.directory / "up.log"
    wait_for(lambda: text in log.read_text(), f"the Master to say: {text}", also=factory.logs)


def test_a_newcomer_whose_clock_is_a_day_late(platform, wrong_clock):
    """To it, the Master's certificate is not valid yet."""
    factory = platform(MANIFEST).up()
    newcomer = late(factory, wrong_clock(-DAY), "--token", factory.ask("token", "--name", "late")["token"])
    assert newcomer.wait() != 0
    said = newcomer.output()
    assert "not yet valid" in said and "node/master" in said and "the clock here" in said, said
    is_told(factory, "our certificate is expired or not yet valid")
    assert "late" not in factory.nodes()
    goes_on(factory)


def test_a_newcomer_whose_clock_is_a_day_early(platform, wrong_clock):
    """By its clock, the certificate that it would get has expired."""
    factory = platform(MANIFEST).up()
    newcomer = late(factory, wrong_clock(DAY), "--token", factory.ask("token", "--name", "late")["token"])
    assert newcomer.wait() == 5
    assert "the node's clock says" in newcomer.output() and "NTP" in newcomer.output()
    is_told(factory, "the node's clock says")
    assert "late" not in factory.nodes()
    goes_on(factory)


@pytest.mark.parametrize("seconds", [-DAY, DAY])
def test_a_node_that_comes_back_with_a_wrong_clock(platform, wrong_clock, seconds):
    factory = platform(MANIFEST).up()
    factory.node("late").end()
    wait_for(lambda: factory.nodes()["late"]["state"] == "left", "it to have left", also=factory.logs)
    back = late(factory, wrong_clock(seconds))
    if seconds < 0:
        # The Master's certificate will be valid one day: it waits.
        said = wait_for(
            lambda: "not yet valid" in back.output() and back.output(), "it to say why it waits", also=factory.logs
        )
        assert "the clock here" in said and "is off by that much" in said
        assert back.process.poll() is None
        assert back.end() == 0
        is_told(factory, "our certificate is expired or not yet valid")
    else:
        assert back.wait() == 5
        assert "the node's clock says" in back.output() and "set the one that is wrong" in back.output()
        is_told(factory, "the node's clock says")
    assert factory.nodes()["late"]["state"] == "left"
    goes_on(factory)
    # With the right time it is let in again.
    factory.program(SEALBUS, "node", "--state", factory.directory / "late", name="right")
    wait_for(lambda: factory.nodes()["late"]["state"] == "alive", "it to be back", also=factory.logs)


def test_a_master_whose_clock_is_behind_its_own_state(platform, wrong_clock):
    """Its certificates would have ended for everybody else, and it would tell nobody."""
    factory = platform(MANIFEST.replace("nodes = 1", "nodes = 0")).up()
    assert factory.master.end() == 0
    up = (SEALBUS, "up", factory.manifest, "--state", factory.state)
    ahead = factory.program(*up, name="ahead", environment=wrong_clock(DAY))
    wait_for(lambda: "Ctrl-C ends it" in ahead.output(), "it to be up", also=factory.logs)
    assert ahead.end() == 0
    behind = factory.program(*up, name="behind")
    assert behind.wait() != 0
    said = behind.output()
    assert "clock-behind" in said and "--accept-clock" in said, said
    # An operator who knows that the clock was ahead is believed.
    factory.up("--accept-clock")
    assert factory.master.end() == 0
    factory.up()
    assert factory.ask("status")["name"] == "factory"


def test_the_masters_clock_is_a_day_ahead_for_a_while(platform, wrong_clock, tmp_path):
    """Until it is right again, the Master and its node do not believe each other. Then no agent has ended."""
    factory = platform(one_worker('''
        nodes = 0
        lifetime = "4s"
    '''))
    shift = tmp_path / "shift"
    shift.write_text("0")
    up = (SEALBUS, "up", factory.manifest, "--state", factory.state)
    factory.program(*up, name="up", environment=wrong_clock(shift))
    wait_for(lambda: "Ctrl-C ends it" in (factory.directory / "up.log").read_text(), "it to be up", also=factory.logs)
    late = factory.node("late")
    pid = factory.active("worker")["worker"]["pid"]
    shift.write_text(str(DAY))
    wait_for(lambda: "86400 s apart: set the one that is wrong" in late.output(), "the node to say so", also=factory.logs)
    wait_for(lambda: factory.nodes()["late"]["state"] == "expected", "the node to be away", also=factory.logs)
    tomorrow = max(each["not_before"] for each in factory.ask("ca", "list"))
    assert tomorrow > (time.time() + DAY / 2) * 1000
    shift.write_text("0")
    wait_for(lambda: factory.nodes()["late"]["state"] == "alive", "the node to be back", also=factory.logs)
    assert factory.send("worker", '["sent"]') == "[0, false]"
    after = factory.agents()["worker"]
    assert (after["pid"], after["restarts"]) == (pid, 0)
