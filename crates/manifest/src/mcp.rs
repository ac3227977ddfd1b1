//! `mcp` of an `[[agent]]`: an MCP server, which the Python module `sealbus.mcp` makes an agent.

use toml::de::{DeTable, DeValue};

use super::neighbours::{check_header, check_url};
use super::program::Program;
use super::read::{Reader, Value, absolute};

const KEYS: &[&str] = &["command", "url", "key-file", "header"];

const EXAMPLE: &str = "write mcp = { command = [\"npx\", \"my-mcp-server\"] } or mcp = { url = \"https://search.example/mcp\" }";

/// The command that makes an agent of the server that follows it.
const AGENT: [&str; 3] = ["python", "-m", "sealbus.mcp"];

impl<'t> Reader<'t> {
    /// The program of the agent `name`, which offers the tools of `server`. `agent` is the agent's entry.
    pub(super) fn mcp(
        &mut self,
        agent: &DeTable<'t>,
        server: &Value<'t>,
        name: &str,
    ) -> Option<Program> {
        for (key, help) in [
            (
                "command",
                "keep one of them: a server's command is mcp = { command = […] }",
            ),
            (
                "agents",
                "remove `agents`: a server is one agent, and `replicas` makes more of it",
            ),
        ] {
            if let Some(other) = agent.get(key) {
                let message = format!("{name} has both `mcp` and `{key}`");
                self.problem(other.span(), message, Some(help.to_owned()));
            }
        }
        let DeValue::Table(table) = server.get_ref() else {
            let message = format!("`mcp` of {name} is no table");
            self.problem(server.span(), message, Some(EXAMPLE.to_owned()));
            return None;
        };
        self.unknown_keys(table, KEYS, &format!("in `mcp` of {name}"));
        let has_python = self.is_there(AGENT[0], server.span());
        let program = match (table.get("command"), table.get("url")) {
            (Some(_), None) => self.started(table, server, name),
            (None, Some(_)) => self.addressed(table, server, name),
            (some, _) => {
                let has = some.map_or("neither `command` nor", |_| "both `command` and");
                let message = format!("the MCP server of {name} has {has} `url`");
                self.problem(server.span(), message, Some(EXAMPLE.to_owned()));
                None
            }
        };
        program.filter(|_| has_python)
    }

    /// A server that the agent starts.
    fn started(&mut self, table: &DeTable<'t>, server: &Value<'t>, name: &str) -> Option<Program> {
        for key in ["key-file", "header"] {
            if let Some(value) = table.get(key) {
                let message =
                    format!("the MCP server of {name} has a command, which takes no `{key}`");
                let help = "give the server its key in the agent's `environment`";
                self.problem(value.span(), message, Some(help.to_owned()));
            }
        }
        let words = self.command(table, server.span())?;
        Some(Program::from(command(words)))
    }

    /// A server at an address.
    fn addressed(
        &mut self,
        table: &DeTable<'t>,
        server: &Value<'t>,
        name: &str,
    ) -> Option<Program> {
        let (url, at) = self.text_of(table, "url")?;
        let key = self.text_of(table, "key-file");
        let header = self.text_of(table, "header");
        let whose = format!("the MCP server of {name}");
        let header = header.as_ref().map(|(header, _)| header.as_str());
        if let Err(problem) = check_url(&whose, &url) {
            self.problem(at, problem, None);
        }
        if let Err(problem) = check_header(&whose, header, key.is_some()) {
            self.problem(server.span(), problem, None);
        }
        let mut words = Vec::new();
        let mut read = Vec::new();
        if let Some((file, at)) = key {
            let file = self.directory.join(file);
            if !file.is_file() {
                let message = format!(
                    "the key of {whose} is missing: there is no file {}",
                    file.display()
                );
                let help = "write the key into this file, which nobody else may read";
                self.problem(at, message, Some(help.to_owned()));
            }
            let file = absolute(&file);
            words.extend(["--key-file".to_owned(), file.clone()]);
            read.push(file);
        }
        if let Some(header) = header {
            words.extend(["--header".to_owned(), header.to_owned()]);
        }
        words.push(url);
        let command = command(words);
        Some(Program { command, read })
    }
}

fn command(words: Vec<String>) -> Vec<String> {
    let agent = AGENT.map(str::to_owned);
    agent.into_iter().chain(words).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Manifest;

    const PYTHON: [&str; 3] = super::AGENT;

    fn read(keys: &str, folder: &Path) -> Result<Manifest, Vec<String>> {
        let text =
            format!("[platform]\nname = \"factory\"\n[[agent]]\nname = \"library\"\n{keys}\n");
        let read = Manifest::parse("platform.toml", &text, folder);
        read.map_err(|error| {
            let problems = error.problems.into_iter();
            let said = |it: crate::ManifestProblem| {
                format!("{}: {}", it.message, it.help.unwrap_or_default())
            };
            problems.map(said).collect()
        })
    }

    #[test]
    fn a_servers_command_follows_the_module() {
        let keys = "mcp = { command = [\"sh\", \"--key-file\", \"x\"] }\nreplicas = 2";
        let agent = &read(keys, Path::new("/")).unwrap().agents[0];
        let command = [&PYTHON[..], &["sh", "--key-file", "x"]].concat();
        assert_eq!(agent.command, command);
        assert_eq!(agent.local_names(), ["library-1", "library-2"]);
        let line = read("mcp = { command = \"sh -c true\" }", Path::new("/")).unwrap();
        let command = [&PYTHON[..], &["sh", "-c", "true"]].concat();
        assert_eq!(line.agents[0].command, command);
    }

    #[test]
    fn a_server_at_an_address_may_have_a_key_which_the_agent_may_read() {
        // Any file will do.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let url = "https://search.example/mcp?tools=some";
        let keys = format!(
            "mcp = {{ url = \"{url}\", key-file = \"Cargo.toml\", header = \"X-Key\" }}\nread = [\"/data\"]"
        );
        let agent = &read(&keys, folder).unwrap().agents[0];
        let key = folder.join("Cargo.toml").display().to_string();
        let options = ["--key-file", &key, "--header", "X-Key", url];
        assert_eq!(agent.command, [&PYTHON[..], &options].concat());
        assert_eq!(agent.confinement.read, ["/data", &key]);
        let plain = read("mcp = { url = \"http://127.0.0.1:80/mcp\" }", folder).unwrap();
        let command = [&PYTHON[..], &["http://127.0.0.1:80/mcp"]].concat();
        assert_eq!(plain.agents[0].command, command);
    }

    #[test]
    fn mistakes_name_the_agent_and_the_remedy() {
        const URL: &str = "url = \"https://search.example/mcp\"";
        for (keys, message, help) in [
            (
                "mcp = [\"sh\"]".to_owned(),
                "`mcp` of library is no table",
                "mcp = { url",
            ),
            (
                "mcp = {}".to_owned(),
                "library has neither `command` nor `url`",
                "mcp = { url",
            ),
            (
                format!("mcp = {{ command = \"sh\", {URL} }}"),
                "library has both `command` and `url`",
                "mcp = { url",
            ),
            (
                format!("command = \"sh\"\nmcp = {{ {URL} }}"),
                "library has both `mcp` and `command`",
                "keep one of them",
            ),
            (
                format!("agents = 2\nmcp = {{ {URL} }}"),
                "library has both `mcp` and `agents`",
                "`replicas`",
            ),
            (
                format!("mcp = {{ {URL}, kee-file = \"k\" }}"),
                "in `mcp` of library",
                "did you mean `key-file`?",
            ),
            (
                format!("mcp = {{ {URL}, key-file = \"none\" }}"),
                "there is no file /none",
                "write the key into this file",
            ),
            (
                format!("mcp = {{ {URL}, header = \"X-Key\" }}"),
                "the MCP server of library has a header for a key, and no key-file",
                "",
            ),
            (
                "mcp = { command = \"sh\", key-file = \"k\" }".to_owned(),
                "the MCP server of library has a command, which takes no `key-file`",
                "`environment`",
            ),
            (
                "mcp = { url = \"http://search.example/mcp\" }".to_owned(),
                "the MCP server of library would be asked without TLS",
                "",
            ),
            (
                "mcp = { command = [\"no-such-program-here\"] }".to_owned(),
                "there is no program no-such-program-here",
                "",
            ),
            (
                "mcp = { command = [] }".to_owned(),
                "the command is empty",
                "",
            ),
        ] {
            let problems = read(&keys, Path::new("/")).unwrap_err();
            let is_told = |it: &String| it.contains(message) && it.contains(help);
            assert!(problems.iter().any(is_told), "{keys}: {problems:?}");
        }
    }
}
