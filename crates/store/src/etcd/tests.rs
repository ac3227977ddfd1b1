//! Stores in clusters of Debian's etcd, started here.

#![allow(clippy::unwrap_used)]

mod crowded;
mod long_values;
mod ports;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use self::ports::free_port;
use super::*;
use crate::{Fenced, TERM_ROW, read_all};

/// Enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// An etcd cluster on loopback addresses. It ends with this value.
pub(crate) struct EtcdCluster {
    folder: tempfile::TempDir,
    members: Vec<Running>,
}

struct Running {
    process: Child,
    command: Vec<String>,
    client: u16,
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

fn run(command: &[String], log: &Path) -> Child {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(log)
        .unwrap();
    Command::new("etcd")
        .args(command)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("etcd is not installed: `make etcd-server`")
}

impl EtcdCluster {
    pub(crate) fn start(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = EtcdAuthority::keep(folder.path()).unwrap();
        let loopback = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let names: Vec<_> = (1..=count).map(|number| format!("etcd-{number}")).collect();
        let ports: Vec<_> = names.iter().map(|_| (free_port(), free_port())).collect();
        let pairs = names.iter().zip(&ports);
        let peers = pairs.map(|(name, (_, peer))| format!("{name}=https://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        authority.certify_client("master-1").unwrap();
        let members = names.iter().zip(&ports).map(|(name, (client, peer))| {
            let files = authority.certify_member(name, &loopback).unwrap();
            let file = |name: &str| files.join(name).display().to_string();
            let data = folder.path().join(name).join("data");
            let client_url = format!("https://127.0.0.1:{client}");
            let peer_url = format!("https://127.0.0.1:{peer}");
            let mut command = vec![
                format!("--name={name}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={client_url}"),
                format!("--advertise-client-urls={client_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster={peers}"),
                "--logger=zap".to_owned(),
            ];
            for side in ["", "peer-"] {
                command.extend([
                    format!("--{side}trusted-ca-file={}", file(AUTHORITY_FILE)),
                    format!("--{side}cert-file={}", file("member.pem")),
                    format!("--{side}key-file={}", file("member.key")),
                    format!("--{side}client-cert-auth"),
                ]);
            }
            Running {
                process: run(&command, &folder.path().join("log")),
                command,
                client: *client,
            }
        });
        let members = members.collect();
        Self { folder, members }
    }

    pub(crate) fn settings(&self) -> EtcdSettings {
        self.settings_at(self.members.iter().map(|member| member.client))
    }

    fn settings_at(&self, ports: impl IntoIterator<Item = u16>) -> EtcdSettings {
        let address = |port| format!("https://127.0.0.1:{port}");
        EtcdSettings {
            members: ports.into_iter().map(address).collect(),
            credentials: self.credentials(),
        }
    }

    fn credentials(&self) -> PathBuf {
        self.folder.path().join("master-1")
    }

    fn signal(&self, member: usize, signal: &str) {
        let process = self.members[member].process.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status();
        assert!(sent.unwrap().success());
    }

    fn kill(&mut self, member: usize) {
        self.members[member].process.kill().unwrap();
        self.members[member].process.wait().unwrap();
    }

    fn restart(&mut self, member: usize) {
        let log = self.folder.path().join("log");
        self.members[member].process = run(&self.members[member].command, &log);
    }
}

/// Opens a store as soon as the cluster answers.
pub(crate) async fn open(settings: &EtcdSettings, instance: &str) -> EtcdStore {
    let since = Instant::now();
    loop {
        match EtcdStore::open(settings, "factory", instance).await {
            Err(StoreError::Away { .. }) if since.elapsed() < DEADLINE => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Commits as the desk does: again and again while the store is away.
async fn commit(store: &dyn Store, batch: Batch) -> Result<Revision, StoreError> {
    let since = Instant::now();
    loop {
        match store.commit(batch.clone()).await {
            Err(StoreError::Away { .. }) if since.elapsed() < DEADLINE => {}
            result => return result,
        }
    }
}

/// Writes beside the rows what a commit of these changes needs.
async fn staged(store: &EtcdStore, changes: &plan::Changes, mark: &str) -> commit::Commit {
    let until = Instant::now() + DEADLINE;
    let listed = store.listed(&mut *store.writer.lock().await, until).await;
    let folder = format!("{}/{mark}", store.instance());
    let plan = plan::Plan::new(changes, &listed.unwrap(), &folder);
    let staged = store.stage(mark.to_owned(), plan, Default::default(), until);
    staged.await.unwrap()
}

/// About the bytes of answers that a handshake takes. A commit takes about 100.
const HANDSHAKE: u64 = 1500;

/// A way to a member that cuts each connection after a number of bytes of answers.
struct Cutting {
    address: SocketAddr,
    cuts: Arc<AtomicU64>,
}

impl Cutting {
    async fn to(member: u16, least: u64, spread: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU64::new(0));
        let count = cuts.clone();
        tokio::spawn(async move {
            let mut number: u64 = 0;
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = TcpStream::connect(("127.0.0.1", member)).await.unwrap();
                number += 1;
                let most = least + number * 611_953 % spread;
                tokio::spawn(relay(near, far, most, count.clone()));
            }
        });
        Self { address, cuts }
    }
}

/// Relays all that the client sends, and the first `most` bytes of the answers. Later ones are lost.
async fn relay(near: TcpStream, far: TcpStream, most: u64, cuts: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = near.into_split();
    let (from_member, mut to_member) = far.into_split();
    let asking = tokio::io::copy(&mut from_client, &mut to_member);
    let answering = async {
        let mut answers = from_member.take(most);
        let copied = tokio::io::copy(&mut answers, &mut to_client).await;
        // The request that this would have answered is carried out nevertheless.
        let mut lost = answers.into_inner();
        let _ = tokio::time::timeout(Duration::from_millis(50), lost.read_u8()).await;
        let _ = to_client.shutdown().await;
        copied
    };
    tokio::select! {
        _ = asking => {}
        _ = answering => {
            cuts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_commit_whose_answer_is_lost_is_made_once() {
    let cluster = EtcdCluster::start(1);
    let direct = open(&cluster.settings(), "reader").await;
    let cutting = Cutting::to(cluster.members[0].client, HANDSHAKE, 1200).await;
    let store = open(&cluster.settings_at([cutting.address.port()]), "master-1").await;
    let mut last = 0;
    for number in 0..200 {
        let mut batch = Batch::new();
        batch.put("counter", number.to_string());
        batch.put(format!("row/{number}"), "x");
        // Made twice, it meets its own change.
        batch.require("counter", last);
        let mut is_away = false;
        let made = loop {
            match store.commit(batch.clone()).await {
                Ok(made) => break made,
                Err(StoreError::Away { .. }) => is_away = true,
                // It was made before the store gave up, on a machine that is slow.
                Err(StoreError::Conflict { found, .. }) if is_away => break found,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(made > last);
        last = made;
    }
    assert!(cutting.cuts.load(Ordering::Relaxed) > 10);
    let entry = direct.get("counter").await.unwrap().unwrap();
    assert_eq!((entry.value, entry.revision), (b"199".to_vec(), last));
    assert_eq!(direct.scan("row/", None, 999).await.unwrap().len(), 200);
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn a_commit_of_any_size_is_whole_or_not_there() {
    let cluster = EtcdCluster::start(1);
    let direct = open(&cluster.settings(), "reader").await;
    let cutting = Cutting::to(cluster.members[0].client, 500_000, 1_500_000).await;
    let store = open(&cluster.settings_at([cutting.address.port()]), "master-1").await;
    // Too many for a transaction of etcd, and too long for a request.
    let mut batch = Batch::new();
    for number in 0..700 {
        batch.put(format!("many/{number:03}"), vec![b'x'; 4096]);
    }
    let first = commit(&store, batch.clone()).await.unwrap();
    for number in 0..700 {
        batch.delete(format!("many/{number:03}"));
    }
    batch.put("long", vec![b'y'; 5 << 20]);
    let mut unfit = batch.clone();
    unfit.require("many/699", 1);
    let refused = commit(&store, unfit).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    assert_eq!(direct.scan("many/", None, 999).await.unwrap().len(), 700);
    assert!(commit(&store, batch).await.unwrap() > first);
    assert_eq!(direct.scan("", None, 999).await.unwrap().len(), 1);
    assert!(cutting.cuts.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn whoever_comes_next_finishes_a_commit_of_many_parts() {
    let cluster = EtcdCluster::start(1);
    let ended = open(&cluster.settings(), "master-1").await;
    let mut changes = plan::Changes::new();
    for number in 0..250 {
        changes.insert(format!("many/{number:03}"), Some(b"x".to_vec()));
    }
    // The first writer ends right after its transaction, before it has moved anything to its place.
    let commit = staged(&ended, &changes, "mark").await;
    let transaction = wire::Transaction {
        compare: commit.demands,
        success: commit.changes,
        failure: Vec::new(),
    };
    assert!(ended.transact(&transaction).await.unwrap().succeeded);
    let next = open(&cluster.settings(), "master-2").await;
    assert_eq!(next.scan("many/", None, 999).await.unwrap().len(), 250);
    assert!(next.read(next.keys.pending()).await.unwrap().is_none());
}

/// Three leaders over ways that lose answers. Each claims the store again and again.
#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn no_row_is_written_in_a_term_after_a_later_one_has_begun() {
    let cluster = EtcdCluster::start(1);
    open(&cluster.settings(), "master-1").await;
    let walk = async |leader: u64| {
        let cutting = Cutting::to(cluster.members[0].client, HANDSHAKE, 1200).await;
        let settings = cluster.settings_at([cutting.address.port()]);
        let store: Arc<dyn Store> = Arc::new(open(&settings, &format!("master-{leader}")).await);
        let mut kept = Vec::new();
        for claim in 0..12 {
            let fenced = match Fenced::claim(store.clone()).await {
                Ok(fenced) => fenced,
                Err(StoreError::Conflict { .. } | StoreError::Away { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            let term = fenced.term();
            for number in 0..4 {
                let key = format!("row/{leader}/{claim}/{number}");
                let mut batch = Batch::new();
                batch.put(key.clone(), term.number.to_string());
                match commit(&fenced, batch).await {
                    Ok(_) => kept.push(key),
                    Err(StoreError::Superseded { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
                tokio::time::sleep(Duration::from_millis(3 * leader)).await;
            }
            let claimed = format!("claimed/{:06}", term.number);
            let mut batch = Batch::new();
            batch.put(claimed, fenced.revision.to_string());
            commit(&*store, batch).await.unwrap();
        }
        kept
    };
    let kept = futures_util::future::join_all((1..=3).map(walk)).await;
    let store = open(&cluster.settings(), "checker").await;
    let mut claims = Vec::new();
    read_all(&store, "claimed/", |key, entry| {
        let term: u64 = key["claimed/".len()..].parse().unwrap();
        let begun: u64 = String::from_utf8(entry.value).unwrap().parse().unwrap();
        claims.push((term, begun));
    })
    .await
    .unwrap();
    assert!(claims.len() > 10, "{claims:?}");
    assert!(
        claims.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1),
        "{claims:?}"
    );
    for key in kept.iter().flatten() {
        assert!(store.get(key).await.unwrap().is_some(), "{key} is lost");
    }
    let mut rows = 0;
    read_all(&store, "row/", |key, entry| {
        rows += 1;
        let term: u64 = String::from_utf8(entry.value).unwrap().parse().unwrap();
        let later = claims.iter().find(|(later, _)| *later > term);
        if let Some((later, begun)) = later {
            let written = entry.revision;
            assert!(
                written < *begun,
                "{key} of {term}: {written}, {later}: {begun}"
            );
        }
    })
    .await
    .unwrap();
    assert!(rows >= kept.iter().flatten().count() && rows > 20);
    assert!(store.get(TERM_ROW).await.unwrap().is_some());
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn commits_go_on_without_any_one_member_and_wait_without_two() {
    let mut cluster = EtcdCluster::start(3);
    let store = Arc::new(open(&cluster.settings(), "master-1").await);
    let counts = async |from: u32, to: u32| {
        for number in from..to {
            let mut batch = Batch::new();
            batch.put(format!("row/{number}"), "x");
            commit(&*store, batch).await.unwrap();
        }
    };
    counts(0, 10).await;
    for member in 0..3 {
        let at = 10 + 20 * member as u32;
        cluster.kill(member);
        counts(at, at + 10).await;
        cluster.restart(member);
        // The next one goes only when this one is back.
        let alone = cluster.settings_at([cluster.members[member].client]);
        open(&alone, "asking").await;
        cluster.signal(member, "STOP");
        counts(at + 10, at + 20).await;
        cluster.signal(member, "CONT");
    }
    cluster.kill(0);
    cluster.kill(1);
    let mut batch = Batch::new();
    batch.put("row/late", "x");
    let error = store.commit(batch.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Away { .. }), "{error}");
    assert!(error.to_string().starts_with("etcd-away: "), "{error}");
    cluster.restart(0);
    commit(&*store, batch).await.unwrap();
    assert_eq!(store.scan("row/", None, 999).await.unwrap().len(), 71);
}

#[tokio::test]
#[ignore = "needs etcd: make test-masters"]
async fn etcd_believes_its_own_authority_alone() {
    let cluster = EtcdCluster::start(1);
    let settings = cluster.settings();
    open(&settings, "master-1").await;
    let other = tempfile::tempdir().unwrap();
    let foreign = EtcdAuthority::keep(other.path()).unwrap();
    let stranger = foreign.certify_client("master-1").unwrap();
    // The stranger believes the member, and the member does not believe the stranger.
    let authority = cluster.credentials().join(AUTHORITY_FILE);
    std::fs::copy(authority, stranger.join(AUTHORITY_FILE)).unwrap();
    let mallory = EtcdSettings {
        credentials: stranger,
        ..settings.clone()
    };
    let refused = EtcdStore::open(&mallory, "factory", "mallory").await;
    assert!(
        matches!(refused, Err(StoreError::Away { .. })),
        "{refused:?}"
    );
    // A member of another authority is not believed either.
    let fooled = EtcdSettings {
        credentials: foreign.certify_client("master-2").unwrap(),
        ..settings.clone()
    };
    let refused = EtcdStore::open(&fooled, "factory", "fooled")
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let check = EtcdCheck::run(&settings, "factory").await.unwrap();
    assert!(check.is_good(), "{check:?}");
    assert!(check.members[0].leads && check.write_p99 > 0, "{check:?}");
    assert_eq!(check.members[0].name.as_deref(), Some("etcd-1"));
    let check = EtcdCheck::run(&mallory, "factory").await.unwrap();
    assert!(!check.is_good(), "{check:?}");
}

#[test]
fn an_address_of_a_member_is_https_with_a_port() {
    for good in [
        "https://10.0.0.5:2379",
        "https://etcd-1:2379/",
        "https://[::1]:2379",
    ] {
        settings::member(good).unwrap();
    }
    for bad in [
        "http://10.0.0.5:2379",
        "10.0.0.5:2379",
        "https://10.0.0.5",
        "https://a:1/b",
        "",
    ] {
        assert!(settings::member(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_authority_goes_on_and_names_stay_in_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = EtcdAuthority::keep(folder.path()).unwrap();
    let hosts = ["10.0.0.5".to_owned(), "etcd-1.example".to_owned()];
    first.certify_member("etcd-1", &hosts).unwrap();
    let again = EtcdAuthority::keep(folder.path()).unwrap();
    assert_eq!(again.certificate, first.certificate);
    let twice = again.certify_member("etcd-1", &hosts).unwrap_err();
    assert!(matches!(twice, CertifyError::Exists(_)), "{twice}");
    for name in ["", "..", "../x", "a/b", "a b"] {
        let refused = again.certify_client(name).unwrap_err();
        assert!(
            matches!(refused, CertifyError::Name(_)),
            "{name}: {refused}"
        );
    }
    // The key of another authority.
    let other = tempfile::tempdir().unwrap();
    EtcdAuthority::keep(other.path()).unwrap();
    std::fs::copy(other.path().join("ca.key"), folder.path().join("ca.key")).unwrap();
    let damaged = EtcdAuthority::keep(folder.path()).err().unwrap();
    assert!(matches!(damaged, CertifyError::Damaged { .. }), "{damaged}");
}
