"""Channels between real processes, seen through the command line."""

from shops import AGENTS, trade

SHOPS = f"""
    [platform]
    name = "factory"
{AGENTS}
"""


def test_the_command_line_lists_publishes_reads_and_asks(platform, tmp_path):
    factory = platform(SHOPS)
    factory.up().active("shop-1", "shop-2")
    trade(factory, tmp_path, "proved")
