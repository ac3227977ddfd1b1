"""A manifest with a mistake: file, line and a suggestion, and nothing is started."""

import textwrap

import pytest
from harness import one_worker, sealbus

GOOD = one_worker()


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("name = \"worker\"", "nmae = \"worker\"", 6, ["nmae", "name"]),
        ("name = \"worker\"", "name = \"worker\"\n    replicas = \"two\"", 7, ["replicas"]),
        ("\"PYTHON\"", "\"no-such-program\"", 7, ["no-such-program"]),
        ("worker.py", "worker.py\"\"", 7, []),
        ("name = \"worker\"", "name = \"bad name\"", 6, ["bad name"]),
        ("name = \"factory\"", "name = \"factory\"\n    level = \"autt\"", 4, ["autt", "auth"]),
        ("[[agent]]", "[[agnet]]", 5, ["agnet", "agent"]),
    ],
    ids=["unknown key", "wrong type", "missing program", "no TOML", "illegal name", "unknown level", "unknown table"],
)
def test_mistakes_are_shown_where_they_are(platform, old, new, line, said):
    factory = platform(GOOD.replace(old, new, 1))
    for arguments in (["--check"], []):
        done = sealbus("up", factory.manifest, "--state", factory.state, *arguments, expect=1)
        text = done.stderr.decode()
        assert "platform.toml" in text
        assert f":{line}:" in text or f"line {line}" in text, text
        for word in said:
            assert word in text
    assert not factory.pids(), "nothing was started"
    assert sealbus("ps", "--state", factory.state, expect=3)


def test_a_good_manifest_passes_the_check_and_starts_nothing(platform):
    factory = platform(GOOD)
    sealbus("up", factory.manifest, "--state", factory.state, "--check")
    sealbus("ps", "--state", factory.state, expect=3)


def test_a_manifest_that_is_not_there(tmp_path):
    done = sealbus("up", tmp_path / "none.toml", "--state", tmp_path / "state", expect=1)
    assert "none.toml" in done.stderr.decode()


def test_errors_are_json_for_programs(platform):
    factory = platform(textwrap.dedent(GOOD).replace("name = \"worker\"", "nmae = \"worker\""))
    done = sealbus("up", factory.manifest, "--state", factory.state, "--json", expect=1)
    import json

    problem = json.loads(done.stderr)
    assert "platform.toml" in problem["error"]
