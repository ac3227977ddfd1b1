"""Several Masters on one etcd: one leads, the others stand by and take over."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from etcd import Etcd
from harness import SEALBUS, Platform, Program, sealbus, wait_for
from test_etcd import manifest

Make = Callable[[str], Platform]
Start = Callable[[int], Etcd]
Result = TypeVar("Result")
# So many take longer than a change of the leader.
MESSAGES = 10_000


def beside(first: Platform, second: Platform) -> Platform:
    """The second Master on a machine of its own. It has a CA of its own, and nothing of the first one but a token."""
    token = first.ask("token", "--master")["token"]
    join = ("--join", token, "--state", second.state)
    second.master = second.program(SEALBUS, "up", second.manifest, *join, "--json", name="up")
    stands_by(second)
    return second


def stands_by(master: Platform) -> None:
    assert master.master is not None
    output = master.master.output
    wait_for(lambda: '"stands-by":true' in output(), "the Master to stand by", also=master.logs)


def leads(master: Platform) -> bool:
    done = sealbus("masters", "--json", "--state", master.state, expect=None)
    return done.returncode == 0 and bool(json.loads(done.stdout)[0]["role"] == "leads")


class Masters:
    """The Masters of a platform. On a busy machine the leadership may change at any time, also without a test's doing."""

    def __init__(self, *masters: Platform) -> None:
        self.masters = masters

    def logs(self) -> str:
        return "".join(it.logs() for it in self.masters)

    def leading(self, act: Callable[[Platform], Result]) -> Result:
        """The result of `act` at the Master that leads, tried again if it no longer did so."""

        def attempt() -> list[Result] | None:
            for master in filter(leads, self.masters):
                with contextlib.suppress(AssertionError):
                    return [act(master)]
            return None

        return wait_for(attempt, "a Master to lead", also=self.logs)[0]

    def now(self) -> tuple[Platform, Platform]:
        """The Master that leads, and the other."""
        leader = self.leading(lambda master: master)
        (other,) = (master for master in self.masters if master is not leader)
        return leader, other

    def listed(self, count: int) -> list[dict[str, Any]]:
        """So many Masters, the one that leads first."""

        def look() -> list[dict[str, Any]] | None:
            found = self.leading(lambda master: master.ask("masters"))
            return found if len(found) == count else None

        return wait_for(look, f"{count} Masters to be there", also=self.logs)

    def tell(self, *words: str) -> None:
        """A change that is acknowledged."""
        self.leading(lambda master: master.tell(*words))

    def alive_again(self) -> None:
        """Waits until the node is there."""

        def look() -> bool:
            return bool(self.leading(lambda master: master.nodes().get("node-1", {}).get("state") == "alive"))

        wait_for(look, "the node to come back", also=self.logs)

    def place(self, *names: str) -> dict[str, int]:
        """The processes of agents that are active."""

        def look() -> dict[str, int] | None:
            agents = self.leading(Platform.agents)
            ready = all(agents.get(name, {}).get("state") == "active" for name in names)
            return {name: agents[name]["pid"] for name in names} if ready else None

        return wait_for(look, f"{names} to be active", also=self.logs)

    def asked(self, receiver: str, content: str) -> Any:
        """An agent's answer to the operator."""
        return json.loads(self.leading(lambda master: master.send(receiver, content, wait="20s")))


def addresses_in(node: Program) -> list[str]:
    """Where Masters are, as far as the node knows."""
    file = node.log.with_suffix("") / "node.json"
    addresses: list[str] = json.loads(file.read_text())["enrolment"]["addresses"]
    return addresses


def known_to(node: Program, count: int) -> None:
    """Waits until the node knows the addresses of so many Masters."""
    wait_for(lambda: len(addresses_in(node)) == count, "the node to know all Masters")


def second_word(masters: Masters) -> Callable[[], str | None]:
    """The words of a command at the Master that does not lead."""

    def look() -> str | None:
        _, other = masters.now()
        done = sealbus("ps", "--state", other.state, expect=None)
        return done.stderr.decode() if done.returncode == 3 else None

    return look


def test_the_role_is_handed_over_and_comes_back(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd, "seller", "buyer")).up()
    alone = first.tell("masters", "hand-over", expect=None)
    assert alone.returncode != 0 and b"no other Master" in alone.stderr, alone.stderr
    first.node("node-1")
    before = Masters(first).place("seller", "buyer")
    second = beside(first, platform(manifest(etcd, "seller", "buyer")))
    masters = Masters(first, second)
    (leader, *others) = masters.listed(2)
    assert [leader["role"], *(other["role"] for other in others)] == ["leads", "stands-by"]
    # Commands at the other Master say where to go, and do not advise to start the platform.
    told = wait_for(second_word(masters), "a Master that stands by")
    assert "stands by" in told and "the Master that leads" in told and "sealbus up" not in told, told

    for number in range(3):
        (leader, _) = masters.listed(2)
        masters.tell("df", "register", "seller", "--type", "tea", "--name", f"shop-{number}")
        masters.tell("masters", "hand-over")

        def has_changed(before: dict[str, Any] = leader) -> bool:
            (now, *_) = masters.listed(2)
            return bool(now["term"] > before["term"] and now["enrolment"] != before["enrolment"])

        wait_for(has_changed, "the other Master to lead")
        masters.alive_again()
        assert masters.place("seller", "buyer") == before
        assert f"shop-{number}" in json.dumps(masters.leading(lambda master: master.ask("df", "search")))
        assert masters.asked("seller", '["where"]')
    # The end of the platform is the end of all Masters.
    masters.listed(2)
    masters.tell("down")
    assert second.master is not None and first.master is not None
    assert first.master.wait() == 0
    assert second.master.wait() == 0


def test_a_master_that_leads_again_leaves_the_platform_as_it_is(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd, "seller", "spare")).up()
    first.node("node-1")
    before = Masters(first).place("seller", "spare")
    second = beside(first, platform(manifest(etcd, "seller", "spare")))
    masters = Masters(first, second)
    masters.listed(2)
    masters.tell("kill", "spare")

    def second_leads() -> bool:
        if not leads(second):
            first.tell("masters", "hand-over", expect=None)
        return leads(second)

    # Its manifest lies elsewhere: by that, it would start each agent anew.
    wait_for(second_leads, "the second Master to lead", also=first.logs)
    leader, other = second, first
    assert leader.master is not None and other.master is not None
    output = leader.master.output

    def starts() -> int:
        """How often it has begun to lead, and has started what it had to start."""
        return output().count("is up at level") + output().count('"enrolment":')

    def nobody_is_there() -> bool:
        return not etcd.ctl("get", "--prefix", "--keys-only", "/sealbus/factory/instance/").strip()

    # It answers commands before it says that it is up.
    wait_for(lambda: starts() > 0, "the second Master to be up", also=second.logs)
    begun = starts()
    # The other one leads meanwhile. When this one wakes, it finds that it was replaced, and that nobody leads.
    os.kill(leader.master.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: leads(other), "the other Master to lead", also=other.logs)
        os.kill(other.master.pid, signal.SIGSTOP)
        wait_for(nobody_is_there, "both to be gone", also=etcd.logs)
        os.kill(leader.master.pid, signal.SIGCONT)
        wait_for(lambda: starts() > begun, "the Master to lead again", also=leader.logs)
        agents = Masters(leader).leading(Platform.agents)
    finally:
        for master in (leader.master, other.master):
            os.kill(master.pid, signal.SIGCONT)
    assert agents["seller"]["pid"] == before["seller"]
    assert agents["spare"]["state"] not in ("active", "starting", "placed"), agents["spare"]


def test_a_killed_leader_is_replaced_and_a_sleeping_one_stands_by_when_it_wakes(
    platform: Make, cluster: Start
) -> None:
    etcd = cluster(3)
    first = platform(manifest(etcd, "seller", "buyer")).up("--json")
    node = first.node("node-1")
    before = Masters(first).place("seller", "buyer")
    second = beside(first, platform(manifest(etcd, "seller", "buyer")))
    masters = Masters(first, second)
    masters.listed(2)
    known_to(node, 2)
    assert first.master is not None and second.master is not None
    masters.asked("buyer", json.dumps(["send", "seller", MESSAGES, 2000]))
    acknowledged: list[str] = []
    terms: list[int] = []

    def work(*those: Platform) -> None:
        """An operator works with the Master that leads now. Only what is acknowledged counts."""
        name = f"shop-{len(acknowledged)}"
        Masters(*those).tell("df", "register", "seller", "--type", "tea", "--name", name)
        acknowledged.append(name)
        terms.append(Masters(*those).leading(lambda master: master.ask("masters"))[0]["term"])

    work(first, second)
    leader, other = masters.now()
    assert leader.master is not None and other.master is not None
    stood_by = leader.master.output().count('"stands-by":true')
    leader.master.process.send_signal(signal.SIGSTOP)
    work(other)
    leader.master.process.send_signal(signal.SIGCONT)
    output = leader.master.output
    wait_for(lambda: output().count('"stands-by":true') > stood_by, "the Master that slept to stand by", also=leader.logs)
    masters.listed(2)
    masters.alive_again()
    known_to(node, 2)

    killed, living = masters.now()
    assert killed.master is not None
    killed.master.kill()
    masters = Masters(living)
    work(living)
    masters.alive_again()
    assert masters.place("seller", "buyer") == before
    found = json.dumps(masters.leading(lambda master: master.ask("df", "search")))
    assert all(name in found for name in acknowledged), (acknowledged, found)
    assert terms == sorted(set(terms)), terms
    # Nobody lost a message meanwhile.
    wait_for(lambda: masters.asked("buyer", '["sent"]') == [MESSAGES, True], "all messages to be sent", also=living.logs)
    everything = list(range(MESSAGES))
    wait_for(
        lambda: masters.asked("seller", '["heard"]').get("buyer") == everything,
        "all messages to be heard in order",
        also=living.logs,
    )
    assert masters.asked("buyer", '["failures"]') == []
    # The node obeyed no term below the one before.
    obeyed = [float(term) for term in re.findall(r"a Master leads term=0\.(\d+)", node.output())]
    assert obeyed == sorted(obeyed) and len(obeyed) >= 3, node.output()


def test_the_end_of_a_leader_hands_over_and_a_newcomer_needs_no_leader_to_be_gone(
    platform: Make, cluster: Start
) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up("--json")
    # A standby hands newcomers on to the one that leads.
    second = beside(first, platform(manifest(etcd)))
    masters = Masters(first, second)
    (_, standby) = masters.listed(2)
    token = masters.leading(lambda master: master.ask("token", "--name", "node-1"))["token"]
    program = (SEALBUS, "node", "--join", standby["enrolment"], "--token", token)
    node = first.program(*program, "--state", first.directory / "node-1", name="node-1")
    masters.alive_again()
    known_to(node, 2)
    leader, other = masters.now()
    (lead, _) = masters.listed(2)
    assert leader.master is not None and leader.master.end() == 0
    Masters(other).alive_again()
    assert node.process.poll() is None
    # A newcomer finds the platform up, and stands by again.
    leader.master = leader.program(SEALBUS, "up", leader.manifest, "--state", leader.state, "--json", name="again")
    stands_by(leader)
    assert lead["enrolment"] in {master["enrolment"] for master in masters.listed(2)}


def test_a_node_that_knows_the_lost_leader_alone_hears_from_the_next_one(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd, "seller")).up("--json")
    node = first.node("node-1")
    before = Masters(first).place("seller")
    second = platform(manifest(etcd, "seller"))
    request, certified = second.directory / "request.pem", second.directory / "ca.pem"
    request.write_bytes(sealbus("ca", "request", second.manifest, "--state", second.state).stdout)
    certified.write_bytes(sealbus("ca", "certify", request, "--root", first.state).stdout)
    # The first one keeps its port, so the second one has another, of which nobody has told the node.
    assert first.master is not None
    first.master.process.send_signal(signal.SIGSTOP)
    (lost,) = addresses_in(node)
    second.up("--join", certified)
    masters = Masters(second)
    masters.alive_again()
    wait_for(lambda: addresses_in(node) != [lost], "the node to know the next Master")
    assert masters.place("seller") == before
    assert masters.asked("seller", '["where"]')
    first.master.kill()


def test_operators_of_a_leader_that_was_deposed_hear_which_master_leads_now(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd, "seller")).up("--json")
    node = first.node("node-1")
    Masters(first).place("seller")
    second = beside(first, platform(manifest(etcd, "seller")))
    masters = Masters(first, second)
    masters.listed(2)
    known_to(node, 2)
    leader, other = masters.now()
    assert leader.master is not None
    # One command only reads, again and again. The other one waits for an answer that never comes.
    reading = leader.program(SEALBUS, "ca", "log", "--follow", "--state", leader.state, name="reading")
    unanswered = ("send", "seller", "7", "--performative", "inform", "--timeout", "100s")
    waiting = leader.program(SEALBUS, *unanswered, "--state", leader.state, name="waiting")
    wait_for(lambda: "step 6" in reading.output(), "the log to be shown")
    wait_for(lambda: masters.asked("seller", '["heard"]') == {"operator": [7]}, "the message to arrive", also=leader.logs)
    leader.master.process.send_signal(signal.SIGSTOP)
    Masters(other).tell("df", "register", "seller", "--type", "tea", "--name", "shop")
    leader.master.process.send_signal(signal.SIGCONT)
    assert waiting.wait() == 1
    said = waiting.output()
    assert "leads no longer" in said and "is not known" in said, said
    # Both are on this machine.
    assert "(127.0.0.1) leads now: run the command there" in said, said
    assert reading.wait() == 3
    said = reading.output()
    assert "stands by for the Master that leads, at 127.0.0.1" in said, said
