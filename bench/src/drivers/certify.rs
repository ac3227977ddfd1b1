//! Certificates for the two processes of a run: the receiving one is the authority, the sending one asks it over a unix
//! socket in the run's folder.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use sealbus_bench_driver::{Prepare, Role};
use sealbus_seal::{Credential, Identity, Trust};

use crate::drivers::stage::{DriverError, failed};
use crate::mesh::credentials::{Authority, Customer};

const SOCKET: &str = "authority";

/// Where a process gets its certificates from.
pub(crate) enum Certificates {
    Own(Arc<Authority>),
    Asked(Box<Customer<BufReader<UnixStream>, UnixStream>>),
}

impl Certificates {
    pub(crate) fn open(order: &Prepare) -> Result<Self, DriverError> {
        let path = Path::new(&order.folder).join(SOCKET);
        if order.role == Role::Send {
            let stream = UnixStream::connect(path)?;
            let answers = BufReader::new(stream.try_clone()?);
            return Ok(Self::Asked(Box::new(
                Customer::new(answers, stream).map_err(failed)?,
            )));
        }
        let authority = Arc::new(Authority::create().map_err(failed)?);
        let listener = UnixListener::bind(path)?;
        let serving = authority.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A customer that goes away has what it needs.
                let _ = answer(&serving, stream);
            }
        });
        Ok(Self::Own(authority))
    }

    pub(crate) fn credential(
        &mut self,
        identity: Identity,
    ) -> Result<Arc<Credential>, DriverError> {
        match self {
            Self::Own(authority) => authority.credential(identity),
            Self::Asked(customer) => customer.credential(&identity),
        }
        .map_err(failed)
    }

    pub(crate) fn trust(&self) -> Result<Arc<Trust>, DriverError> {
        match self {
            Self::Own(authority) => authority.trust().map_err(failed),
            Self::Asked(customer) => Ok(customer.trust.clone()),
        }
    }
}

fn answer(authority: &Authority, mut stream: UnixStream) -> Result<(), DriverError> {
    writeln!(stream, "{}", authority.root_text())?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        let request = line
            .strip_prefix("certify ")
            .ok_or_else(|| failed("a request must begin with certify"))?;
        let chain = authority.certify_text(request).map_err(failed)?;
        writeln!(stream, "{chain}")?;
    }
    Ok(())
}
