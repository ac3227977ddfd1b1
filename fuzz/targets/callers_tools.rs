//! Any text as the schema and the description of an agent's tool: it is left out, or callers get an object and short, harmless
//! texts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus::Aid;
use sealbus::acl::sl::Term;
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use sealbus_callers::schema::{Shape, as_object};
use sealbus_callers::tools::{LONGEST_DESCRIPTION, LONGEST_SCHEMA, tools};

fuzz_target!(|text: &str| {
    let said = || Term::Text(text.to_owned().into());
    let service = ServiceDescription::new("count", "count")
        .with_property("input", said())
        .with_property("output", said())
        .with_property("description", said());
    let mut entry = DfAgentDescription::of(Aid::new("clock@factory").expect("a legal name"));
    entry.services.push(service);
    for tool in tools(&entry, "factory") {
        assert_eq!(
            (tool.local.as_str(), tool.name.as_str()),
            ("clock", "count")
        );
        assert!(text.len() <= LONGEST_SCHEMA);
        assert!(tool.about.len() <= LONGEST_DESCRIPTION + '…'.len_utf8());
        assert!(!tool.about.chars().any(char::is_control));
        assert_eq!(tool.output.as_ref(), Some(&tool.input));
        let Some((schema, shape)) = as_object(tool.input, "input") else {
            continue;
        };
        assert_eq!(schema["type"], "object");
        if shape == Shape::Member {
            assert!(schema["properties"]["input"].is_object());
        }
    }
});
