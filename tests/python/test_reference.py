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


def test_the_page_about_the_manifest_lists_every_key_of_the_gateway_and_of_witnesses() -> None:
    page = (ROOT / "docs/reference/manifest.md").read_text()
    structs = {
        "gateways/src/config.rs": ("GatewayConfig", "IiopConfig", "KnownPlatform", "GatewayLimits"),
        "gateways/src/policy.rs": ("GatewayRule",),
        "web/src/tls.rs": ("TlsConfig",),
    }
    witness = (ROOT / "crates/manifest/src/witness.rs").read_text()
    keys = re.findall(r'"(\w+)"', re.findall(r"KEYS: [^=]* = &\[(.*?)\]", witness)[0])
    for file, names in structs.items():
        source = (ROOT / "crates" / file).read_text()
        for name in names:
            fields = re.findall(rf"pub struct {name} \{{(.*?)^\}}", source, re.DOTALL | re.MULTILINE)[0]
            keys += re.findall(r"^    pub (\w+):", fields, re.MULTILINE)
    assert len(keys) > 30
    assert [key for key in keys if f"| `{key.replace('_', '-')}` |" not in page] == []
