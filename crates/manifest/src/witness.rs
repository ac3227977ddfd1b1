//! `[[witness]]`: witnesses of the issuance log besides the nodes.

use sealbus_transparency::{KeyKind, NoteKey};
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::read::Reader;

const KEYS: &[&str] = &["url", "key"];

/// `[[witness]]`: a witness that is no part of the platform (C2SP tlog-witness).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessEntry {
    /// `host:port`.
    pub host: String,
    /// The path before `/add-checkpoint`, empty or beginning with a slash.
    pub path: String,
    /// The witness's name and key, `name+hint+key`.
    pub key: String,
}

impl<'t> Reader<'t> {
    pub(super) fn witnesses(&mut self, root: &DeTable<'t>) -> Vec<WitnessEntry> {
        let Some(value) = root.get("witness") else {
            return Vec::new();
        };
        let DeValue::Array(entries) = value.get_ref() else {
            let help = "write [[witness]], with two brackets, for each".to_owned();
            let message = "the witnesses are not a list of tables";
            self.problem(value.span(), message, Some(help));
            return Vec::new();
        };
        let mut witnesses = Vec::new();
        for entry in entries.iter() {
            let Some(table) = self.table(entry, "witness") else {
                continue;
            };
            self.unknown_keys(table, KEYS, "in [[witness]]");
            for (key, example) in [
                ("url", "url = \"http://witness.example:7380\""),
                (
                    "key",
                    "key = \"name+hint+key\", as the witness publishes it",
                ),
            ] {
                let message = format!("the witness has no {key}");
                self.missing(table, key, entry.span(), &message, example);
            }
            let key = self.parsed::<NoteKey>(table, "key", "name+hint+key, as the witness does");
            let is_witness = key
                .as_ref()
                .is_none_or(|key| key.kind() == KeyKind::Witness);
            if !is_witness {
                let at = table.get("key").map_or(entry.span(), |key| key.span());
                let help = "write the key of its cosignatures (algorithm 4)".to_owned();
                self.problem(at, "the key is a log's, not a witness's", Some(help));
            }
            let Some((url, at)) = self.text_of(table, "url") else {
                continue;
            };
            let Some((host, path)) = place(&url) else {
                let help = "write http://host:port or http://host:port/path".to_owned();
                self.problem(
                    at,
                    format!("\"{url}\" is no address of a witness"),
                    Some(help),
                );
                continue;
            };
            if let Some(key) = key.filter(|_| is_witness) {
                let key = key.to_string();
                witnesses.push(WitnessEntry { host, path, key });
            }
        }
        witnesses
    }
}

/// Host and path of an address. Requests are public, and answers are signed. Plain HTTP is therefore enough.
fn place(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let is_plain = |it: char| it.is_ascii_graphic() && !matches!(it, '?' | '#' | '@' | '\\');
    if host.is_empty() || !url.chars().all(is_plain) {
        return None;
    }
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && !port.is_empty() && port.parse::<u16>().is_ok()
    });
    let host = match has_port {
        true => host.to_owned(),
        false => format!("{host}:80"),
    };
    Some((host, path.trim_end_matches('/').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn addresses_of_witnesses() {
        let placed = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(
            place("http://w.example:7380/a/"),
            placed("w.example:7380", "/a")
        );
        assert_eq!(place("http://w.example"), placed("w.example:80", ""));
        assert_eq!(place("http://[::1]:80/x"), placed("[::1]:80", "/x"));
        for wrong in [
            "https://w.example",
            "http://",
            "w.example",
            "http://a b",
            "http://u@h",
            "http://h/\r\n",
        ] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }
}
