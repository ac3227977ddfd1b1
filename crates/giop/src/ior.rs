//! References to objects (CORBA 3.3 part 2, 7.6.2): the type of an object, and the ways to reach it.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::address_error::ObjectAddressError;
use crate::cdr::{ByteOrder, Decoder, Encoder, MarshalError, MarshalProblem};
use crate::codeset::CodeSetComponent;
use crate::context::TaggedData;
use crate::header::Version;

/// The tag of a profile for IIOP.
const IIOP: u32 = 0;
/// The most profiles of one reference.
const MOST_PROFILES: usize = 16;
/// The longest reference as text, in bytes.
const LONGEST: usize = 4 << 10;

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ior {
    /// The repository id of the object's interface.
    pub type_id: Vec<u8>,
    /// The ways to reach it.
    pub profiles: Vec<TaggedData>,
}

/// The way to an object over TCP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IiopProfile {
    /// The highest version that the server speaks.
    pub version: Version,
    /// The server's host, a name or an address.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The object's key there.
    pub key: Vec<u8>,
    /// Further facts about the object (1.1 and 1.2).
    pub components: Vec<TaggedData>,
}

impl Ior {
    /// The reference to an object of this type over TCP.
    pub fn new(type_id: &str, profile: &IiopProfile) -> Self {
        Self {
            type_id: type_id.as_bytes().to_vec(),
            profiles: vec![profile.to_profile(ByteOrder::Big)],
        }
    }

    /// The ways to the object over TCP, in order. Profiles that cannot be read are passed over.
    pub fn iiop_profiles(&self) -> impl Iterator<Item = IiopProfile> {
        let all = self.profiles.iter().filter_map(IiopProfile::of);
        all.filter_map(Result::ok)
    }

    /// Reads a reference within other values.
    ///
    /// # Errors
    /// [`MarshalError`].
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        Ok(Self {
            type_id: decoder.string()?.to_vec(),
            profiles: decoder.sequence("profiles", MOST_PROFILES, 8, |decoder| {
                Ok(TaggedData {
                    id: decoder.ulong()?,
                    data: decoder.octets()?.to_vec(),
                })
            })?,
        })
    }

    /// Writes the reference among other values.
    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.string(&self.type_id);
        TaggedData::encode_all(&self.profiles, encoder);
    }

    /// The reference as text, in this order of bytes: `IOR:` and hexadecimal digits.
    pub fn to_text(&self, order: ByteOrder) -> String {
        let mut encoder = Encoder::encapsulated(order);
        self.encode(&mut encoder);
        format!("IOR:{}", HEXLOWER.encode(encoder.bytes()))
    }

    /// Reads a reference as text. Also returns the order in which it was written.
    ///
    /// # Errors
    /// [`ObjectAddressError`].
    pub fn from_text(text: &str) -> Result<(Self, ByteOrder), ObjectAddressError> {
        if text.len() > LONGEST {
            return Err(ObjectAddressError::new(text, "it is too long"));
        }
        let wrong = || ObjectAddressError::new(text, "it is not IOR: and hexadecimal digits");
        let digits = match text.split_at_checked(4) {
            Some((scheme, digits)) if scheme.eq_ignore_ascii_case("IOR:") => digits,
            _ => return Err(wrong()),
        };
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes());
        let bytes = bytes.map_err(|_| wrong())?;
        let read = Decoder::encapsulated(&bytes)
            .and_then(|mut decoder| Ok((Self::decode(&mut decoder)?, decoder.order())));
        read.map_err(|_| ObjectAddressError::new(text, "its bytes are no reference to an object"))
    }
}

impl fmt::Display for Ior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(ByteOrder::Big))
    }
}

impl IiopProfile {
    /// Reads a profile; `None` if it is not one for IIOP 1.
    pub fn of(profile: &TaggedData) -> Option<Result<Self, MarshalError>> {
        (profile.id == IIOP).then(|| Self::decode(&profile.data))
    }

    fn decode(bytes: &[u8]) -> Result<Self, MarshalError> {
        let mut decoder = Decoder::encapsulated(bytes)?;
        let (major, minor) = (decoder.octet()?, decoder.octet()?);
        // A later version of IIOP 1 has the fields of 1.2 first.
        let version = Version::of(major, minor.min(2)).ok_or_else(|| {
            decoder.error(MarshalProblem::Wrong("a version of IIOP other than 1"))
        })?;
        let host = decoder.string()?;
        let host = str::from_utf8(host)
            .map_err(|_| decoder.error(MarshalProblem::Wrong("a host that is no text")))?;
        Ok(Self {
            version,
            host: host.to_owned(),
            port: decoder.ushort()?,
            key: decoder.octets()?.to_vec(),
            components: match version {
                Version::V1_0 => Vec::new(),
                // In 1.1, some ORBs leave out the list.
                _ if decoder.left() == 0 => Vec::new(),
                _ => TaggedData::decode_all(&mut decoder)?,
            },
        })
    }

    /// Writes the profile.
    pub fn to_profile(&self, order: ByteOrder) -> TaggedData {
        let mut encoder = Encoder::encapsulated(order);
        encoder.octet(1);
        encoder.octet(self.version.minor());
        encoder.string(self.host.as_bytes());
        encoder.ushort(self.port);
        encoder.octets(&self.key);
        if self.version > Version::V1_0 {
            TaggedData::encode_all(&self.components, &mut encoder);
        }
        TaggedData {
            id: IIOP,
            data: encoder.into_bytes(),
        }
    }

    /// The code sets that the server understands, if the profile names them.
    pub fn code_sets(&self) -> Option<CodeSetComponent> {
        let mut all = self.components.iter();
        all.find_map(CodeSetComponent::of)
    }
}
