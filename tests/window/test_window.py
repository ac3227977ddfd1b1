"""The window in a real browser, on a real platform."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from attacker.acl import message
from attacker.mallory import milliseconds
from harness import Platform, one_worker, wait_for
from looking import Looker, Window
from playwright.sync_api import TimeoutError as Overtaken
from playwright.sync_api import expect

VIEWS = ["overview", "agents", "agents/ann", "map", "conversations", "channels", "refusals", "nodes", "masters", "gateways", "broker", "certificates"]
HOSTILE = ["<img src=x onerror=alert(1)>", "\"><svg/onload=alert(1)>", "\u202eevil\u200b", "\x1b[2Jhidden", "constructor", "x" * 20_000]


def fact(page, name):
    return page.locator(".facts > div", has=page.get_by_text(name, exact=True)).locator("dd")


def knock(factory):
    """A stranger knocks, and is refused."""
    host, port = factory.ask("status")["address"].rsplit(":", 1)
    with suppress(ConnectionError), socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"let me in, please\r\n")
        stranger.recv(100)


def is_open(address, port):
    try:
        socket.create_connection((address, port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_the_overview_and_the_agents_follow_the_platform(factory, look):
    page = look().page
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.locator("#connection")).to_have_text("live")
    # Agents of other tests may still be leaving.
    wait_for(lambda: fact(page, "Agents").inner_text() == str(factory.ask("status")["agents"]), "the number of agents")
    expect(fact(page, "Nodes")).to_have_text("1")
    assert "once" not in page.url, "the secret leaves the address"

    page.get_by_role("link", name="Agents", exact=True).click()
    ann = page.get_by_role("row").filter(has=page.get_by_role("link", name="ann@factory"))
    expect(ann.get_by_role("cell").nth(1)).to_have_text("active")
    expect(ann.get_by_role("cell").nth(2)).to_have_text("node-1")
    before = int(ann.get_by_role("cell").nth(5).inner_text())
    factory.send("ann", json.dumps(["send", "ben", 50, 0]))
    wait_for(lambda: int(ann.get_by_role("cell").nth(5).inner_text()) >= before + 51, "the messages to be counted")

    factory.tell("kill", "carl")
    carl = page.get_by_role("row").filter(has=page.get_by_role("link", name="carl@factory"))
    expect(carl.get_by_role("cell").nth(1)).to_have_text("ended")
    factory.tell("start", "carl")
    expect(carl.get_by_role("cell").nth(1)).to_have_text("active")


def test_a_filter_is_in_the_address_and_an_address_is_a_view(look):
    looker = look()
    page = looker.go("agents")
    expect(page.get_by_role("link", name="ben@factory")).to_be_visible()
    # The filter is a key away.
    page.keyboard.press("/")
    page.keyboard.type("ann")
    expect(page.get_by_role("link", name="ben@factory")).to_have_count(0)
    expect(page.get_by_role("link", name="ann@factory")).to_be_visible()
    assert page.url.endswith("#/agents?filter=ann"), page.url
    page.get_by_role("button", name="Waiting").click()
    assert page.url.endswith("#/agents?filter=ann&sort=Waiting"), page.url

    # The session is the tab's, so the address alone brings the view back.
    page.reload()
    expect(page.get_by_label("Filter")).to_have_value("ann")
    expect(page.get_by_role("columnheader", name="Waiting")).to_have_attribute("aria-sort", "descending")
    expect(page.get_by_role("link", name="ben@factory")).to_have_count(0)

    page.get_by_role("link", name="ann@factory").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ann@factory")
    expect(fact(page, "State")).to_have_text("active")
    expect(page.get_by_role("region", name="Log")).to_contain_text("ann is set up")
    expect(page.get_by_role("region", name="Certificates")).to_contain_text("spiffe://factory/agent/ann")
    expect(page.get_by_role("region", name="Steps")).to_contain_text("6 of 6")


def test_conversations_are_drawn_as_they_happen(factory, look, tmp_path):
    looker = look()
    page = looker.go("conversations?agent=ann&performative=inform")
    expect(page.locator("#connection")).to_have_text("live")
    drawing = page.get_by_role("region", name="Sequence diagram")

    def drawn():
        factory.send("ann", json.dumps(["send", "ben", 3, 0]))
        return drawing.locator(".arrow").count() >= 3

    wait_for(drawn, "arrows")
    expect(drawing.locator("text.head").filter(has_text="ben")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("As a table", exact=True).click()
    table = page.get_by_role("region", name="The same as a table")
    assert set(table.locator("tbody td:nth-child(4)").all_inner_texts()) == {"inform"}
    numbers = table.get_by_role("row").filter(has_text="ben@factory")
    expect(numbers.first.get_by_role("cell").nth(4)).to_have_text("proved")

    arrows = drawing.locator(".arrow").count()
    factory.send("ann", json.dumps(["send", "ben", 3, 0]))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").click()
    assert drawing.locator(".arrow").count() == arrows
    record = tmp_path / "seen.jsonl"
    download.value.save_as(record)
    told = factory.tell("sniff", "--open", record, "ann", "--performative", "inform", "--json").stdout.splitlines()
    assert len(told) >= arrows and {json.loads(line)["from"] for line in told} == {"ann@factory"}

    # The window opens it again, without a platform.
    again = look(record)
    expect(again.page.locator("#connection")).to_have_text("a recording")
    again.go("conversations?performative=inform")
    assert again.page.get_by_role("link", name="Certificates").count() == 0
    wait_for(lambda: again.page.locator(".arrow").count() >= arrows, "the recording to be drawn")


def test_a_conversation_says_how_it_stands(look, tmp_path):
    def head(at, conversation, performative, sender, receiver, protocol="fipa-contract-net"):
        return {
            "seen": "message", "at": at, "from": f"{sender}@market", "to": f"{receiver}@market", "performative": performative,
            "conversation": conversation, "protocol": protocol, "size": 1, "provenance": "proved",
        }  # fmt: skip

    calls = [head(at, name, "cfp", "buyer", seller) for at, name in ((1, "waits"), (2, "ends"), (3, "fails")) for seller in ("tim", "tom")]
    seen = [
        *calls,
        head(10, "waits", "propose", "tim", "buyer"),
        *(head(10, "ends", "propose", seller, "buyer") for seller in ("tim", "tom")),
        *(head(10, "fails", "refuse", seller, "buyer") for seller in ("tim", "tom")),
        head(11, "ends", "accept-proposal", "buyer", "tim"),
        head(12, "ends", "inform", "tim", "buyer"),
        head(13, "ends", "reject-proposal", "buyer", "tom"),
        head(14, "asks", "request", "ann", "ben", "fipa-request"),
        head(20_000, "answers", "not-understood", "ben", "ann", "fipa-request"),
    ]
    file = tmp_path / "standing.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in [{"sealbus-sniff": 1}, *seen]))
    page = look(file).go("conversations")
    stands = {"waits": "no answer from tom", "ends": "done", "fails": "all refused", "asks": "no answer for 20 s", "answers": "not understood"}
    for name, how in stands.items():
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(row.get_by_role("cell").nth(1)).to_have_text(how)
    # One conversation alone; its address names it.
    page.get_by_role("link", name="ends", exact=True).click()
    expect(page.locator(".arrow")).to_have_count(7)
    assert page.url.endswith("conversations?conversation=ends")


def test_a_refused_attempt_appears_with_its_reason_and_what_to_do(factory, look, mallory):
    page = look().go("refusals")
    knock(factory)
    refused = page.locator(".refusals li").filter(has_text="127.0.0.1").first
    expect(refused).to_contain_text("malformed")
    expect(refused).to_contain_text("What to do: It is no message of this platform")
    taken = mallory("thief")
    taken.appears()
    taken.speaks_to("ann").message(0, 0, message("inform", "ben@factory", ["ann@factory"], "it was me"))
    forged = page.locator(".refusals li").filter(has_text="forged-sender").first
    expect(forged).to_contain_text("“ben@factory” → ann@factory")
    expect(forged).to_contain_text("thief@factory wrote under the name of ben@factory")
    expect(forged).to_contain_text("sealbus kill NAME")
    page.get_by_role("combobox").select_option("malformed")
    expect(page.locator(".refusals li").filter(has_text="forged-sender")).to_have_count(0)

    page.get_by_role("link", name="Map").click()
    expect(page.get_by_role("region", name="Map").get_by_text("✗ forged-sender").first).to_be_visible()
    expect(page.get_by_role("region", name="Who wrote to whom")).to_contain_text("refused: forged-sender")
    page.get_by_role("link", name="Overview").click()
    expect(fact(page, "Refused")).not_to_have_text("0")


def test_hostile_names_are_text(factory, look, mallory, tmp_path):
    taken = mallory("painter")
    taken.appears()
    looker = look()
    page = looker.go("refusals")
    record = {"at": milliseconds(), "receiver": "ann", "reason": "forged-sender: <b>no</b>", "count": 1, "by": None}
    names = [*HOSTILE[:4], "y" * 1_000_000]
    taken.rpc.call(ask="refusals", records=[record | {"who": name} for name in names])
    items = page.locator(".refusals li")
    for shown in ("<img src=x onerror=alert(1)>", '"><svg/onload=alert(1)>', r"\u{202e}evil\u{200b}", r"\u{1b}[2Jhidden", "<b>no</b>", "yyyy"):
        expect(items.filter(has_text=shown).first).to_be_visible()

    # A recording may say anything at all, as anybody may have written it.
    file = tmp_path / "hostile.jsonl"
    head = {"seen": "message", "at": milliseconds(), "performative": "inform", "size": 1, "provenance": "claimed"}
    lines = [{"sealbus-sniff": 1}, *(head | {"from": name, "to": "ann", "conversation": name, "protocol": name} for name in HOSTILE)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    again = look(file)
    for view in ("conversations", "map", "overview"):
        page = again.go(view)
        expect(page.get_by_role("heading", level=1)).to_have_text(view.capitalize())
    again.go("conversations")
    page.get_by_text("As a table", exact=True).click()
    table = page.get_by_role("region", name="The same as a table")
    for shown in ("<img src=x onerror=alert(1)>", r"\u{202e}evil\u{200b}", r"\u{1b}[2Jhidden", "constructor", "xxxx"):
        expect(table.get_by_role("row").filter(has_text=shown)).to_have_count(1)
    for each in (looker, again):
        text = each.page.locator("body").inner_text()
        assert not re.search("[\u202e\u200b\x1b]", text)
        assert each.page.locator("img, main script, [onload]").count() == 0
        assert len(text) < 20_000, "long names are cut"


def test_times_that_no_calendar_has_stop_no_view(look, tmp_path):
    file = tmp_path / "times.jsonl"
    refused = {"seen": "refused", "at": 2**64 - 1, "who": "mallory", "receiver": "ann", "reason": "forged-sender: no", "count": 1}
    head = {"seen": "message", "at": 2**64 - 1, "from": "ben", "to": "ann", "performative": "inform", "size": 1, "provenance": "claimed"}
    file.write_text("".join(f"{json.dumps(line)}\n" for line in ({"sealbus-sniff": 1}, refused, head)))
    looker = look(file)
    for view in ("overview", "refusals"):
        expect(looker.go(view).locator(".refusals li")).to_have_count(1)
    drawing = looker.go("conversations").get_by_role("region", name="Sequence diagram")
    expect(drawing.locator(".arrow")).to_have_count(2)


def test_a_link_is_good_once_and_other_pages_are_refused(look, chromium):
    looker = look()
    expect(looker.page.locator("#connection")).to_have_text("live")
    second = chromium.new_page()
    second.goto(looker.window.link)
    expect(second.get_by_role("heading", level=1)).to_have_text("The window is closed")
    expect(second.locator("main")).to_contain_text("press Enter where")
    second.goto(f"{looker.window.address}#/agents")
    second.reload()
    expect(second.locator("main")).to_contain_text("Open the link")
    second.close()

    def answer(path, **fields):
        try:
            with urlopen(Request(looker.window.address + path, headers=fields, data=b"{}" if path else None)) as answered:
                return answered.status
        except HTTPError as refused:
            return refused.code

    assert answer("") == 200
    assert answer("stream") == answer("ask") == 403
    assert answer("", Host="evil.example") == 403
    assert answer("", Origin="http://evil.example") == 403


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(factory, look, axe, scheme):
    knock(factory)
    # The page's own policy would keep the test's script out.
    looker = look(color_scheme=scheme, bypass_csp=True)
    expect(looker.page.locator("#connection")).to_have_text("live")
    factory.send("ann", json.dumps(["send", "ben", 3, 0]))
    looker.page.evaluate(axe)
    for view in VIEWS:
        looker.go(view)
        expect(looker.page.locator("main h1")).to_be_visible()
        looker.page.wait_for_timeout(300)
        found = looker.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        told = [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found["violations"]]
        assert told == [], f"{view}, {scheme}: {told}"


def test_bodies_are_shown_where_the_operator_allowed_it(factory, look):
    without = look()
    page = without.go("conversations?bodies=yes")
    expect(page.get_by_text("sealbus window --bodies")).to_be_visible()
    expect(page.get_by_label("Show bodies")).to_be_hidden()
    page = look("--state", factory.state, "--bodies").go("conversations")
    page.get_by_label("Show bodies").check()
    table = page.get_by_role("region", name="The same as a table, the latest first")
    said = table.get_by_role("cell").filter(has_text=f"{HOSTILE[0]} between us")
    summary = page.locator("summary", has_text="As a table")

    def is_shown():
        factory.tell("send", "carl", f"{HOSTILE[0]} between us")
        if summary.is_visible() and not table.is_visible():
            with suppress(Overtaken):  # by a page that was drawn anew
                summary.click(timeout=1000)
        return said.count() > 0

    wait_for(is_shown, "the words of a message")
    # The other window saw the heads of the same messages, and no words.
    expect(without.page.locator("main")).to_contain_text("carl")
    expect(without.page.locator("main")).not_to_contain_text("between us")


# The address changes while the link is redeemed, and an answer to a question that was asked before comes later.
EARLY = """
const real = window.fetch;
let isRedeemed = false;
window.fetch = async (address, options) => {
  if (String(address).endsWith("session")) {
    location.hash = "#/conversations";
    await new Promise((done) => setTimeout(done, 500));
    const answer = await real(address, options);
    isRedeemed = true;
    return answer;
  }
  const wait = isRedeemed ? 0 : 1500;
  const answer = await real(address, options);
  await new Promise((done) => setTimeout(done, wait));
  return answer;
};
"""


def test_the_address_may_change_while_the_link_is_redeemed(look):
    page = look(script=EARLY).page
    page.get_by_label("Protocol").wait_for()
    # Had the page asked without a session, it would be closed by now.
    page.wait_for_timeout(2500)
    expect(page.get_by_label("Protocol")).to_be_visible()


def test_nothing_is_changed_without_operate(factory, look):
    looker = look()
    page = looker.go("agents/ann")
    expect(fact(page, "State")).to_have_text("active")
    expect(page.get_by_role("button", name="Kill…")).to_have_count(0)
    asked = {"confirm": "ann", "act": {"do": "kill", "agent": "ann"}}
    status, told = act(looker, asked)
    assert status == 403 and "--operate" in told
    assert factory.agents()["ann"]["state"] == "active"


def test_an_operator_kills_moves_and_revokes_and_types_the_name(chromium, tmp_path):
    platform = Platform(tmp_path, one_worker("    nodes = 2"))
    looker = None
    try:
        platform.up().active("worker")
        window = Window(tmp_path / "window.log", "--state", platform.state, "--operate")
        platform.programs.append(window.program)
        looker = Looker(chromium, window)
        page = looker.go("agents/worker")
        first = platform.agents()["worker"]
        other = "node-2" if first["node"] == "node-1" else "node-1"
        expect(fact(page, "Node")).to_have_text(first["node"])
        page.get_by_role("button", name="Move…").click()
        dialog = page.get_by_role("dialog", name="Move worker?")
        move = dialog.get_by_role("button", name="Move")
        expect(dialog.get_by_role("combobox")).to_have_value(other)
        dialog.get_by_label("Type worker").fill("work")
        expect(move).to_be_disabled()
        dialog.get_by_label("Type worker").fill("worker")
        move.click()
        expect(dialog).to_have_count(0)
        status = page.get_by_role("region", name="Operate").get_by_role("status")
        expect(status).to_have_text(f"worker moved to {other}")
        expect(fact(page, "Node")).to_have_text(other)
        page.get_by_role("button", name="Kill…").click()
        dialog = page.get_by_role("dialog", name="Kill worker?")
        page.keyboard.type("worker")
        dialog.get_by_role("button", name="Cancel").click()
        assert platform.agents()["worker"]["state"] == "active"
        page.get_by_role("button", name="Revoke…").click()
        dialog = page.get_by_role("dialog", name="Revoke worker?")
        dialog.get_by_label("Reason").fill("seen in the window")
        dialog.get_by_label("Type worker").fill("worker")
        dialog.get_by_role("button", name="Revoke").click()
        expect(status).to_contain_text("revoked")
        expect(page.get_by_role("region", name="Certificates")).to_contain_text("seen in the window")
        page.get_by_role("button", name="Kill…").click()
        page.keyboard.type("worker")
        page.keyboard.press("Enter")
        expect(fact(page, "State")).to_have_text("ended")

        # A name that was not typed, and what a link or an image does.
        assert act(looker, {"confirm": "other", "act": {"do": "kill", "agent": "worker"}})[0] == 400
        assert act(looker, None)[0] == 404
    finally:
        try:
            if looker:
                looker.close()
        finally:
            platform.down()


def test_beyond_this_machine_the_window_speaks_tls_alone(factory, look, tmp_path):
    everywhere = ("window", "--no-open", "--address", "0.0.0.0")
    for more, words in (((), b"--certificate FILE"), (("--name", "localhost"), b"over TLS only")):
        assert words in factory.tell(*everywhere, *more, expect=2).stderr
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    proof = ("--address", "0.0.0.0", "--name", "localhost", "--certificate", certificate, "--key", key)
    looker = look("--state", factory.state, *proof, ignore_https_errors=True)
    assert looker.window.link.startswith("https://localhost:")
    expect(looker.page.locator("#connection")).to_have_text("live")

    context = ssl.create_default_context(cafile=certificate)
    address = looker.window.address
    with urlopen(address, context=context) as answer:
        assert b"<title>Sealbus" in answer.read()
    for fields in ({"Host": "evil.example"}, {"Origin": address.replace("https", "http").rstrip("/")}):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(address, headers=fields), context=context)
        refused.value.close()
        assert refused.value.code == 403
    # Clients that do not speak TLS learn nothing.
    with socket.create_connection(("127.0.0.1", int(address.rstrip("/").rsplit(":", 1)[1]))) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionError):
            assert b"Sealbus" not in plain.recv(1000)


def act(looker, asked):
    """Asks as the page does, without its dialog; with GET, if nothing is asked. The status and the text of the answer."""
    key = looker.page.evaluate("sessionStorage.getItem('sealbus-session')")
    body = None if asked is None else json.dumps(asked).encode()
    try:
        with urlopen(Request(f"{looker.window.address}act", body, {"Sealbus-Session": key})) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_up_begins_with_a_window(chromium, tmp_path):
    platform = Platform(tmp_path, one_worker())
    try:
        platform.up("--window")
        link = wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+/#once=\S+", platform.master.output()), "the link", also=platform.logs)
        page = chromium.new_page()
        page.goto(link[0])
        expect(page.locator("#connection")).to_have_text("live")
        page.close()
        platform.master.end()
        address, port = link[0].partition("/#")[0].removeprefix("http://").split(":")
        wait_for(lambda: not is_open(address, int(port)), "the window to end")
    finally:
        platform.down()


def test_the_page_comes_back_with_the_master(factory, look):
    page = look().go("agents")
    expect(page.locator("#connection")).to_have_text("live")
    factory.master.kill()
    expect(page.locator("#connection")).to_contain_text("away")
    factory.up()
    expect(page.locator("#connection")).to_have_text("live")
    ann = page.get_by_role("row").filter(has=page.get_by_role("link", name="ann@factory"))
    expect(ann.get_by_role("cell").nth(1)).to_have_text("active")
