"""Nobody knows the platform's state: etcd is away, or the Masters that led are, too. Agents talk on, their certificates are
renewed, and operators revoke."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from etcd import Etcd
from harness import PROGRAMS, SEALBUS, Platform, alive, wait_for
from test_authorities import logs
from test_etcd import rows
from test_standby import Masters, beside, known_to, leads, stands_by

Make = Callable[[str], Platform]
Start = Callable[[int], Etcd]
# The life of a certificate, and how often each must be renewed while nobody knows the state: two lifetimes.
LIFETIME = "40s"
RENEWALS = 4


def manifest(etcd: Etcd) -> str:
    agents = [
        f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{PROGRAMS}/talker.py"{receiver}]
"""
        for name, receiver in (("seller", ""), ("buyer", ', "seller"'), ("thief", ', "seller"'))
    ]
    return f"""
    [platform]
    name = "factory"
    nodes = 0
    lifetime = "{LIFETIME}"
""" + "".join(agents) + etcd.manifest()


class Talk:
    """The messages that the agents of a node heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def heard(self, by: str = "seller", sender: str = "buyer", act: str = "inform") -> list[str]:
        file = self.folder / f"{by}.log"
        lines = file.read_text().splitlines() if file.exists() else []
        words = [line.split(" ", 3) for line in lines]
        return [word[3] for word in words if word[:3] == ["heard", act, sender]]

    def goes_on(self, also: Callable[[], str]) -> None:
        before = len(self.heard())
        wait_for(lambda: len(self.heard()) > before + 50, "messages to go on", also=also)

    def falls_silent(self, sender: str, also: Callable[[], str]) -> int:
        """Waits until nothing of a sender is heard any more while others are: the rest was in the mailbox."""
        while True:
            before = len(self.heard(sender=sender))
            self.goes_on(also)
            if len(self.heard(sender=sender)) == before:
                return before

    def is_whole(self, begun: int) -> None:
        """From the message with this number on, none is missing or doubled, and none came back."""
        numbers = [int(number) for number in self.heard() if int(number) >= begun]
        assert numbers == list(range(begun, begun + len(numbers)))
        assert "heard" not in (self.folder / "buyer.log").read_text()


def kept(master: Platform) -> int:
    """The acts of a CA that are not stored."""
    file = master.state / "unstored.log"
    return sum(line.startswith("[") for line in file.read_text().splitlines()) if file.exists() else 0


def is_stored(masters: Masters, least: int) -> None:
    """So many acts of CAs that did not know the state are in it, or more. One of them is the revocation."""
    found = masters.leading(lambda master: master.events())
    acts = [event["what"] for event in found if "while the store was away" in event["what"]]
    assert len(acts) >= least, acts
    assert sum("stolen" in act for act in acts) == 1, acts
    living = masters.leading(lambda master: master.ask("ca", "list", "--valid"))
    assert not [each for each in living if each["identity"] == "spiffe://factory/agent/thief"]


def renewed(master: Platform, name: str) -> int:
    assert master.master is not None
    lines = master.master.output().splitlines()
    wanted = f"spiffe://factory/{name}"
    return sum("renewed a certificate while the store is away" in line and wanted in line for line in lines)


def test_with_etcd_and_the_leader_gone_a_standby_renews_and_revokes(platform: Make, cluster: Start) -> None:
    etcd = cluster(3)
    first = platform(manifest(etcd)).up()
    node = first.node("node-1")
    talk = Talk(first.directory / "node-1" / "logs")
    before = Masters(first).place("seller", "buyer", "thief")
    second = beside(first, platform(manifest(etcd)))
    both = Masters(first, second)
    both.listed(2)
    known_to(node, 2)
    dead, standby = both.now()

    def shown() -> str:
        return first.logs() + second.logs()

    assert dead.master is not None and standby.master is not None
    talk.goes_on(shown)

    for name in etcd.clients:
        etcd.kill(name)
    dead.master.kill()
    begun = int(talk.heard()[-1])
    for name in ("agent/buyer", "agent/seller", "node/node-1/process/"):
        wait_for(lambda name=name: renewed(standby, name) >= RENEWALS, f"{name} to be renewed", 240, also=shown)
    talk.goes_on(shown)

    other = standby.tell("ps", expect=None)
    assert other.returncode == 3 and b"etcd does not answer" in other.stderr, other.stderr
    revoked = standby.tell("ca", "revoke", "thief", "--reason", "stolen")
    assert b"in force, and not yet stored" in revoked.stdout, revoked.stdout
    wait_for(lambda: not alive(before["thief"]), "the revoked agent to be cut off", also=shown)
    last = talk.falls_silent("thief", shown)
    # It is in force after a restart of neither, and what goes on goes on.
    again = renewed(standby, "agent/buyer") + 2
    wait_for(lambda: renewed(standby, "agent/buyer") >= again, "another renewal", 240, also=shown)
    talk.goes_on(shown)
    assert len(talk.heard(sender="thief")) == last
    held = kept(standby)
    assert held > 3 * RENEWALS

    for name in etcd.clients:
        etcd.start(name)
    etcd.await_healthy()
    masters = Masters(standby)
    masters.alive_again()
    assert masters.place("seller", "buyer") == {name: before[name] for name in ("seller", "buyer")}
    wait_for(lambda: kept(standby) == 0, "what was done to be stored", also=shown)
    wait_for(lambda: not [row for row in rows(etcd) if row.startswith("unstored/")], "all to be taken in", also=shown)
    is_stored(masters, held)
    assert logs(masters)
    talk.goes_on(shown)
    talk.is_whole(begun)

    # A Master that leads later has not forgotten it.
    dead.master = dead.program(SEALBUS, "up", dead.manifest, "--state", dead.state, "--json", name="again")
    stands_by(dead)
    masters = Masters(standby, dead)
    masters.listed(2)

    def handed_over() -> bool:
        with contextlib.suppress(AssertionError):
            standby.tell("masters", "hand-over")
        return leads(dead)

    wait_for(handed_over, "the other Master to lead", also=shown)
    masters.alive_again()
    is_stored(masters, held)
    talk.goes_on(shown)
    talk.is_whole(begun)
    # Only an operator gives the agent a chance again.
    assert len(talk.heard(sender="thief")) == last
    masters.tell("start", "thief")
    wait_for(lambda: len(talk.heard(sender="thief")) > last, "the agent to be believed again", also=shown)


def test_with_one_ca_lost_after_the_other_nothing_expires_and_no_message_is_lost(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up()
    node = first.node("node-1")
    talk = Talk(first.directory / "node-1" / "logs")
    before = Masters(first).place("seller", "buyer", "thief")
    places = [first, *(beside(first, platform(manifest(etcd))) for _ in range(2))]
    Masters(*places).listed(3)
    known_to(node, 3)

    def shown() -> str:
        return "".join(place.logs() for place in places)

    leader = Masters(*places).leading(lambda master: master)
    left = [place for place in places if place is not leader]
    etcd.kill("etcd-1")
    assert leader.master is not None
    leader.master.kill()
    begun = int(talk.heard()[-1])

    def are_renewed(by: list[Platform]) -> bool:
        names = ("agent/buyer", "agent/seller", "node/node-1/process/")
        return all(sum(renewed(place, name) for place in by) >= RENEWALS for name in names)

    wait_for(lambda: are_renewed(left), "all to be renewed", 240, also=shown)
    # The CA that renewed last is lost, with what it has not handed in.
    lost = max(left, key=lambda place: renewed(place, "agent/"))
    (last,) = (place for place in left if place is not lost)
    assert lost.master is not None
    lost.master.kill()
    done = {name: renewed(last, name) + RENEWALS for name in ("agent/buyer", "agent/seller", "node/node-1/process/")}
    for name, count in done.items():
        wait_for(lambda name=name, count=count: renewed(last, name) >= count, f"{name} to be renewed", 240, also=shown)
    talk.goes_on(shown)

    etcd.start("etcd-1")
    etcd.await_healthy()
    masters = Masters(last)
    masters.alive_again()
    assert masters.place("seller", "buyer", "thief") == before
    wait_for(lambda: kept(last) == 0, "what was done to be stored", also=shown)
    talk.goes_on(shown)
    talk.is_whole(begun)


def test_a_leader_without_etcd_renews_and_forgets_no_revocation(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    factory = platform(manifest(etcd)).up()
    factory.node("node-1")
    talk = Talk(factory.directory / "node-1" / "logs")
    masters = Masters(factory)
    before = masters.place("seller", "buyer", "thief")
    assert factory.master is not None
    talk.goes_on(factory.logs)
    etcd.kill("etcd-1")
    begun = int(talk.heard()[-1])

    # Its own processes are renewed, too, and the node's.
    wait_for(lambda: kept(factory) >= RENEWALS * 6, "certificates to be renewed", 240, also=factory.logs)
    revoked = factory.tell("ca", "revoke", "thief", "--reason", "stolen")
    assert b"in force, and not yet stored" in revoked.stdout, revoked.stdout
    refused = factory.tell("df", "register", "seller", "--type", "tea", "--name", "shop", expect=1).stderr
    assert b"nothing was done" in refused, refused
    wait_for(lambda: not alive(before["thief"]), "the revoked agent to be cut off", also=factory.logs)
    talk.goes_on(factory.logs)
    assert factory.nodes()["node-1"]["state"] == "alive"

    # The Master is killed before etcd is back.
    held = kept(factory)
    factory.master.kill()
    etcd.start("etcd-1")
    etcd.await_healthy()
    factory.up()
    masters.alive_again()
    wait_for(lambda: kept(factory) == 0, "what was done to be stored", also=factory.logs)
    wait_for(lambda: not [row for row in rows(etcd) if row.startswith("unstored/")], "all to be taken in", also=factory.logs)
    is_stored(masters, held)
    assert json.loads(factory.tell("ca", "log", "verify", "--json").stdout)["size"]
    assert masters.place("seller", "buyer") == {name: before[name] for name in ("seller", "buyer")}
    talk.goes_on(factory.logs)
    talk.is_whole(begun)


def test_a_master_that_starts_while_etcd_is_away_renews_and_revokes(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up()
    node = first.node("node-1")
    talk = Talk(first.directory / "node-1" / "logs")
    before = Masters(first).place("seller", "buyer", "thief")
    second = beside(first, platform(manifest(etcd)))
    Masters(first, second).listed(2)
    known_to(node, 2)

    def shown() -> str:
        return first.logs() + second.logs()

    talk.goes_on(shown)
    etcd.kill("etcd-1")
    for master in (first, second):
        assert master.master is not None
        master.master.kill()
    begun = int(talk.heard()[-1])
    second.master = second.program(SEALBUS, "up", second.manifest, "--state", second.state, "--json", name="again")
    stands_by(second)
    for name in ("agent/buyer", "agent/seller", "node/node-1/process/"):
        wait_for(lambda name=name: renewed(second, name) >= RENEWALS, f"{name} to be renewed", 240, also=shown)
    revoked = second.tell("ca", "revoke", "thief", "--reason", "stolen")
    assert b"in force, and not yet stored" in revoked.stdout, revoked.stdout
    wait_for(lambda: not alive(before["thief"]), "the revoked agent to be cut off", also=shown)
    talk.goes_on(shown)

    held = kept(second)
    etcd.start("etcd-1")
    etcd.await_healthy()
    masters = Masters(second)
    masters.alive_again()
    assert masters.place("seller", "buyer") == {name: before[name] for name in ("seller", "buyer")}
    wait_for(lambda: kept(second) == 0, "what was done to be stored", also=shown)
    is_stored(masters, held)
    talk.goes_on(shown)
    talk.is_whole(begun)
