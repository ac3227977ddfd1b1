//! Any text as a name, a number, a length of time, a mode, a place in a trace, a network or a private key: an error, or a value that
//! is written and read back as itself.
#![no_main]

use std::fmt::{Debug, Display};
use std::net::IpAddr;
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use sealbus::trace::TraceContext;
use sealbus_bus::Lifetime;
use sealbus_channels::FlowPolicy;
use sealbus_manifest::isolation::Isolation;
use sealbus_seal::{
    Fingerprint, Identity, KeyPair, PlatformName, ProcessId, SecurityLevel, Serial,
    SignatureAlgorithm, Term,
};
use sealbus_transparency::LogFile;
use sealbus_web::reach::Network;

fn read<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok().as_ref(), Some(&value));
    }
}

fuzz_target!(|text: &str| {
    read::<PlatformName>(text);
    read::<Identity>(text);
    read::<ProcessId>(text);
    read::<Serial>(text);
    read::<Fingerprint>(text);
    read::<Term>(text);
    read::<Lifetime>(text);
    read::<SecurityLevel>(text);
    read::<SignatureAlgorithm>(text);
    read::<FlowPolicy>(text);
    read::<Isolation>(text);
    read::<LogFile>(text);
    if let Ok(agent) = Identity::from_agent_name(text) {
        assert_eq!(agent.agent_name().as_deref(), Some(text));
        assert!(agent.is_agent_named(text));
    }
    if let Ok(network) = text.parse::<Network>() {
        let address = text.split('/').next().unwrap_or_default();
        assert!(network.contains(address.parse::<IpAddr>().expect("its address")));
    }
    if let Ok(key) = KeyPair::from_pkcs8_pem(text) {
        let again = KeyPair::from_pkcs8_pem(&key.to_pkcs8_pem()).expect("it was written");
        assert_eq!(again.public_key(), key.public_key());
    }
    let (parent, state) = text.split_once('\n').unwrap_or((text, ""));
    if let Some(context) = TraceContext::new(parent, Some(state)) {
        let again = TraceContext::new(&context.traceparent(), context.tracestate());
        assert_eq!(again, Some(context));
    }
});
