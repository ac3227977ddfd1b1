//! Strangers, programs and nodes at the entrances of a platform: those for joining, for attaching programs, and for
//! operators.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{HERE, LONG, Operator, alive, config, joined, node_config, platform};
use sealbus_control::admin::{AgentStatus, ask};
use sealbus_control::attachment::{AgentReport, AttachmentRequest, ask as attachment};
use sealbus_control::authority::AuthorityRequest;
use sealbus_control::clock::now;
use sealbus_control::node::ONTOLOGY;
use sealbus_control::operators::{self, socket_in};
use sealbus_control::rpc::{self, Frame, Incoming, LONGEST_FRAME, RpcCaller, codec};
use sealbus_control::{Blob, FaultCode, PlacedState};
use sealbus_enrolment::{ATTACHMENT, ENROLMENT, accept, bind, connect};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_master::Master;
use sealbus_node::{Node, NodeError};
use sealbus_process::attachment::secret_text;
use sealbus_seal::tls::{Acceptor, CertificateSource, ExpectedPeer};
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{CertificateChain, Credential, Identity, KeyPair, SecurityLevel};
use serde_json::value::to_raw_value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

async fn silent_connections(address: &str, count: usize) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    silent
}

#[tokio::test]
async fn strangers_keep_no_newcomer_out() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(config(folder.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let operator = Operator::of(&master).await;
    let silent = silent_connections(&master.enrolment_address().to_string(), 300).await;
    let token = operator.token(None).await;
    let _node = Node::start(node_config(folder.path(), "one", Some(token)))
        .await
        .unwrap();
    // Strangers do not keep a program from its node either, and operators are answered.
    alive(&operator, 1).await;
    let ticket = operator.ticket("guest", None).await;
    let address = Token::parse(Purpose::Ticket, &ticket).unwrap().addresses()[0].clone();
    let _more = silent_connections(&address, 300).await;
    let (process, _guest) = joined(&operator, "visitor", "node-1").await;
    assert!(!operator.agents().await.is_empty());
    process.close().await;
    drop(silent);
}

/// Connects to the node of a ticket.
async fn connected(token: &Token) -> tokio_rustls::client::TlsStream<TcpStream> {
    connect(
        token.addresses(),
        token.platform(),
        token.root(),
        ExpectedPeer::NODE,
        ATTACHMENT,
    )
    .await
    .unwrap()
}

/// A process that attaches and asks what it likes, and the secret with which it attaches again.
async fn attached_as(
    token: &Token,
    secret: String,
) -> (RpcCaller, mpsc::Receiver<Incoming>, String) {
    let (caller, incoming, drive) = rpc::open(connected(token).await, LONGEST_FRAME);
    tokio::spawn(drive);
    let (ticket, now, mark) = (secret, now(), None);
    let attach = attachment::Attach { ticket, now, mark };
    let welcome = caller.ask(attach, LONG).await;
    (caller, incoming, welcome.unwrap().reattach)
}

/// Attaches with a ticket by hand. Returns the connection after the node's answer began.
async fn attached(ticket: &str) -> tokio_rustls::client::TlsStream<TcpStream> {
    let token = Token::parse(Purpose::Ticket, ticket).unwrap();
    let mut stream = connected(&token).await;
    let attach = AttachmentRequest::Attach {
        ticket: secret_text(token.secret()),
        now: now(),
        mark: None,
    };
    stream.write_all(&call(0, &attach)).await.unwrap();
    stream.flush().await.unwrap();
    stream.read_exact(&mut [0; 4]).await.unwrap();
    stream
}

fn call(id: u64, request: &AttachmentRequest) -> Vec<u8> {
    let body = to_raw_value(request).unwrap();
    let mut bytes = Vec::new();
    codec::encode(&Frame::Call { id, body }, LONGEST_FRAME, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_process_that_reads_nothing_is_killed_and_its_node_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    let ticket = operator.ticket("mallory", Some("node-1")).await;
    let mut stream = attached(&ticket).await;
    // The program asks until the node takes no more, and reads none of the answers.
    let agent = "ams".to_owned();
    let question = call(1, &AttachmentRequest::Resolve { agent }).repeat(1000);
    let ask = async { while stream.write_all(&question).await.is_ok() {} };
    let _ = tokio::time::timeout(Duration::from_secs(5), ask).await;

    let kill = ask::Kill {
        agent: "mallory".to_owned(),
        grace: 0,
    };
    operator.ask(kill).await.unwrap();
    operator
        .until("its end", |agents| {
            agents
                .iter()
                .all(|agent| agent.name != "mallory@factory" || agent.state.is_none())
        })
        .await;
    // The heartbeats go on.
    let before = operator.nodes().await;
    let heard = async {
        loop {
            let nodes = operator.nodes().await;
            if nodes
                .iter()
                .zip(&before)
                .all(|(now, then)| now.heard > then.heard)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, heard).await.unwrap();
}

#[tokio::test]
async fn the_reports_of_a_hostile_process_hold_no_other_up() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    let ticket = operator.ticket("mallory", Some("node-1")).await;
    let token = Token::parse(Purpose::Ticket, &ticket).unwrap();
    let (mallory, _incoming, _) = attached_as(&token, secret_text(token.secret())).await;
    // It reports about nobody else.
    for agent in ["alice".to_owned(), "x".repeat(1 << 20)] {
        let report = AgentReport::State {
            state: PlacedState::Active,
        };
        let fault = mallory
            .ask(attachment::Report { agent, report }, LONG)
            .await;
        let fault = fault.unwrap_err();
        assert_eq!(fault.code, FaultCode::NotPlaced);
        assert!(
            fault.to_string().len() < 2000,
            "{} bytes",
            fault.to_string().len()
        );
    }
    // A message to the Master has at most 16 MiB.
    let report = AgentReport::Failed {
        error: "x".repeat(20 << 20),
    };
    let agent = "mallory".to_owned();
    mallory
        .ask(attachment::Report { agent, report }, LONG)
        .await
        .unwrap();
    // Its node's later reports reach the Master.
    let (process, _guest) = joined(&operator, "guest", "node-1").await;
    operator
        .until("the guest is active, and mallory has failed", |agents| {
            let is_active = |agent: &AgentStatus| {
                agent.name == "guest@factory" && agent.state == Some(PlacedState::Active)
            };
            let has_failed = |agent: &AgentStatus| {
                let note = agent.note.as_deref().unwrap_or_default();
                agent.name == "mallory@factory"
                    && note.starts_with("failed: xxx")
                    && note.len() < 2000
            };
            agents.iter().any(is_active) && agents.iter().any(has_failed)
        })
        .await;
    process.close().await;
}

#[tokio::test]
async fn a_process_has_one_connection_to_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    let ticket = operator.ticket("mallory", Some("node-1")).await;
    let token = Token::parse(Purpose::Ticket, &ticket).unwrap();
    let mut secret = secret_text(token.secret());
    let mut former = Vec::new();
    for _ in 0..5 {
        let (caller, incoming, next) = attached_as(&token, secret).await;
        secret = next;
        former.push((caller, incoming));
    }
    let (present, _) = former.pop().unwrap();
    for (caller, mut incoming) in former {
        let ended = async { while incoming.recv().await.is_some() {} };
        tokio::time::timeout(LONG, ended).await.unwrap();
        let fault = caller.ask(attachment::DenyList, LONG).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Unavailable);
    }
    present.ask(attachment::DenyList, LONG).await.unwrap();
}

/// Others would connect to whatever it names.
#[tokio::test]
async fn a_process_announces_no_address_of_another_host() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    let ticket = operator.ticket("guest", Some("node-1")).await;
    let token = Token::parse(Purpose::Ticket, &ticket).unwrap();
    let (caller, _incoming, _) = attached_as(&token, secret_text(token.secret())).await;
    for address in ["192.0.2.1:22", "127.0.0.2:7401", "[::1]:7401"] {
        let announce = attachment::Announce {
            address: address.parse().unwrap(),
        };
        let fault = caller.ask(announce, LONG).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::NotPermitted, "{fault}");
    }
    let address = (HERE, 7401).into();
    let announce = attachment::Announce { address };
    caller.ask(announce, LONG).await.unwrap();
}

#[tokio::test]
async fn before_a_ticket_is_shown_frames_are_short() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    let ticket = operator.ticket("guest", Some("node-1")).await;
    let token = Token::parse(Purpose::Ticket, &ticket).unwrap();
    // The node ends a silent connection after a while. It ends one with a long frame before a silent one that is older.
    let ended = async {
        loop {
            let mut silent = connected(&token).await;
            let mut stream = connected(&token).await;
            stream
                .write_all(&(1_u32 << 20).to_be_bytes())
                .await
                .unwrap();
            stream.flush().await.unwrap();
            let mut rest = Vec::new();
            let is_first = tokio::select! {
                biased;
                _ = silent.read_u8() => false,
                _ = stream.read_to_end(&mut rest) => true,
            };
            assert!(rest.is_empty());
            if is_first {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(LONG, ended).await;
    assert!(ended.is_ok(), "the node waits for the rest of the frame");
}

#[tokio::test]
async fn no_node_takes_a_name_of_the_platform() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(config(folder.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let operator = Operator::of(&master).await;
    for name in ["gateway", "master", "ca"] {
        let named = ask::Token {
            node: Some(name.to_owned()),
            lifetime: 600,
            master: false,
        };
        let fault = operator.ask(named).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::IllegalName, "{name}");
        let mut wish = node_config(folder.path(), name, Some(operator.token(None).await));
        wish.name = Some(name.to_owned());
        let error = Node::start(wish).await.err().unwrap();
        assert!(
            error.to_string().contains("itself uses that name"),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn a_node_does_not_pass_for_the_master_where_others_join() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    // A node's own key and certificate, which an attacker has after taking over the node's machine.
    let kept = std::fs::read(folder.path().join("one/node.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    let key = KeyPair::from_pkcs8_pem(kept["key"].as_str().unwrap()).unwrap();
    let chain: Blob = serde_json::from_value(kept["chain"].clone()).unwrap();
    let chain = CertificateChain::decode(&chain.0).unwrap();
    let credential = Credential::new(key, chain).unwrap();
    let (process, _agent) = joined(&operator, "guest", "node-1").await;
    let root = process.membership().platform.roots[0].0.clone().into();
    let source = CertificateSource::with_root(&credential, &root).unwrap();
    let listener = bind((HERE, 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Acceptor::for_enrolment(source, &[ENROLMENT]);
    let (sender, mut came) = tokio::sync::mpsc::channel(1);
    tokio::spawn(accept(listener, acceptor, move |_, _| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(()).await;
        }
    }));
    let token = operator.token(None).await.at(address.to_string()).unwrap();
    let error = Node::start(node_config(folder.path(), "three", Some(token)))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, NodeError::Enrolment(_)), "{error}");
    assert!(came.try_recv().is_err(), "it talked to {address}: {error}");
    process.close().await;
}

#[tokio::test]
async fn an_address_that_refused_is_tried_again_while_another_one_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(config(folder.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let token = Operator::of(&master).await.token(None).await;
    // A Master that was stopped: the system takes connections in its name. Another one is about to lead.
    let silent = bind((HERE, 0).into()).await.unwrap();
    let door = bind((HERE, 0).into()).await.unwrap();
    let addresses = [&silent, &door].map(|it| it.local_addr().unwrap().to_string());
    let leader = master.enrolment_address();
    tokio::spawn(async move {
        drop(door.accept().await.unwrap());
        let (mut near, _) = door.accept().await.unwrap();
        let mut far = TcpStream::connect(leader).await.unwrap();
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    let expected = Identity::node(token.platform(), "master").unwrap();
    let expected = ExpectedPeer::Exactly(expected);
    let connected = connect(
        &addresses,
        token.platform(),
        token.root(),
        expected,
        ENROLMENT,
    );
    connected.await.unwrap();
}

#[tokio::test]
async fn operators_prove_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(config(folder.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    let key = master.directory().join("admin.key");
    assert_eq!(
        std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let open = async || {
        let stream = UnixStream::connect(socket_in(master.directory()))
            .await
            .unwrap();
        let (caller, _, drive) = rpc::open(stream, LONGEST_FRAME);
        tokio::spawn(drive);
        caller
    };
    // An operator comes without the key.
    let fault = open().await.ask(ask::Status, LONG).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::NotPermitted);
    // An operator comes with another key.
    let caller = open().await;
    caller.ask(operators::ask::Challenge, LONG).await.unwrap();
    let proof = "A".repeat(43);
    let fault = caller
        .ask(operators::ask::Prove { proof }, LONG)
        .await
        .unwrap_err();
    assert_eq!(fault.code, FaultCode::NotPermitted);
    // An operator comes with the key, even after a restart of the Master.
    Operator::of(&master).await.nodes().await;
    let before = std::fs::read(&key).unwrap();
    master.abandon().await;
    let master = Master::start(config(folder.path(), SecurityLevel::Auth))
        .await
        .unwrap();
    Operator::of(&master).await.nodes().await;
    assert_eq!(std::fs::read(&key).unwrap(), before);
}

#[tokio::test]
async fn the_ca_hears_nodes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    let (process, mut mallory) = joined(&operator, "mallory", "node-1").await;
    let voucher = serde_json::json!({ "statement": "", "chain": "", "signature": "" });
    let voucher = serde_json::from_value(voucher).unwrap();
    let request = AuthorityRequest::Certify { voucher };
    let request = AclMessage::new(Performative::Request)
        .with_receiver(Aid::new("ca@factory").unwrap())
        .with_ontology(ONTOLOGY)
        .with_reply_with("1")
        .with_content(serde_json::to_string(&request).unwrap());
    mallory.send(request).await.unwrap();
    let answer = tokio::time::timeout(LONG, mallory.receive()).await.unwrap();
    let answer = answer.unwrap().into_message();
    assert_eq!(answer.performative, Performative::Failure);
    let text = answer.content_text().unwrap_or_default().to_owned();
    assert!(text.contains("not-permitted"), "{text}");
    process.close().await;
}
