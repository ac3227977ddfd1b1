"""The lists that the manual reads from the code are whole."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ERRORS = runpy.run_path(str(ROOT / "docs/errors.py"))


def test_each_message_of_the_code_is_listed_under_its_name() -> None:
    for file in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        source = file.read_text()
        written = len(re.findall(r'^\s*#\[error\(\s*"', source, re.MULTILINE))
        assert len(ERRORS["errors"](source)) == written, file


def test_a_row_has_message_meaning_and_name() -> None:
    page = ERRORS["page"]()
    row = "| agent … sent a message without receivers: name at least one | The message names no receiver. | `SendError::NoReceiver` |"
    assert row in page.splitlines()


def test_each_public_name_of_the_crate_is_listed_with_its_kind_and_meaning() -> None:
    rows = runpy.run_path(str(ROOT / "docs/rust_names.py"))["rows"]()
    assert {"sealbus", "sealbus::channel"} <= {module for module, *_ in rows}
    assert [row for row in rows if not row[2] or not row[3]] == []


def test_the_page_about_the_manifest_lists_every_key() -> None:
    page = (ROOT / "docs/reference/manifest.md").read_text()
    structs = {
        "gateways/src/config.rs": ("GatewayConfig", "IiopConfig", "KnownPlatform", "GatewayLimits"),
        "gateways/src/policy.rs": ("GatewayRule",),
        "manifest/src/callers.rs": ("CallersEntry", "CallerEntry", "OauthEntry", "WebhooksEntry"),
        "manifest/src/neighbours.rs": ("NeighbourEntry",),
        "web/src/tls.rs": ("TlsConfig",),
    }
    keys: list[str] = []
    for file, names in structs.items():
        source = (ROOT / "crates" / file).read_text()
        for name in names:
            fields = re.findall(rf"pub struct {name} \{{(.*?)^\}}", source, re.DOTALL | re.MULTILINE)[0]
            fields = re.sub(r'#\[serde\([^)]*rename = "(\w+)".*?pub \w+:', r"pub \1:", fields, flags=re.DOTALL)
            keys += re.findall(r"^    pub (\w+):", fields, re.MULTILINE)
    for path in (ROOT / "crates/manifest/src").glob("*.rs"):
        lists = re.findall(r"KEYS: [^=]*=\s*&?\[(.*?)\]|unknown_keys\(\s*\w+,\s*&\[(.*?)\]", path.read_text(), re.DOTALL)
        keys += re.findall(r'"([\w-]+)"', " ".join("".join(each) for each in lists))
    assert len(keys) > 100
    # In a row or a heading of its own, or in the value of another key.
    forms = r"^\| `(?:[\w.]+\.)?{0}`[ ,]|`\[+[\w.]*\b{0}\]|`[^`\n]*\b{0} = "
    spelled = {key.replace("_", "-") for key in keys}
    assert {key for key in spelled if not re.search(forms.format(key), page, re.MULTILINE)} == set()


def test_the_page_about_the_environment_lists_every_variable() -> None:
    page = (ROOT / "docs/reference/environment.md").read_text()
    used: set[str] = set()
    for path in [*(ROOT / "crates").glob("*/src/**/*.rs"), *(ROOT / "python/sealbus").glob("**/*.py")]:
        if not {"conformance", "tests", "simulation"} & {part.removesuffix(".rs") for part in path.parts}:
            used |= set(re.findall(r'"(SEALBUS_[A-Z_]+)"', path.read_text().split("#[cfg(test)]")[0]))
    # A node sets the first two for a process that it starts; shells set the third, tests the fourth.
    within = {"SEALBUS_GATEWAY", "SEALBUS_PROCESSES", "SEALBUS_COMPLETE", "SEALBUS_SEED"}
    assert {each for each in used - within if f"`{each}`" not in page} == set()
