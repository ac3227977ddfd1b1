//! `signatures` of `[platform]`: the algorithm that signs for the platform.

use sealbus_brokers::BROKER_KINDS;
use sealbus_seal::{SecurityLevel, SignatureAlgorithm};
use toml::de::DeTable;

use super::read::Reader;

impl<'t> Reader<'t> {
    /// Reads the algorithm, and reports the settings that do not go with it.
    pub(super) fn signatures(
        &mut self,
        root: &DeTable<'t>,
        platform: &DeTable<'t>,
        level: SecurityLevel,
    ) -> Option<SignatureAlgorithm> {
        let signatures = self.parsed(platform, "signatures", "ed25519 or ml-dsa-65")?;
        if signatures == SignatureAlgorithm::Ed25519 {
            return Some(signatures);
        }
        let at = platform.get("signatures").map(|it| it.span());
        let at = at.unwrap_or_default();
        if level < SecurityLevel::Signed {
            let message =
                format!("signatures = \"{signatures}\" is for the levels signed and sealed");
            let help = format!(
                "at {level} agents sign nothing: write level = \"signed\", or remove `signatures`"
            );
            self.problem(at, message, Some(help));
        }
        let brokers = BROKER_KINDS.iter();
        let brokers = brokers.filter(|kind| !kind.accepts(signatures));
        let brokers = brokers.map(|kind| {
            let title = kind.title();
            let what = format!("{title} does not know this algorithm in certificates");
            (kind.name(), what)
        });
        let witness = (
            "witness",
            "witnesses outside the platform know checkpoints with Ed25519 only".to_owned(),
        );
        for (key, what) in brokers.chain([witness]) {
            if let Some(found) = root.get(key) {
                let message = format!("{what}, and signatures = \"{signatures}\" holds");
                let help = format!("remove [{key}], or `signatures`");
                self.problem(found.span(), message, Some(help));
            }
        }
        Some(signatures)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Manifest;

    fn read(platform: &str, rest: &str) -> Result<Manifest, Vec<String>> {
        let text = format!("[platform]\nname = \"factory\"\n{platform}\n{rest}\n");
        Manifest::parse("platform.toml", &text, Path::new("/")).map_err(|error| {
            let problems = error.problems.into_iter();
            problems.map(|problem| problem.message).collect()
        })
    }

    #[test]
    fn the_algorithm_is_chosen_by_its_name() {
        let chosen = |keys| read(keys, "").unwrap().platform.signatures;
        assert_eq!(chosen(""), None);
        let classical = Some(SignatureAlgorithm::Ed25519);
        assert_eq!(chosen("signatures = \"ed25519\""), classical);
        let keys = "level = \"sealed\"\nsignatures = \"ml-dsa-65\"";
        assert_eq!(chosen(keys), Some(SignatureAlgorithm::MlDsa65));
        assert!(read("signatures = \"rsa\"", "").is_err());
    }

    #[test]
    fn what_cannot_have_it_is_refused() {
        const KEYS: &str = "level = \"signed\"\nsignatures = \"ml-dsa-65\"";
        let problems = read("signatures = \"ml-dsa-65\"", "").unwrap_err();
        assert!(problems[0].contains("signed and sealed"), "{problems:?}");
        let witness =
            "[[witness]]\nurl = \"http://w.example:1/x\"\nkey = \"w.example+8a3f2b1c+BKvU\"";
        let problems = read(KEYS, witness).unwrap_err();
        let is_named = |problem: &String| problem.contains("witnesses outside");
        assert!(problems.iter().any(is_named), "{problems:?}");
        let keys = format!("{KEYS}\ntransport = \"rabbitmq\"");
        let problems = read(&keys, "[rabbitmq]\nmanaged = true").unwrap_err();
        let said = "RabbitMQ does not know this algorithm in certificates, and signatures = \"ml-dsa-65\" holds";
        assert_eq!(problems, [said]);
    }
}
