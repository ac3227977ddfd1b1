//! Any text: an error, or an address, QoS or pattern of a channel that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_channels::{ChannelAddress, ChannelPath, ChannelPattern, QosOverride};

fuzz_target!(|text: &str| {
    if let Ok(address) = text.parse::<ChannelAddress>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    if let Ok(qos) = text.parse::<QosOverride>() {
        assert_eq!(qos.to_string().parse(), Ok(qos));
    }
    if let Ok(pattern) = ChannelPattern::new(text) {
        let path = pattern.as_path();
        assert_eq!(path.is_some(), ChannelPath::new(text).is_ok());
        assert!(path.is_none_or(|path| pattern.matches(&path)));
        assert!(pattern.overlaps(&pattern));
    }
});
