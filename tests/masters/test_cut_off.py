"""A Master that reaches etcd and not the nodes does not go on leading."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import wires
from etcd import Etcd
from harness import SEALBUS, Platform, wait_for
from test_etcd import manifest
from test_standby import Masters, known_to

Make = Callable[[str], Platform]


@pytest.mark.skipif(not wires.ARE_POSSIBLE, reason="networks that can be cut need root and iproute2")
def test_a_leader_that_reaches_etcd_and_no_node_hands_over(platform: Make, tmp_path: Path) -> None:
    with wires.Wires() as net:
        etcd = Etcd(tmp_path / "etcd", 1, net.master)
        try:
            etcd.await_healthy()
            hands_over(platform, etcd, net)
        finally:
            etcd.end()


def hands_over(platform: Make, etcd: Etcd, net: wires.Wires) -> None:
    places: list[Platform] = []
    for _ in range(2):
        by, own = net.machine()
        master = platform(manifest(etcd, "seller", "buyer"))
        join = ("--join", places[0].ask("token", "--master")["token"]) if places else ()
        words = (*by, SEALBUS, "up", master.manifest, *join, "--address", own, "--state", master.state)
        master.master = master.program(*words, name="up")
        places.append(master)
        Masters(*places).listed(len(places))
    masters = Masters(*places)
    by, own = net.machine()
    node = places[0].node("node-1", "--address", own, run_by=by)
    known_to(node, 2)
    before = masters.place("seller", "buyer")
    masters.tell("df", "register", "seller", "--type", "tea", "--name", "shop")
    (led, *_) = masters.listed(2)
    leader, other = masters.now()

    net.part(places.index(leader) + 1, 3)

    def has_changed() -> bool:
        (now, *_) = masters.listed(2)
        return bool(now["enrolment"] != led["enrolment"])

    wait_for(has_changed, "the other Master to lead", also=lambda: leader.logs() + other.logs())
    masters.alive_again()
    assert masters.now()[0] is other
    assert leader.master is not None and "master-cut-off" in leader.master.output()
    assert masters.place("seller", "buyer") == before
    assert "shop" in json.dumps(other.ask("df", "search"))
    assert masters.asked("seller", '["where"]') == before["seller"]
