"""The machines of the protocols, as the native half gives them: no I/O, and every rule in one place."""

import pytest

from sealbus import AID, AclMessage, ProtocolError
from sealbus._sealbus import Initiator, Participant, Refused, opened_by, opens

BUYER, SELLER = AID("buyer@factory"), AID("seller@factory")


def test_a_contract_net_goes_through_both_roles() -> None:
    call = AclMessage("cfp", content="ten boxes")
    net, [message] = Initiator.open("fipa-contract-net", "sale-7", [SELLER], call, 0)
    assert (message.protocol, message.conversation_id, message.receivers) == ("fipa-contract-net", "sale-7", (SELLER,))
    net.end_by(60_000)
    seller = Participant.open("fipa-contract-net", message.replace(sender=BUYER), 0)
    assert isinstance(seller, Participant) and seller.initiator == BUYER
    offer = seller.send(AclMessage("propose", content="12"), 0).replace(sender=SELLER)
    assert net.count_at("called") == 1
    assert net.receive(offer, 0) == "step"
    assert net.count_at("called") == 0 and net.count_at("proposed") == 1
    [order] = net.send(AclMessage("accept-proposal"), 0, [SELLER])
    assert seller.receive(order.replace(sender=BUYER), 0) == "step"
    assert (seller.stage, seller.outcome) == ("ordered", None)

    assert net.deadline == 60_000
    assert [message.performative for message in net.advance(60_000)] == ["cancel"]
    [branch] = net.branches
    assert (branch.agent, branch.stage, branch.outcome) == (SELLER, "ordered", "timed-out")
    assert net.has_ended and net.deadline is None


def test_what_a_protocol_does_not_allow_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no interaction protocol"):
        Initiator.open("fipa-haggling", "c", [SELLER], AclMessage("cfp"), 0)
    with pytest.raises(ProtocolError, match="does not open fipa-request"):
        Initiator.open("fipa-request", "c", [SELLER], AclMessage("cfp"), 0)
    request, [message] = Initiator.open("fipa-request", "c", [SELLER], AclMessage("request"), 0)
    with pytest.raises(ProtocolError, match="accept-proposal"):
        request.send(AclMessage("accept-proposal"), 0)
    answer = message.replace(sender=SELLER, performative="propose")
    refused = request.receive(answer, 0)
    assert isinstance(refused, Refused) and refused.answer is not None
    assert refused.answer.performative == "not-understood"
    assert request.refused == 1


def test_a_message_opens_the_protocol_that_it_names_or_the_usual_one() -> None:
    assert opened_by(AclMessage("cfp")) == "fipa-contract-net"
    assert opened_by(AclMessage("cfp", protocol="fipa-iterated-contract-net")) == "fipa-iterated-contract-net"
    assert opened_by(AclMessage("inform")) is None
    assert opens("fipa-contract-net").takes(AclMessage("cfp"))
    assert not opens("fipa-iterated-contract-net").takes(AclMessage("cfp"))
    assert not opens("fipa-contract-net").takes(AclMessage("cfp", protocol="fipa-auction-dutch"))
    assert opens("fipa-auction-dutch").takes(AclMessage("inform", protocol="fipa-auction-dutch"))
