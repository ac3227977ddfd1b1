//! Certificates for the two processes of a run. The receiving process is the authority. The sending process asks it
//! over a unix socket in the run's folder. A broker must be certified first, so with a broker both processes ask the
//! process that started it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use sealbus_bench_driver::{Prepare, Role};
use sealbus_seal::{Credential, Identity, Trust};

use crate::drivers::stage::{DriverError, failed};
use crate::mesh::credentials::{Authority, Customer};

const SOCKET: &str = "authority";

/// The source of a process's certificates.
pub(crate) enum Certificates {
    Own(Arc<Authority>),
    Asked(Box<Customer<BufReader<UnixStream>, UnixStream>>),
}

impl Certificates {
    pub(crate) fn open(order: &Prepare) -> Result<Self, DriverError> {
        let path = Path::new(&order.folder).join(SOCKET);
        if order.role == Role::Send {
            return Self::ask(&path);
        }
        let authority = Arc::new(Authority::create().map_err(failed)?);
        Self::serve(authority.clone(), &path)?;
        Ok(Self::Own(authority))
    }

    /// Takes certificates from the authority that listens at `path`.
    pub(crate) fn ask(path: &Path) -> Result<Self, DriverError> {
        let stream = UnixStream::connect(path)?;
        let answers = BufReader::new(stream.try_clone()?);
        let customer = Customer::new(answers, stream).map_err(failed)?;
        Ok(Self::Asked(Box::new(customer)))
    }

    /// Certifies every client at `path`, as long as the process lives.
    pub(crate) fn serve(authority: Arc<Authority>, path: &Path) -> Result<(), DriverError> {
        let listener = UnixListener::bind(path)?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let authority = authority.clone();
                // A customer that goes away has all it needs.
                std::thread::spawn(move || answer(&authority, stream));
            }
        });
        Ok(())
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
