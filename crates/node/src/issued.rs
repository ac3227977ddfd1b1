//! The last certificates that the CA issued to the processes of a node and to their agents.

use std::ops::Bound;

use sealbus_control::authority::{CertificatePage, IssuedChain};
use sealbus_control::{Blob, Fault, Subject};
use sealbus_seal::CertificateChain;

use super::processes::Processes;

/// The most bytes of certificates in one answer, unless a single one is longer.
const PART: usize = 32 * 1024;

impl Processes {
    /// Notes the certificate that the CA issued to a process.
    pub(crate) fn certified(&self, process: &str, subject: &Subject, issued: IssuedChain) {
        let Ok(chain) = CertificateChain::try_from(issued) else {
            return;
        };
        let name = match subject {
            Subject::Agent { name } => name.clone(),
            Subject::Process => String::new(),
        };
        let mut encoded = Vec::new();
        chain.encode(&mut encoded);
        let _ = self.with(process, |entry| entry.certificates.insert(name, encoded));
    }

    /// A part of the last certificates that the CA issued to a process and to each of its living agents, ordered by
    /// their names. It begins after the agent with this name.
    pub(crate) fn certificates(
        &self,
        process: &str,
        after: Option<&str>,
    ) -> Result<CertificatePage, Fault> {
        self.with(process, |entry| {
            let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
            let found = entry
                .certificates
                .range::<str, _>((begin, Bound::Unbounded));
            let lives = |name: &String| name.is_empty() || entry.agents.contains_key(name);
            let (mut chains, mut size, mut last) = (Vec::new(), 0, None);
            for (name, chain) in found.filter(|(name, _)| lives(name)) {
                size += chain.len();
                if size > PART && last.is_some() {
                    return CertificatePage { chains, next: last };
                }
                chains.push(Blob(chain.clone()));
                last = Some(name.clone());
            }
            CertificatePage { chains, next: None }
        })
    }
}

#[cfg(test)]
mod tests {
    use sealbus_control::PlacedState;

    use super::*;
    use crate::memory::tests::remembered;
    use crate::processes::Entry;

    #[test]
    fn the_certificates_of_many_agents_come_in_parts_that_fit_into_a_message() {
        let processes = Processes::default();
        let mut entry = Entry::new(remembered("p"));
        let mut expected = Vec::new();
        let names = (0..1000).map(|number| format!("agent-{number:04}"));
        for name in std::iter::once(String::new()).chain(names) {
            // A chain with ML-DSA-65 has about this many bytes.
            let mut chain = name.clone().into_bytes();
            chain.resize(15_000, 0);
            entry.certificates.insert(name.clone(), chain.clone());
            match name.as_str() {
                // The agent has ended.
                "agent-0500" => continue,
                "" => {}
                _ => drop(entry.agents.insert(name, PlacedState::Active)),
            }
            expected.push(Blob(chain));
        }
        processes.entries.lock().insert("p".to_owned(), entry);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let part = processes.certificates("p", after.as_deref()).unwrap();
            assert!(serde_json::to_vec(&part).unwrap().len() < 64 * 1024);
            found.extend(part.chains);
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected);
    }
}
