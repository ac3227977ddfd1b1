//! Any `Host` and, behind a line feed, any `Origin` of a request to a gateway for callers: it is refused, or names a host and a page
//! that are listed.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sealbus_callers::fuzzing::base_for;
use sealbus_manifest::callers::CallersEntry;

const HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "agents.example"];
const PAGES: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "app.example"];

static ENTRY: LazyLock<CallersEntry> = LazyLock::new(|| {
    let entry = r#"{"listen": "127.0.0.1:7780", "hosts": ["agents.example"], "origins": ["https://app.example"]}"#;
    serde_json::from_str(entry).expect("an entry")
});

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (host, origin) = bytes.split_at(end.unwrap_or(bytes.len()));
    let origin = origin.get(1..).unwrap_or_default();
    let Some(base) = base_for(&ENTRY, host, origin) else {
        return;
    };
    let text = |bytes| str::from_utf8(bytes).expect("it was read as text");
    let (host, origin) = (text(host), text(origin).to_ascii_lowercase());
    let (scheme, rest) = base.split_once("://").expect("a base has a scheme");
    assert_eq!(rest, host);
    let host = host.to_ascii_lowercase();
    let name = HOSTS.into_iter().find(|name| host.starts_with(name));
    let name = name.expect("the host is listed");
    // Nobody's name begins with a bracket, so what follows an address in brackets leads nowhere else.
    let rest = &host[name.len()..];
    assert!(rest.is_empty() || rest.starts_with(':') || name.starts_with('['));
    assert_eq!(scheme == "https", name == "agents.example");
    assert!(origin.is_empty() || PAGES.into_iter().any(|name| origin.contains(name)));
});
