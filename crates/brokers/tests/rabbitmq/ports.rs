//! Other programs on the ports of a broker.

use std::cell::RefCell;
use std::net::TcpListener;

use sealbus_brokers::Login;
use sealbus_brokers::rabbitmq::{BrokerError, BrokerPorts, ManagedBroker};
use sealbus_seal::SecurityLevel;

use crate::support::platform::{folder, setup};
use crate::support::{Authority, LOOPBACK};

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn a_new_broker_leaves_a_port_in_use_and_a_restarted_one_names_it() {
    let (authority, folder) = (Authority::new(), folder());
    let operator = Login {
        user: "operator".to_owned(),
        password: "a secret of this test".to_owned(),
    };
    let draws = RefCell::new(Vec::new());
    // Another program takes the port of the first mapper, which shows only once the broker starts, and then another port.
    let configure = |ports: &mut BrokerPorts| {
        let mut draws = draws.borrow_mut();
        let taken = match draws.len() {
            0 => Some(ports.mapper),
            1 => Some(ports.management),
            _ => None,
        };
        let other = taken.map(|port| TcpListener::bind((LOOPBACK, port)));
        draws.push(other.transpose()?);
        setup(
            &authority,
            SecurityLevel::None,
            *ports,
            &operator,
            folder.path(),
        );
        Ok(())
    };
    let mut broker = ManagedBroker::start(folder.path(), LOOPBACK, configure)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let ports = broker.ports();
    assert_eq!(BrokerPorts::kept(folder.path()).unwrap(), ports);
    assert_eq!(draws.borrow().len(), 3);
    broker.stop().await;

    let other = TcpListener::bind((LOOPBACK, ports.distribution)).unwrap();
    match ManagedBroker::start(folder.path(), LOOPBACK, |_| Ok(())).await {
        Err(BrokerError::PortInUse { port, .. }) => assert_eq!(port, ports.distribution),
        other => panic!("{other:?}"),
    }
    drop(other);
    let mut again = ManagedBroker::start(folder.path(), LOOPBACK, |_| Ok(()))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.ports(), ports);
    again.stop().await;
}
