//! Any rows of the platform's state, on each line a key, a space and a value: a Master and a CA refuse them, or write rows from
//! which the next ones go on.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_ca::CaService;
use sealbus_master::state::{DrawName, MasterState, TimeLimits};
use sealbus_seal::{PlatformName, RootAuthority, Timestamp, Trust, Validity};
use sealbus_store::Row;

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

static ROOT: LazyLock<(PlatformName, Validity, RootAuthority)> = LazyLock::new(|| {
    let platform = PlatformName::new("factory").expect("a legal name");
    let validity = Validity::starting(NOW, Duration::from_secs(86_400));
    let root = RootAuthority::create(&platform, validity).expect("a root");
    (platform, validity, root)
});

type Rows = BTreeMap<String, Vec<u8>>;

fn view(rows: &Rows) -> impl Iterator<Item = (&str, &[u8])> {
    rows.iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()))
}

fn with(mut rows: Rows, changes: Vec<Row>) -> Rows {
    for (key, value) in changes {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
    rows
}

fn master(rows: &Rows) -> Option<MasterState> {
    let draw_name: DrawName = Box::new(|| Ok("0".repeat(32)));
    let now = NOW.as_unix_seconds() * 1000;
    MasterState::load(view(rows), 1, TimeLimits::default(), draw_name, now).ok()
}

fn ca(rows: &Rows) -> Option<CaService> {
    let (platform, validity, root) = &*ROOT;
    let authority = root.create_authority("ca-1", *validity).expect("a CA");
    let roots = [root.certificate().clone()];
    let trust = Trust::new(platform.clone(), &roots, Duration::ZERO).expect("its trust");
    let lifetime = Duration::from_secs(3600);
    CaService::load(authority, Arc::new(trust), lifetime, view(rows), None, NOW).ok()
}

fn known(state: &MasterState) -> String {
    serde_json::to_string(&(state.nodes(), state.groups())).expect("it has a form")
}

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| *byte == b'\n');
    let rows: Rows = lines
        .filter_map(|line| {
            let end = line.iter().position(|byte| *byte == b' ')?;
            let key = str::from_utf8(&line[..end]).ok()?;
            Some((key.to_owned(), line[end + 1..].to_vec()))
        })
        .collect();
    let has = |prefixes: &[&str]| {
        let mut keys = rows.keys();
        keys.any(|key| prefixes.iter().any(|prefix| key.starts_with(prefix)))
    };
    if has(&MasterState::ROWS)
        && let Some(mut state) = master(&rows)
    {
        let before = known(&state);
        let changes = state.take_rows(NOW.as_unix_seconds() * 1000);
        let again = master(&with(rows.clone(), changes)).expect("it reads what it wrote");
        assert_eq!(known(&again), before);
    }
    if has(&CaService::ROWS)
        && let Some(mut service) = ca(&rows)
    {
        let changes = service.take_rows();
        assert!(ca(&with(rows.clone(), changes)).is_some());
    }
});
