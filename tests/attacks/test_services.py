"""A certified agent against the platform's services: AMS, DF, CA, Master and nodes."""

import json

import pytest
from attacker import mesh
from attacker.acl import management, message, word_of
from harness import ROOT, bounded, wait_for
from pair import AGENTS

WITNESS = ROOT / "tests" / "attacks" / "programs" / "witness.py"
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2
{AGENTS}
    [[agent]]
    name = "victim"
    command = ["PYTHON", "{WITNESS}"]
    node = "node-2"

    [[permission.rule]]
    deny = {{ from = ["*"], to = ["victim"] }}
"""
SEARCH = "search (df-agent-description) (search-constraints :max-results -1)"


@pytest.fixture
def attacker(factory, pair, mallory):
    taken = mallory()
    taken.appears()
    return taken


def notes(factory):
    return json.loads(factory.send("victim", '["all"]'))


def answered(link, number):
    """Waits for the answer with this number. The services answer in order."""
    while True:
        answer = link.take_message()
        if word_of(answer, "in_reply_to") == f"r{number}":
            return answer


@pytest.mark.parametrize("service", ["df", "ams"])
def test_a_request_with_20_000_reply_tos(factory, pair, attacker, service):
    many = [f"nobody-{number}@factory" for number in range(20_000)]
    words = {"language": "fipa-sl0", "ontology": "fipa-agent-management", "protocol": "fipa-request"}
    content = f"((action (agent-identifier :name {service}@factory) (search ({service}-agent-description) (search-constraints :max-results -1))))"
    with pair.talking(), bounded(pair.pids(), 96):
        link = attacker.speaks_to(service)
        link.message(0, 0, message("request", attacker.name, [f"{service}@factory"], content, reply_to=many, **words))
        # As many as a message may name are no burden either.
        few = many[:4000]
        again = attacker.speaks_to(service)
        again.message(0, 0, message("request", attacker.name, [f"{service}@factory"], content, reply_to=few, reply_with="r1", **words))
        answered(again, 1)


@pytest.mark.parametrize("service", ["df", "ams", "ca", "master", "node-1"])
def test_no_service_writes_to_whom_its_asker_may_not(factory, pair, attacker, service):
    """The victim is named as `reply-to`, and as the sender's other address."""
    link = attacker.speaks_to(service)
    name = f"{service}@factory"
    for number, (act, words) in enumerate(
        (
            ("request", {"language": "fipa-sl0", "ontology": "fipa-agent-management", "protocol": "fipa-request"}),
            ("query-ref", {"ontology": "fipa-agent-management"}),
            ("request", {"language": "json", "ontology": "sealbus-platform"}),
            ("subscribe", {"ontology": "fipa-agent-management", "conversation_id": "here-is-a-text"}),
        )
    ):
        content = "((a text for the victim))" if act != "request" else f"((action (agent-identifier :name {name}) (text)))"
        link.message(
            0, 0, message(act, attacker.name, [name], content, ["victim@factory"], reply_with=f"text-for-the-victim-{number}", **words)
        )
    link.message(0, 0, message("request", attacker.name, [name], '{"ask": "left"}', reply_with="rlast", ontology="sealbus-platform"))
    answered(link, "last")
    assert notes(factory) == []
    pair.talks()


def test_nobody_subscribes_in_anothers_name(factory, pair, attacker):
    link = attacker.speaks_to("df")
    content = f"((iota ?x (result (action (agent-identifier :name df@factory) ({SEARCH})) ?x)))"
    words = {"language": "fipa-sl2", "ontology": "fipa-agent-management", "protocol": "fipa-subscribe"}
    link.message(0, 0, message("subscribe", attacker.name, ["df@factory"], content, ["victim@factory"], conversation_id="c1", reply_with="r1", **words))
    answered(link, 1)
    factory.tell("df", "register", "sink", "--type", "sinking", "--name", "deep")
    link.message(0, 0, management(attacker.name, "df@factory", SEARCH, reply_with="r2"))
    answered(link, 2)
    assert notes(factory) == []
    pair.talks()


def test_entries_of_others_are_not_changed(factory, pair, attacker):
    for service, kind in (("df", "df-agent-description"), ("ams", "ams-agent-description")):
        link = attacker.speaks_to(service)
        for number, verb in enumerate(("register", "modify", "deregister")):
            entry = f"{verb} ({kind} :name (agent-identifier :name sink@factory :addresses (sequence http://attacker/acc)))"
            link.message(0, 0, management(attacker.name, f"{service}@factory", entry, reply_with=f"r{number}"))
            answer = answered(link, number)
            assert b"unauthorised" in answer, answer
        link.close()
    assert factory.agents()["sink"]["state"] == "active"
    pair.talks()


def test_what_is_not_for_agents_is_refused(factory, pair, attacker):
    """Certificates, reports and orders: the CA, the Master and the nodes hear nodes, or the Master, alone."""
    requests = {
        "ca": [{"ask": "certify", "voucher": {"statement": "", "chain": "", "signature": ""}}],
        "master": [{"ask": "left"}, {"ask": "leaving"}, {"ask": "exited", "process": "x", "exit": {"kind": "code", "code": 0}}],
        "node-1": [{"ask": "start", "launch": {}}, {"ask": "stop", "process": "x", "grace": 0, "reason": "x"}],
    }
    words = {"language": "json", "ontology": "sealbus-platform"}
    for service, asked in requests.items():
        link = attacker.speaks_to(service)
        for number, ask in enumerate(asked):
            link.message(0, 0, message("request", attacker.name, [f"{service}@factory"], json.dumps(ask), reply_with=f"r{number}", **words))
            answer = answered(link, number)
            assert answer[2] == 0x07, answer
        link.close()
    pair.talks()


@pytest.mark.parametrize("service", ["df", "ca", "node-2"])
def test_requests_whose_answers_are_not_read_fill_no_memory(factory, pair, attacker, service):
    """The attacker sends as much as it is allowed to, and takes none of the answers."""
    name = f"{service}@factory"
    if service == "df":
        asked = management(attacker.name, name, SEARCH, reply_with="r1")
    else:
        asked = message("request", attacker.name, [name], "{}", reply_with="r1", language="json", ontology="sealbus-platform")
    with pair.talking(), bounded(pair.pids(), 200):
        link = attacker.speaks_to(service)
        link.waits(seconds=2)
        limit, sent = link.limits[0], 0
        try:
            # The receiver counts a message with its overhead; more than it allows ends the connection.
            while (sent := sent + len(asked) + 64) < min(limit, 4 << 20):
                link.message(0, 0, asked)
        except mesh.SSL.WantWriteError:
            pass  # The platform takes no more.


def test_answers_that_repeat_long_words_and_are_not_read_fill_no_memory(factory, pair, attacker):
    """The attacker gives no room for answers, but follows how much it may send."""
    asked = management(attacker.name, "df@factory", SEARCH, reply_with="x" * (2 << 20))
    with pair.talking(), bounded(pair.pids(), 128):
        link = attacker.speaks_to("df")
        link.room = 0
        sent = 0
        for _ in range(80):
            while sent >= link.limits[0]:
                link.until(lambda kind, _: kind == mesh.CREDIT, "more room")
            link.message(0, 0, asked)
            sent += len(asked) + 64
        # The DF has handled them all when it answers another agent.
        factory.tell("df", "search", "--type", "nothing")


def test_large_subscriptions_are_bounded(factory, pair, attacker):
    words = {"language": "fipa-sl2", "ontology": "fipa-agent-management", "protocol": "fipa-subscribe"}
    service = "(service-description :name " + "x" * 50_000 + ")"
    search = f"search (df-agent-description :services (set {service})) (search-constraints :max-results -1)"
    content = f"((iota ?x (result (action (agent-identifier :name df@factory) ({search})) ?x)))"
    refusals = 0
    with pair.talking(), bounded(pair.pids(), 96):
        link = attacker.speaks_to("df")
        for number in range(100):
            subscribe = message("subscribe", attacker.name, ["df@factory"], content, conversation_id=f"c{number}", reply_with=f"r{number}", **words)
            link.message(0, 0, subscribe)
            refusals += b"limit-exceeded" in answered(link, number)
    assert refusals > 50


def test_an_agent_that_registers_as_a_df_is_not_asked(factory, pair, attacker):
    """It would tell of others' agents, with addresses of its own."""
    link = attacker.speaks_to("df")
    services = "(set (service-description :name df :type fipa-df))"
    entry = f"register (df-agent-description :name (agent-identifier :name {attacker.name}) :services {services})"
    link.message(0, 0, management(attacker.name, "df@factory", entry, reply_with="r1"))
    assert b"done" in answered(link, 1)
    assert json.loads(factory.send("victim", '["search", "false-service"]')) == []
    # A message of the DF to the attacker would be here before the answer to this.
    link.message(0, 0, management(attacker.name, "df@factory", SEARCH, reply_with="r2"))
    assert word_of(link.take_message(), "in_reply_to") == "r2"
    pair.talks()


def test_what_a_node_refuses_fills_no_log(factory, pair, attacker):
    """However often an agent asks for what only the Master and other nodes may have."""
    log = factory.state / "node-1" / "node.log"
    asks = ({"ask": "observe"}, {"ask": "post", "letters": []}, {"ask": "trail", "receiver": "sink", "letters": []})
    words = {"language": "json", "ontology": "sealbus-platform"}
    link = attacker.speaks_to("node-1")
    before = log.stat().st_size
    for number in range(600):
        asked = json.dumps(asks[number % len(asks)])
        link.message(0, 0, message("request", attacker.name, ["node-1@factory"], asked, reply_with=f"r{number}", **words))
        assert b"not-permitted" in answered(link, number)
    assert log.stat().st_size - before < 50_000
    pair.talks()
