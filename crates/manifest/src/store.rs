//! `[store]`: where the platform's state is kept, if not in the Master's state directory.

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::read::{Reader, absolute};

const ETCD: &str = "write etcd = [\"https://10.0.0.5:2379\"]";
/// The folder of the credentials, beside the manifest.
const CREDENTIALS: &str = "etcd";

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreEntry {
    /// The members of the etcd cluster, as `https://HOST:PORT`.
    pub etcd: Vec<String>,
    /// The folder with the Master's credentials for etcd, as an absolute path.
    pub credentials: String,
}

impl<'t> Reader<'t> {
    pub(super) fn store(&mut self, root: &DeTable<'t>) -> Option<StoreEntry> {
        let value = root.get("store")?;
        let table = self.table(value, "store")?;
        self.unknown_keys(table, &["etcd", "credentials"], "in [store]");
        let etcd = self.texts(table, "etcd");
        let at = table.get("etcd").map_or(value.span(), toml::Spanned::span);
        let is_member = |text: &String| {
            let rest = text.strip_prefix("https://").unwrap_or_default();
            rest.trim_end_matches('/')
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if etcd.is_empty() {
            let message = "[store] has no etcd";
            self.problem(at, message, Some(ETCD.to_owned()));
            return None;
        }
        if let Some(wrong) = etcd.iter().find(|text| !is_member(text)) {
            let message = format!("\"{wrong}\" is not the address of a member of etcd");
            self.problem(at, message, Some(ETCD.to_owned()));
            return None;
        }
        let folder = self.text_of(table, "credentials");
        let folder = folder.map_or_else(|| CREDENTIALS.to_owned(), |(folder, _)| folder);
        Some(StoreEntry {
            etcd,
            credentials: absolute(&self.directory.join(folder)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Manifest;

    fn manifest(section: &str) -> Result<Manifest, String> {
        let text = format!("[platform]\nname = \"factory\"\n[store]\n{section}\n");
        let parsed = Manifest::parse("platform.toml", &text, Path::new("/srv"));
        parsed.map_err(|error| error.problems[0].message.clone())
    }

    #[test]
    fn a_cluster_is_named_by_its_members() {
        let store = manifest("etcd = [\"https://10.0.0.5:2379\", \"https://[::1]:2379\"]");
        let store = store.unwrap().store.unwrap();
        assert_eq!(store.etcd.len(), 2);
        assert_eq!(store.credentials, "/srv/etcd");
        let store = manifest("etcd = [\"https://a:1\"]\ncredentials = \"/etc/sealbus/etcd\"");
        assert_eq!(
            store.unwrap().store.unwrap().credentials,
            "/etc/sealbus/etcd"
        );
    }

    #[test]
    fn mistakes_are_told() {
        for (section, said) in [
            ("", "[store] has no etcd"),
            ("etcd = []", "[store] has no etcd"),
            ("etcd = [\"http://10.0.0.5:2379\"]", "is not the address"),
            ("etcd = [\"https://10.0.0.5\"]", "is not the address"),
            ("etcd = [\"https://a:1\"]\nkey = \"x\"", "key"),
        ] {
            let error = manifest(section).unwrap_err();
            assert!(error.contains(said), "{section}: {error}");
        }
    }
}
