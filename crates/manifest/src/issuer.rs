//! `workload-issuer` of `[platform]`: the URL of the issuer of workload tokens.

use toml::de::DeTable;

use super::callers::is_url;
use super::read::Reader;

impl<'t> Reader<'t> {
    pub(super) fn workload_issuer(&mut self, table: &DeTable<'t>) -> Option<String> {
        let (url, at) = self.text_of(table, "workload-issuer")?;
        if !is_url(&url) || url.ends_with('/') {
            let problem = format!("`workload-issuer` cannot be {url:?}");
            let help = "write the URL by which others reach a gateway of this platform, such as https://tea.example, \
                        without a slash at its end";
            self.problem(at, problem, Some(help.to_owned()));
        }
        Some(url)
    }
}
