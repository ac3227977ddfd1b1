"""The window in a real browser, on a platform with gateways of every kind."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from harness import Platform, one_worker, sealbus, wait_for
from looking import Looker, Window
from playwright.sync_api import expect


def running(platform):
    told = platform.ask("gateway", "list")
    return told if all(told[door] for door in ("gateway", "mcp", "a2a", "neighbours")) else None


def test_masters_gateways_and_the_broker_have_views(chromium, tmp_path):
    made = json.loads(sealbus("gateway", "key", "assistant", "--json").stdout)
    doors = f"""
    [gateway.http]
    listen = "127.0.0.1:0"

    [[gateway.http.allow]]
    platform = "plat1"
    to = ["worker"]

    [gateway.mcp]
    listen = "127.0.0.1:0"

    [[gateway.mcp.caller]]
    name = "assistant"
    key = "{made["hash"]}"

    [gateway.a2a]
    listen = "127.0.0.1:0"
    anonymous = "guest"

    [gateway.neighbours.cook]
    url = "http://127.0.0.1:9"
"""
    platform = Platform(tmp_path, one_worker() + doors)
    looker = None
    try:
        platform.up().active("worker", "gateway", "mcp", "a2a")
        gateway = wait_for(lambda: running(platform), "the gateways to answer", also=platform.logs)
        window = Window(tmp_path / "window.log", "--state", platform.state)
        platform.programs.append(window.program)
        looker = Looker(chromium, window)
        page = looker.go("gateways")
        expect(page.locator("main")).to_contain_text(f"Hosts reach {gateway['mcp']['tools']} tools of agents at {gateway['mcp']['address']}")
        expect(page.locator("main")).to_contain_text(gateway["gateway"]["addresses"][0])
        rule = page.get_by_role("region", name="Other platforms").get_by_role("row").filter(has_text="plat1")
        expect(rule).to_contain_text("manifest")
        caller = page.get_by_role("row").filter(has=page.get_by_role("link", name="assistant"))
        expect(caller.get_by_role("cell").nth(2)).to_have_text("0")

        expect(page.locator("main")).to_contain_text(f"Clients reach {gateway['a2a']['tools']} services of agents at {gateway['a2a']['address']}")
        guest = page.get_by_role("region", name="Callers: clients").get_by_role("row").filter(has_text="guest")
        expect(guest).to_contain_text("not at all")
        cook = page.get_by_role("region", name="Agents of others").get_by_role("row").filter(has_text="cook")
        expect(cook).to_contain_text("http://127.0.0.1:9")
        expect(cook.get_by_role("cell").nth(7).locator(".bad")).to_be_visible()

        # A client with the key, and a client with another one.
        for key in (made["key"], "sbk_" + "0" * 64):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(gateway["mcp"]["address"], b"{}", {"Authorization": f"Bearer {key}"}))
            refused.value.close()
        expect(caller.get_by_role("cell").nth(2)).to_have_text("1")
        expect(page.get_by_role("region", name="Refused requests of hosts").get_by_role("row").filter(has_text="unknown-key")).to_contain_text("1")
        counted = platform.ask("gateway", "counters")["mcp"]
        assert counted["refused"]["unknown-key"] == 1 and counted["callers"][0]["requests"] == 1
        assert "unknown-key" in platform.tell("gateway", "list").stdout.decode()

        looker.go("broker")
        expect(page.locator("main")).to_contain_text("it has no broker")
        looker.go("masters")
        master = page.get_by_role("region", name="Masters").get_by_role("row").filter(has_text="leads")
        expect(master).to_contain_text(platform.ask("status")["enrolment"])
    finally:
        try:
            if looker:
                looker.close()
        finally:
            platform.down()
