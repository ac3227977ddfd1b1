//! CORBA's system exceptions (CORBA 3.3 part 1, 8.17.3): why a call was not carried out.

use crate::cdr::{Decoder, Encoder, MarshalError, MarshalProblem};

/// OMG's own minor codes begin here.
const OMG: u32 = 0x4f4d_0000;

/// Whether the object carried out the call before the exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// The object carried out the call.
    Yes,
    /// The object did not carry out the call.
    No,
    /// The object may have carried out the call.
    Maybe,
}

/// A system exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemException {
    /// The repository id, such as `IDL:omg.org/CORBA/MARSHAL:1.0`.
    pub id: Vec<u8>,
    /// A number of the ORB's maker.
    pub minor: u32,
    /// Whether the call was carried out.
    pub completed: Completed,
}

impl SystemException {
    fn standard(name: &str, minor: u32) -> Self {
        Self {
            id: format!("IDL:omg.org/CORBA/{name}:1.0").into_bytes(),
            minor: if minor == 0 { 0 } else { OMG + minor },
            completed: Completed::No,
        }
    }

    /// The object has no such operation.
    pub fn bad_operation() -> Self {
        Self::standard("BAD_OPERATION", 2)
    }

    /// There is no object with this key.
    pub fn object_not_exist() -> Self {
        Self::standard("OBJECT_NOT_EXIST", 2)
    }

    /// The arguments cannot be read.
    pub fn marshal() -> Self {
        Self::standard("MARSHAL", 0)
    }

    /// The caller may not do this.
    pub fn no_permission() -> Self {
        Self::standard("NO_PERMISSION", 0)
    }

    /// There is no room now. The caller may call again.
    pub fn transient() -> Self {
        Self::standard("TRANSIENT", 1)
    }

    /// The arguments are larger than a limit allows.
    pub fn imp_limit() -> Self {
        Self::standard("IMP_LIMIT", 0)
    }

    /// An argument does not make sense.
    pub fn bad_param() -> Self {
        Self::standard("BAD_PARAM", 0)
    }

    /// The name alone, such as `MARSHAL`; the whole id if it is not one of CORBA's.
    pub fn name(&self) -> String {
        let id = String::from_utf8_lossy(&self.id);
        let name = id.strip_prefix("IDL:omg.org/CORBA/");
        let name = name.and_then(|name| name.strip_suffix(":1.0"));
        name.unwrap_or(&id).to_owned()
    }

    /// Whether the call may be made again later.
    pub fn is_transient(&self) -> bool {
        self.completed != Completed::Yes
            && matches!(&*self.name(), "TRANSIENT" | "COMM_FAILURE" | "NO_RESOURCES")
    }

    /// Reads the body of a reply.
    ///
    /// # Errors
    /// [`MarshalError`].
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        let id = decoder.string()?.to_vec();
        let minor = decoder.ulong()?;
        let completed = match decoder.ulong()? {
            0 => Completed::Yes,
            1 => Completed::No,
            2 => Completed::Maybe,
            _ => {
                let problem = "an exception completed neither with yes, no nor maybe";
                return Err(decoder.error(MarshalProblem::Wrong(problem)));
            }
        };
        Ok(Self {
            id,
            minor,
            completed,
        })
    }

    /// Writes the body of a reply.
    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.string(&self.id);
        encoder.ulong(self.minor);
        encoder.ulong(self.completed as u32);
    }
}
