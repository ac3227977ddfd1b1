//! Reads the isolation of an `[[agent]]`.

use toml::de::DeTable;

use super::isolation::{self, Confinement, Isolation};
use super::read::{Reader, absolute};

impl<'t> Reader<'t> {
    /// The isolation that an `[[agent]]` asks for; `floor` is the platform's.
    pub(super) fn confinement(
        &mut self,
        table: &DeTable<'t>,
        floor: Option<Isolation>,
    ) -> Confinement {
        let most = i64::MAX;
        Confinement {
            isolation: self.parsed(table, "isolation", isolation::MODES).or(floor),
            read: self.paths(table, "read"),
            write: self.paths(table, "write"),
            unix_sockets: self.truth(table, "unix-sockets").unwrap_or_default(),
            memory: self.room(table, "memory"),
            processes: self
                .integer(table, "processes", 1..=most)
                .map(i64::cast_unsigned),
            cpu: self.thousandths(table, "cpu"),
            files: self
                .integer(table, "files", 16..=most)
                .map(i64::cast_unsigned),
            disk: self.room(table, "disk"),
        }
    }

    /// Paths, relative ones from the manifest's folder.
    fn paths(&mut self, table: &DeTable<'t>, key: &str) -> Vec<String> {
        let paths = self.texts(table, key);
        let paths = paths
            .iter()
            .map(|path| absolute(&self.directory.join(path)));
        paths.collect()
    }
}
