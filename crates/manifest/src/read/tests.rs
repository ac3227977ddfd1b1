//! Manifests that are read, and mistakes that are shown.

use super::*;

fn parse(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse("platform.toml", text, Path::new("/"))
}

fn problems(text: &str) -> Vec<ManifestProblem> {
    parse(text).unwrap_err().problems
}

#[test]
fn a_small_manifest_has_the_defaults() {
    let manifest = parse(
        "[platform]\nname = \"factory\"\n[[agent]]\nname = \"seller\"\ncommand = \"sh -c true\"\n",
    )
    .unwrap();
    assert_eq!(manifest.platform.level, "auth");
    assert_eq!(manifest.platform.certificate_lifetime, 3600);
    assert_eq!(manifest.platform.address, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(manifest.agents[0].command, ["sh", "-c", "true"]);
    assert_eq!(manifest.agents[0].replicas, 1);
    assert_eq!(manifest.agents[0].restart, RestartPolicy::OnFailure);
}

#[test]
fn every_key_is_read() {
    let manifest = parse(
        r#"
            [platform]
            name = "factory"
            level = "tls"
            lifetime = "10m"
            address = "::1"
            port = 7001
            enrolment-port = 7000
            nodes = 3
            isolation = "landlock"
            max-message = "64 KiB"
            [[agent]]
            name = "seller"
            command = ["sh"]
            replicas = 2
            agents = ["buyer", "broker"]
            node = "node-1"
            forbid = ["node-2"]
            environment = { COLOUR = "red", SIZE = 3 }
            restart = "always"
            isolation = "uid"
            read = ["/data"]
            write = ["notes"]
            unix-sockets = true
            memory = "1 GiB"
            processes = 64
            cpu = 0.5
            files = 100
            disk = "10 GiB"
            [[agent]]
            name = "other"
            command = ["sh"]
            "#,
    )
    .unwrap();
    assert_eq!(manifest.platform.certificate_lifetime, 600);
    assert_eq!(manifest.platform.workload_issuer, None);
    assert_eq!(manifest.platform.max_message, 65536);
    assert_eq!(manifest.platform.nodes, 3);
    let agent = &manifest.agents[0];
    assert_eq!(agent.environment["SIZE"], "3");
    assert_eq!(
        agent.local_names(),
        ["buyer-1", "broker-1", "buyer-2", "broker-2"]
    );
    assert_eq!(agent.restart, RestartPolicy::Always);
    let confinement = &agent.confinement;
    assert_eq!(confinement.isolation, Some(Isolation::Uid));
    assert_eq!(
        (confinement.memory, confinement.processes, confinement.files),
        (Some(1 << 30), Some(64), Some(100))
    );
    assert_eq!(
        (confinement.cpu, confinement.disk),
        (Some(500), Some(10 << 30))
    );
    assert_eq!(
        (&confinement.read[..], &confinement.write[..]),
        (&["/data".to_owned()][..], &["/notes".to_owned()][..])
    );
    assert!(confinement.unix_sockets);
    // The platform's isolation is for agents that name none.
    assert_eq!(
        manifest.agents[1].confinement.isolation,
        Some(Isolation::Landlock)
    );
}

#[test]
fn an_unknown_key_is_shown_with_line_and_the_likely_one() {
    let text = "[platform]\nname = \"factory\"\n[[agent]]\nname = \"a\"\ncomand = \"sh\"\n";
    let found = problems(text);
    let unknown = found
        .iter()
        .find(|problem| problem.message.contains("comand"))
        .unwrap();
    assert_eq!(unknown.line, 5);
    assert_eq!(unknown.help.as_deref(), Some("did you mean `command`?"));
}

#[test]
fn a_wrong_type_says_what_is_wanted() {
    let found = problems("[platform]\nname = 3\nnodes = \"two\"\n");
    assert_eq!(
        found[0].message,
        "`name` is a whole number, not a text in quotes"
    );
    assert_eq!(found[1].message, "`nodes` is a text, not a whole number");
    assert_eq!(found[1].line, 3);
}

#[test]
fn a_missing_program_is_found_before_anything_starts() {
    let text =
        "[platform]\nname = \"f\"\n[[agent]]\nname = \"a\"\ncommand = \"no-such-program-here\"\n";
    let found = problems(text);
    assert_eq!(found[0].line, 5);
    assert!(
        found[0].message.contains("no-such-program-here"),
        "{}",
        found[0].message
    );
}

#[test]
fn names_that_clash_or_are_illegal_are_refused() {
    let agent = |name: &str| format!("[[agent]]\nname = \"{name}\"\ncommand = \"sh\"\n");
    let head = "[platform]\nname = \"f\"\n";
    let found = problems(&format!("{head}{}{}", agent("a"), agent("a")));
    assert_eq!(found[0].message, "two agents are named a");
    let found = problems(&format!("{head}{}", agent("a b")));
    assert!(
        found[0].message.contains("agent name"),
        "{}",
        found[0].message
    );
}

#[test]
fn a_syntax_error_has_its_line() {
    assert_eq!(problems("[platform]\nname = \n")[0].line, 2);
}

#[test]
fn the_report_shows_the_file_and_the_place() {
    let error = parse("[platform]\nname = \"f\"\nlevl = \"auth\"\n").unwrap_err();
    let report = error.report();
    assert!(report.contains("platform.toml"), "{report}");
    assert!(report.contains("did you mean `level`?"), "{report}");
}

#[test]
fn iiop_stands_beside_http() {
    let text = "[platform]\nname = \"factory\"\n[gateway.http]\nlisten = \"127.0.0.1:7779\"\n\
        [gateway.iiop]\nlisten = \"127.0.0.1:9000\"\n";
    let gateway = parse(text).unwrap().gateway.unwrap();
    let http = gateway.http.as_ref().unwrap();
    assert_eq!(http.iiop.as_ref().unwrap().listen.port(), 9000);
    // The gateway's process gets both.
    let [process] = &gateway.agents("sealbus")[..] else {
        panic!("one process");
    };
    let variable = &process.environment[crate::GATEWAY_VARIABLE];
    let config: sealbus_gateways::GatewayConfig = serde_json::from_str(variable).unwrap();
    assert_eq!(config, *http);
    let everywhere = text.replace("127.0.0.1:9000", "0.0.0.0:9000");
    assert!(problems(&everywhere)[0].message.contains("name its host"));
}

const MCP: &str = "[platform]\nname = \"factory\"\n[gateway.mcp]\nlisten = \"127.0.0.1:7780\"\n";

fn caller(name: &str, digit: &str) -> String {
    let key = digit.repeat(64);
    format!("[[gateway.mcp.caller]]\nname = \"{name}\"\nkey = \"sha256:{key}\"\n")
}

#[test]
fn callers_of_mcp_are_agents_of_one_process() {
    let text = format!("{MCP}anonymous = \"guest\"\n{}", caller("assistant", "a"));
    let gateway = parse(&text).unwrap().gateway.unwrap();
    let [process] = &gateway.agents("sealbus")[..] else {
        panic!("one process");
    };
    assert_eq!(process.local_names(), ["mcp", "assistant", "guest"]);
    assert_eq!(process.command, ["sealbus", "gateway", "mcp"]);
    let config = serde_json::from_str(&process.environment[crate::GATEWAY_VARIABLE]).unwrap();
    assert_eq!(gateway.mcp.as_ref(), Some(&config));
}

#[test]
fn mistakes_in_mcp_are_told() {
    let one = caller("assistant", "a");
    let agent = "[[agent]]\nname = \"assistant\"\ncommand = [\"/bin/true\"]\n";
    for (text, part) in [
        (MCP.to_owned(), "has no caller"),
        (
            format!("{MCP}{one}").replace("127.0.0.1", "0.0.0.0"),
            "keys to the network",
        ),
        (
            format!("{MCP}hosts = [\"agents.example\", \"no host\"]\n{one}"),
            "\"no host\" in `hosts`",
        ),
        (
            format!("{MCP}hosts = [\"me@agents.example\"]\n{one}"),
            "in `hosts`",
        ),
        (
            format!("{MCP}origins = [\"app.example\"]\n{one}"),
            "\"app.example\" in `origins`",
        ),
        (
            format!("{MCP}{one}{}", caller("other", "a")),
            "key of another",
        ),
        (
            format!("{MCP}{one}{}", caller("assistant", "b")),
            "two agents are named assistant",
        ),
        (
            format!("{MCP}{one}{agent}"),
            "two agents are named assistant",
        ),
        (
            format!("{MCP}{}", caller("mcp", "b")),
            "two agents are named mcp",
        ),
        (format!("{MCP}{}", caller("a b", "b")), "a b"),
        (
            format!("{MCP}[[gateway.mcp.caller]]\nname = \"b\"\ncertificate = true\n"),
            "b cannot show a certificate without TLS",
        ),
        (
            format!("{MCP}[[gateway.mcp.caller]]\nname = \"b\"\n"),
            "neither `key` nor `subject` nor `certificate = true`",
        ),
        (
            format!("{MCP}{}", caller("other", "x")),
            "64 hexadecimal digits",
        ),
        (
            format!("{MCP}{}", caller("other", "é")),
            "64 hexadecimal digits",
        ),
        (
            format!("{MCP}anonymous = \"guest\"\n[gateway.iiop]\nlisten = \"127.0.0.1:9000\"\n"),
            "needs [gateway.http]",
        ),
    ] {
        let problems = problems(&text);
        assert!(
            problems.iter().any(|it| it.message.contains(part)),
            "{part}: {problems:?}"
        );
    }
}

#[test]
fn the_issuer_of_workload_tokens_has_a_url() {
    let read = |issuer: &str| {
        let text = format!("[platform]\nname = \"tea\"\nworkload-issuer = \"{issuer}\"\n");
        parse(&text).map(|it| it.platform.workload_issuer)
    };
    for issuer in [
        "https://tea.example",
        "https://tea.example:8443/agents",
        "http://127.0.0.1:7781",
    ] {
        assert_eq!(read(issuer).unwrap().as_deref(), Some(issuer));
    }
    for issuer in [
        "",
        "tea.example",
        "http://tea.example",
        "https://",
        "https://tea.example/",
        "https://tea.example?a",
        "https://me@tea.example",
    ] {
        assert!(read(issuer).is_err(), "{issuer}");
    }
}

const OAUTH: &str = "[gateway.mcp.oauth]\nissuer = \"https://login.example\"\nkeys = \"https://login.example/keys\"\nresource = \"https://tea.example/mcp\"\n";

fn holder(name: &str, rest: &str) -> String {
    format!("[[gateway.mcp.caller]]\nname = \"{name}\"\nsubject = \"client-1\"\n{rest}")
}

#[test]
fn callers_of_an_issuer_come_over_tls() {
    let tls = "[gateway.mcp.tls]\ncertificate = \"door.pem\"\nkey = \"/etc/door.key\"\n";
    let far = MCP.replace("127.0.0.1:7780", "192.0.2.7:443");
    let buyer = holder("buyer", "scopes = [\"tea:buy\"]\n");
    let text = format!("{far}{tls}{OAUTH}{buyer}{}", holder("reader", ""));
    let gateway = parse(&text).unwrap().gateway.unwrap();
    let [process] = &gateway.agents("sealbus")[..] else {
        panic!("one process");
    };
    assert_eq!(process.local_names(), ["mcp", "buyer", "reader"]);
    let read = &process.confinement.read;
    assert!(
        read[0].ends_with("/door.pem") && read[1] == "/etc/door.key",
        "{read:?}"
    );
    let config = serde_json::from_str(&process.environment[crate::GATEWAY_VARIABLE]).unwrap();
    assert_eq!(gateway.mcp.as_ref(), Some(&config));
    for (text, part) in [
        (
            text.replace("key = \"/etc", "clients = \"/etc"),
            "needs `certificate` and `key`",
        ),
        (text.replace(tls, ""), "keys to the network"),
        (text.replace("192.0.2.7", "0.0.0.0"), "list in `hosts`"),
        (text.replace(OAUTH, ""), "nobody issues tokens"),
        (
            text.replace("https://login.example/keys", "http://login.example/keys"),
            "`keys`",
        ),
        (
            text.replace("https://tea.example/mcp", "https://tea.example/mcp?x"),
            "`resource`",
        ),
        (
            text.replace("\"https://login.example\"", "\"login.example\""),
            "`issuer`",
        ),
        (text.replace("tea:buy", "tea buy"), "no token can have"),
        (
            text.replace("scopes = [\"tea:buy\"]\n", ""),
            "subject and scopes of another",
        ),
        (
            text.replace("subject = \"client-1\"\nscopes", "scopes"),
            "neither `key` nor `subject`",
        ),
        (format!("{text}surplus = 1\n"), "surplus"),
    ] {
        let problems = problems(&text);
        assert!(
            problems.iter().any(|it| it.message.contains(part)),
            "{part}: {problems:?}"
        );
    }
}

#[test]
fn both_doors_for_callers_stand_side_by_side() {
    let a2a = MCP.replace("mcp", "a2a") + "anonymous = \"stranger\"\n";
    let mcp = "[gateway.mcp]\nlisten = \"127.0.0.1:7780\"\nanonymous = \"guest\"\n";
    let gateway = parse(&format!("{a2a}{mcp}")).unwrap().gateway.unwrap();
    let [mcp_process, process] = &gateway.agents("sealbus")[..] else {
        panic!("two processes");
    };
    assert_eq!(mcp_process.local_names(), ["mcp", "guest"]);
    assert_eq!(process.local_names(), ["a2a", "stranger"]);
    assert_eq!(process.command, ["sealbus", "gateway", "a2a"]);
    let hooks = "webhooks = { allow = [\"10.0.7.0/24\"] }\n";
    let posting = parse(&format!("{a2a}{hooks}")).unwrap().gateway.unwrap();
    let allow = posting.a2a.unwrap().webhooks.unwrap().allow;
    assert_eq!(allow, ["10.0.7.0/24"]);
    for (text, part) in [
        (format!("{mcp}{hooks}"), "posts no news"),
        (
            format!("{a2a}{hooks}").replace("/24", "/64"),
            "network address",
        ),
    ] {
        let problems = problems(&format!(
            "[platform]\nname = \"factory\"\n{}",
            text.replace("[platform]\nname = \"factory\"\n", "")
        ));
        assert!(problems[0].message.contains(part), "{problems:?}");
    }
    let problems = problems(&format!("{a2a}{}", mcp.replace("guest", "stranger")));
    assert!(
        problems[0]
            .message
            .contains("two agents are named stranger")
    );
}

const NEIGHBOUR: &str = "[platform]\nname = \"factory\"\n[gateway.neighbours.weather]\nurl = \"https://agents.example/\"\n";

#[test]
fn neighbours_are_agents_of_one_process() {
    let text = format!("{NEIGHBOUR}key-file = \"weather.key\"\n");
    let gateway = parse(&text).unwrap().gateway.unwrap();
    let [process] = &gateway.agents("sealbus")[..] else {
        panic!("one process");
    };
    assert_eq!(process.local_names(), ["neighbours", "weather"]);
    assert_eq!(process.command, ["sealbus", "gateway", "neighbours"]);
    assert!(process.confinement.read[0].ends_with("/weather.key"));
    let config = serde_json::from_str(&process.environment[crate::GATEWAY_VARIABLE]).unwrap();
    assert_eq!(gateway.neighbours, config);
}

#[test]
fn mistakes_in_neighbours_are_told() {
    let url = |url: &str| NEIGHBOUR.replace("https://agents.example/", url);
    assert!(parse(&url("http://127.0.0.1:41241")).is_ok());
    assert!(parse(&url("http://[::1]:41241/a")).is_ok());
    for (text, part) in [
        (url("http://agents.example/"), "without TLS"),
        (url("http://10.0.0.1/"), "without TLS"),
        (url("ftp://agents.example/"), "must begin with https"),
        (url("/agents"), "names no host"),
        (url("https://u:p@agents.example/"), "has a user"),
        (url("https://agents.example/?key=k"), "has a query"),
        (format!("{NEIGHBOUR}header = \"X-Key\"\n"), "no key-file"),
        (
            format!("{NEIGHBOUR}key-file = \"k\"\nheader = \"a b\"\n"),
            "no header",
        ),
        (format!("{NEIGHBOUR}key = \"k\"\n"), "unknown field"),
        (
            format!("{NEIGHBOUR}[[agent]]\nname = \"weather\"\ncommand = [\"/bin/true\"]\n"),
            "two agents are named weather",
        ),
    ] {
        let problems = problems(&text);
        assert!(
            problems.iter().any(|it| it.message.contains(part)),
            "{part}: {problems:?}"
        );
    }
}

#[test]
fn there_is_an_end_to_agents() {
    let entry = |name: &str, keys: &str| {
        format!("[[agent]]\nname = \"{name}\"\ncommand = \"sh\"\n{keys}\n")
    };
    let platform = "[platform]\nname = \"factory\"\n";
    let many = entry("a", "replicas = 1001\nagents = 1000");
    let two = entry("a", "replicas = 600000") + &entry("b", "agents = 600000");
    for entries in [many, two] {
        let problems = problems(&format!("{platform}{entries}"));
        assert_eq!(problems.len(), 1);
        assert_eq!(
            problems[0].message,
            "the manifest has more than 1000000 agents"
        );
    }
    let most = entry("a", "replicas = 1000\nagents = 1000");
    assert_eq!(
        parse(&format!("{platform}{most}")).unwrap().agents[0].count(),
        1_000_000
    );
}

#[test]
fn there_is_an_end_to_the_mistakes_that_are_told() {
    let mut text = "[platform]\nname = \"factory\"\n".to_owned();
    for number in 0..2 * MOST_PROBLEMS {
        text.push_str(&format!("key-{number} = 1\n"));
    }
    assert_eq!(problems(&text).len(), MOST_PROBLEMS);
}
