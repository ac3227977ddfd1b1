"""The same agents, unchanged, at each security level."""

import json
import re

import pytest
from harness import PROGRAMS, sealbus, wait_for


@pytest.mark.parametrize("level", ["none", "tls", "auth", "signed", "sealed"])
def test_agents_talk_at_each_level(platform, level):
    factory = platform(
        f"""
        [platform]
        name = "factory"
        level = "{level}"
        nodes = 2

        [[agent]]
        name = "source"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        node = "node-1"

        [[agent]]
        name = "sink"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        node = "node-2"
        """
    ).up()
    factory.active("source", "sink")
    factory.send("source", '["send", "sink", 500, 0]')
    wait_for(
        lambda: json.loads(factory.send("sink", '["heard"]')) == {"source": list(range(500))},
        "500 messages once and in order",
        also=factory.logs,
    )


@pytest.mark.parametrize(
    "refused",
    ["[[channel]]\npath = '/news'\npersistent = true", "[gateway.http]\nport = 0", "[gateway.iiop]\nport = 0"],
)
def test_what_cannot_be_sealed_is_refused_by_name(platform, refused):
    factory = platform(f'[platform]\nname = "factory"\nlevel = "sealed"\n{refused}\n')
    done = sealbus("up", factory.manifest, "--state", factory.state, expect=1)
    said = done.stderr.decode()
    assert "sealed" in said and refused.split("\n")[0] in said, said
    assert not factory.pids()


def test_a_channel_that_wants_more_than_the_platforms_level_is_refused_by_name(platform):
    factory = platform(
        """
        [platform]
        name = "factory"
        level = "tls"

        [[channel]]
        path = "/secret"
        qos = "level=auth"
        """
    ).up()
    wait_for(lambda: [each for each in factory.nodes().values() if each["state"] == "alive"], "the node")
    state = ("--state", factory.state)
    for channel, *qos in (("/secret",), ("/open", "--qos", "level=auth"), ("sealbus:level=sealed:///open/",)):
        done = sealbus("channel", "publish", channel, "text", *qos, *state, expect=2)
        level = "level=sealed" if "sealed" in channel else "level=auth"
        assert level in done.stderr.decode(), done.stderr
    sealbus("channel", "publish", "/open", "text", "--qos", "level=tls", *state)


def test_the_option_raises_the_manifests_level(platform):
    factory = platform('[platform]\nname = "factory"\nlevel = "none"\n').up("--level", "auth")
    wait_for(lambda: re.search(r"at level auth\b", factory.master.output()), "the level to be told")
