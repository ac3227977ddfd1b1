//! Intruders that are called: the directory wrongly places an agent in their process.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Location, ProcessEndpoint};
use sealbus_fipa::Performative;
use sealbus_mesh::frame::{Frame, PREFACE, PROTOCOL_VERSION};
use sealbus_seal::binding::{Binding, BoundConnection, Role};
use sealbus_seal::tls::{Acceptor, CertificateSource, ExpectedPeer};
use sealbus_seal::{SecurityLevel, Trust};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::intruder::scene::Scene;
use crate::intruder::{ALPN_AUTH, Intruder, Seen};
use crate::support::{inform, soon};

/// An intruder that answers calls, with the certificate of a process.
async fn answer(scene: &Scene, listener: &TcpListener) -> Intruder {
    answer_at(scene, listener, SecurityLevel::Auth)
        .await
        .unwrap()
}

/// As [`answer`], but the intruder says that it is at `level`. Returns `None` if the process ended the call meanwhile.
async fn answer_at(
    scene: &Scene,
    listener: &TcpListener,
    level: SecurityLevel,
) -> Option<Intruder> {
    let (tcp, _) = soon(listener.accept()).await.unwrap();
    let source = CertificateSource::new(&scene.credential).unwrap();
    let trust: Arc<Trust> = scene.platform.authority.trust();
    let acceptor = Acceptor::new(
        SecurityLevel::Auth,
        source,
        trust,
        ExpectedPeer::ENDPOINT,
        &[ALPN_AUTH],
    )
    .unwrap();
    let (config, _) = acceptor.accept().unwrap();
    let mut stream = soon(tokio_rustls::TlsAcceptor::from(config).accept(tcp))
        .await
        .ok()?;
    stream.write_all(&PREFACE).await.ok()?;
    let channel =
        BoundConnection::of(stream.get_ref().1, SecurityLevel::Auth, PROTOCOL_VERSION).unwrap();
    let mut intruder = Intruder::over(Box::new(stream), channel, Role::Server);
    let identity = scene.credential.certificate().unwrap().identity().clone();
    intruder.hello(&identity, level.code()).await.ok()?;
    Some(intruder)
}

/// The process answers once. The sender learns the reason, although nobody answers the later calls, and the last of them
/// is cut off.
#[tokio::test]
async fn a_process_that_answers_at_another_level_is_given_up_for_that() {
    let scene = Scene::new().await;
    let process = scene
        .platform
        .process_with("node-3", |config| config.give_up = Duration::from_secs(1))
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = ProcessEndpoint {
        identity: scene.credential.certificate().unwrap().identity().clone(),
        address: listener.local_addr().unwrap(),
    };
    let (trusting, mut mailbox) = scene.platform.agent(&process, "trusting@factory");
    let place = Location::Process(endpoint);
    scene.platform.directory.put("bob@factory", place);
    // The process may be given up before its answer has arrived. Then the message is sent again.
    let told = soon(async {
        loop {
            let before = process.bus.refusals().total();
            let secret = inform("bob@factory", "the secret");
            trusting.send(secret).await.unwrap();
            let answering = async {
                let _answered = loop {
                    if let Some(intruder) = answer_at(&scene, &listener, SecurityLevel::Tls).await {
                        break intruder;
                    }
                };
                std::future::pending::<()>().await;
            };
            let told = tokio::select! {
                told = mailbox.recv() => told.unwrap(),
                () = answering => unreachable!(),
            };
            if process.bus.refusals().total() > before {
                return told;
            }
        }
    })
    .await;
    let told = told.into_message();
    assert_eq!(told.performative, Performative::Failure);
    assert!(told.content_text().unwrap().contains("level"), "{told:?}");
    scene.unharmed().await;
}

/// The lie of an intruder that wants a message for `bob`.
#[derive(Clone, Copy, PartialEq)]
enum Lie {
    AcceptWithoutProof,
    CreditWithoutProof,
    ProofOfAnother,
    Nonsense,
    /// The truth, as a counter-check: the intruder holds bob's key.
    None,
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Caught,
    SenderTold,
    Nothing,
}

/// The outcome of a message for `bob@factory`, if the directory wrongly places bob in the intruder's process.
async fn fish(lie: Lie) -> Outcome {
    let scene = Scene::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (trusting, mut mailbox) = scene.platform.agent(&scene.process, "trusting@factory");
    let endpoint = ProcessEndpoint {
        identity: scene.credential.certificate().unwrap().identity().clone(),
        address: listener.local_addr().unwrap(),
    };
    let place = Location::Process(endpoint);
    scene.platform.directory.put("bob@factory", place);
    let bob = scene.platform.authority.agent("bob@factory");
    let mallory = scene.mallory();
    let told = async {
        let _ = trusting.send(inform("bob@factory", "the secret")).await;
        let told = mailbox.recv().await.unwrap();
        assert_eq!(told.message().performative(), Performative::Failure);
    };
    let fishing = async {
        let mut intruder = answer(&scene, &listener).await;
        loop {
            match intruder.next().await {
                Some(Seen::Target { handle, .. }) => {
                    let agent = match lie {
                        Lie::ProofOfAnother => Some(&mallory),
                        Lie::None => Some(&bob),
                        _ => None,
                    };
                    let mut proof = Vec::new();
                    if let Some(agent) = agent {
                        let binding = Binding::prove(agent, &intruder.channel, Role::Server);
                        binding.unwrap().encode(&mut proof);
                    }
                    if lie == Lie::Nonsense {
                        proof.extend_from_slice(b"nonsense");
                    }
                    if !proof.is_empty() {
                        let proof = Frame::Prove {
                            target: handle,
                            proof: &proof,
                        };
                        intruder.send(&proof).await.unwrap();
                    }
                    let limit = 1 << 20;
                    let answer = match lie {
                        Lie::CreditWithoutProof => Frame::Credit {
                            target: handle,
                            limit,
                        },
                        _ => Frame::Accept {
                            target: handle,
                            limit,
                        },
                    };
                    intruder.send(&answer).await.unwrap();
                }
                Some(Seen::CloseTarget { target }) => {
                    intruder
                        .send(&Frame::TargetClosed { target })
                        .await
                        .unwrap();
                }
                Some(Seen::Message { .. }) => return,
                Some(_) => {}
                None => panic!("the connection ended"),
            }
        }
    };
    let patience = match lie {
        // No event shows that nothing comes, so the test waits a while.
        Lie::CreditWithoutProof => Duration::from_secs(1),
        _ => Duration::from_secs(60),
    };
    let outcome = tokio::select! {
        () = fishing => Outcome::Caught,
        () = told => Outcome::SenderTold,
        () = tokio::time::sleep(patience) => Outcome::Nothing,
    };
    scene.unharmed().await;
    outcome
}

#[tokio::test]
async fn a_message_goes_to_its_receiver() {
    assert_eq!(fish(Lie::None).await, Outcome::Caught);
}

#[tokio::test]
async fn a_message_does_not_go_to_who_gives_no_proof() {
    assert_eq!(fish(Lie::AcceptWithoutProof).await, Outcome::SenderTold);
}

#[tokio::test]
async fn a_message_does_not_go_to_who_gives_credit_in_place_of_a_proof() {
    assert_eq!(fish(Lie::CreditWithoutProof).await, Outcome::Nothing);
}

#[tokio::test]
async fn a_message_does_not_go_to_who_proves_to_be_another() {
    assert_eq!(fish(Lie::ProofOfAnother).await, Outcome::SenderTold);
}

#[tokio::test]
async fn a_message_does_not_go_to_who_proves_nothing() {
    assert_eq!(fish(Lie::Nonsense).await, Outcome::SenderTold);
}
