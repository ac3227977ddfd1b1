"""The AMS describes the platform: its message transports and their addresses (FIPA00023, `get-description`)."""

from harness import Platform, wait_for

MANIFEST = """
    [platform]
    name = "factory"
    nodes = 1

    [gateway.http]
    listen = "127.0.0.1:0"
"""
GET = "((action (agent-identifier :name ams@factory) (get-description)))"


def test_the_description_names_the_gateways_addresses(platform):
    factory = platform(MANIFEST).up()

    def described(factory: Platform) -> str:
        words = ("--language", "fipa-sl0", "--ontology", "FIPA-Agent-Management", "--protocol", "fipa-request")
        return factory.send("ams", GET, *words)

    def listens():
        return (factory.ask("gateway", "list")["gateway"] or {}).get("addresses")

    (address,) = wait_for(listens, "the gateway to run", also=factory.logs)
    service = "(ap-service :name fipa.mts.mtp.http.std :type fipa.mts.mtp.http.std :addresses (sequence"

    def is_told():
        text = described(factory)
        return text if service in text else None

    assert address in wait_for(is_told, "the AMS to know the gateway", also=factory.logs)
