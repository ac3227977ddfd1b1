//! The object by which other platforms reach the gateway.

use sealbus_giop::mts::TYPE_ID;
use sealbus_giop::{CodeSetComponent, IiopProfile, Ior, ObjectAddress, TaggedData, Version};

/// The longest key in bytes. JADE reads lengths in references as signed bytes.
const LONGEST_KEY: usize = 100;
/// Components of our own: one that says nothing, and one that says that requests on a connection are carried out in
/// order.
const FILLING: u32 = 0x5342_0000;
const IN_ORDER: u32 = 0x5342_0001;

/// The gateway's object and its addresses.
#[derive(Debug)]
pub(crate) struct OwnObject {
    pub(crate) key: Vec<u8>,
    pub(crate) profile: IiopProfile,
    /// Its reference as text.
    pub(crate) ior: String,
    /// The short form, for people.
    pub(crate) corbaloc: String,
}

impl OwnObject {
    /// The object of a platform. Its key is the platform's name, so that addresses outlive a restart of the gateway. The
    /// key is no secret: the rules decide who may write.
    pub(crate) fn new(platform: &str, host: String, port: u16) -> Self {
        let name = platform.as_bytes();
        let key = name[..name.len().min(LONGEST_KEY)].to_vec();
        let in_order = TaggedData {
            id: IN_ORDER,
            data: Vec::new(),
        };
        let profile = legible(IiopProfile {
            version: Version::V1_2,
            host,
            port,
            key: key.clone(),
            components: vec![CodeSetComponent::own(), in_order],
        });
        Self {
            key,
            ior: Ior::new(TYPE_ID, &profile).to_string(),
            corbaloc: ObjectAddress::corbaloc(&profile),
            profile,
        }
    }
}

/// Whether a server carries out the requests on a connection in order. The GlassFish ORB under JADE, and omniORB, give
/// each to a thread of its own.
pub(crate) fn keeps_order(profile: &IiopProfile) -> bool {
    profile.components.iter().any(|it| it.id == IN_ORDER)
}

/// Changes a profile so that JADE can read it. JADE takes the lowest byte of the profile's length for a signed number:
/// from 128 to 255, and so on, it refuses the reference.
fn legible(mut profile: IiopProfile) -> IiopProfile {
    for filling in (0..=256).step_by(32) {
        let mut tried = profile.clone();
        if filling > 0 {
            tried.components.push(TaggedData {
                id: FILLING,
                data: vec![0; filling],
            });
        }
        if tried.to_profile(Default::default()).data.len() % 256 < 128 {
            profile = tried;
            break;
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jade_can_read_the_reference_whatever_the_host_is_called() {
        for length in 1..=250 {
            let own = OwnObject::new("factory", "h".repeat(length), 9000);
            let data = own.profile.to_profile(Default::default()).data;
            assert!(data.len() % 256 < 128, "{length}: {}", data.len());
            let read: ObjectAddress = own.ior.parse().unwrap();
            assert_eq!(read.endpoints(), std::slice::from_ref(&own.profile));
            let read: ObjectAddress = own.corbaloc.parse().unwrap();
            assert_eq!(read.endpoints()[0].key, b"factory");
        }
    }
}
