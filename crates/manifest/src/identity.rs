//! `identity` of an `[[agent]]`: the key of its long-lived identity.

use std::collections::BTreeMap;

use toml::de::DeTable;

use super::ProcessAgents;
use super::isolation::Confinement;
use super::read::{Reader, absolute};

/// The variable with the file of the key of the agent's long-lived identity. The node sets it for the program.
pub const IDENTITY_VARIABLE: &str = "SEALBUS_IDENTITY";

impl<'t> Reader<'t> {
    /// Lets the program of an entry read the key, and tells it the path of the key. The file need not be on this
    /// machine.
    pub(super) fn identity(
        &mut self,
        table: &DeTable<'t>,
        (replicas, agents): (u32, &ProcessAgents),
        environment: &mut BTreeMap<String, String>,
        confinement: &mut Confinement,
    ) {
        let Some((file, at)) = self.text_of(table, "identity") else {
            return;
        };
        let is_one = match agents {
            ProcessAgents::Count(count) => *count == 1,
            ProcessAgents::Named(names) => names.len() == 1,
        };
        if replicas > 1 || !is_one {
            let help = "give each of the agents an entry of its own";
            let message = "a long-lived identity is for one agent, and the entry has several";
            self.problem(at, message, Some(help.to_owned()));
            return;
        }
        let file = absolute(&self.directory.join(file));
        environment.insert(IDENTITY_VARIABLE.to_owned(), file.clone());
        confinement.read.push(file);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Manifest;

    fn read(keys: &str) -> Result<Manifest, Vec<String>> {
        let text = format!(
            "[platform]\nname = \"factory\"\n[[agent]]\nname = \"seller\"\ncommand = \"sh\"\nread = [\"/data\"]\nidentity = \"keys/seller.key\"\n{keys}\n"
        );
        Manifest::parse("platform.toml", &text, Path::new("/srv")).map_err(|error| {
            let problems = error.problems.into_iter();
            problems.map(|problem| problem.message).collect()
        })
    }

    #[test]
    fn the_program_is_told_of_the_key_and_may_read_it() {
        for keys in ["", "agents = 1", "agents = [\"other\"]", "replicas = 0"] {
            let manifest = read(keys).unwrap();
            let agent = &manifest.agents[0];
            assert_eq!(agent.environment[IDENTITY_VARIABLE], "/srv/keys/seller.key");
            assert_eq!(agent.confinement.read, ["/data", "/srv/keys/seller.key"]);
        }
    }

    #[test]
    fn an_identity_is_for_one_agent() {
        for keys in ["agents = 2", "agents = [\"a\", \"b\"]", "replicas = 2"] {
            let problems = read(keys).unwrap_err();
            assert!(problems[0].contains("one agent"), "{problems:?}");
        }
    }
}
