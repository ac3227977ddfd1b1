//! The suite's promises about persistent channels where messages go over a real RabbitMQ, tested at each level.
//! `make test-rabbitmq` installs RabbitMQ and runs these tests.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod support;

use sealbus_conformance::TestedPromise;
use sealbus_seal::SecurityLevel;
use support::keeping::{OfNodes, keeps};

/// Tests each promise on a platform with a broker of its own.
async fn all(level: SecurityLevel) {
    let setting = OfNodes::on_rabbitmq(level);
    for promise in TestedPromise::OF_LOGS {
        keeps(&setting, promise).await;
    }
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn auth() {
    all(SecurityLevel::Auth).await;
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn tls() {
    all(SecurityLevel::Tls).await;
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn none() {
    all(SecurityLevel::None).await;
}
