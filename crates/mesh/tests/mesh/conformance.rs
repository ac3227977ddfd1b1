//! The suite that all transports pass, over the mesh at each of its levels.

use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{Platform, Process, now};
use sealbus_bus::{
    BoxFuture, Bus, Location, Mailbox, MailboxLimits, Outbox, ProcessEndpoint, ReceivedMessage,
};
use sealbus_conformance::{Setting, TestedPromise, World};
use sealbus_seal::denylist::DenyList;
use sealbus_seal::{Identity, SecurityLevel};

struct Mesh(SecurityLevel);

struct Processes {
    platform: Platform,
    processes: Vec<Process>,
    /// The proxies whose addresses the other processes are told.
    proxies: Vec<Proxy>,
}

impl Setting for Mesh {
    fn name(&self) -> String {
        format!("mesh, {}", self.0)
    }

    fn open(&self, processes: usize) -> BoxFuture<'_, Box<dyn World>> {
        Box::pin(async move {
            let platform = Platform::new(self.0);
            let mut world = Processes {
                platform,
                processes: Vec::new(),
                proxies: Vec::new(),
            };
            for number in 1..=processes {
                let process = world
                    .platform
                    .process_with(&format!("node-{number}"), |config| {
                        config.redial.0 = Duration::from_millis(1);
                        config.give_up = Duration::from_secs(5);
                    })
                    .await;
                world
                    .proxies
                    .push(Proxy::to(process.endpoint.local_address()).await);
                world.processes.push(process);
            }
            for process in &world.processes {
                for (other, proxy) in world.processes.iter().zip(&world.proxies) {
                    if other.identity != process.identity {
                        process.bus.process_joined(ProcessEndpoint {
                            identity: other.identity.clone(),
                            address: proxy.address,
                        });
                    }
                }
            }
            let world: Box<dyn World> = Box::new(world);
            world
        })
    }

    fn lacks(&self, promise: TestedPromise) -> Option<&'static str> {
        match promise {
            TestedPromise::Unread => Some("they are lost with it, and nobody is told"),
            TestedPromise::ForgedSender | TestedPromise::RevokedSender
                if !self.0.authenticates() =>
            {
                Some("senders are not proved at this level")
            }
            _ => None,
        }
    }
}

impl Processes {
    fn place(&self, process: usize, agent: &str) {
        let endpoint = ProcessEndpoint {
            identity: self.processes[process].identity.clone(),
            address: self.proxies[process].address,
        };
        let location = Location::Process(endpoint);
        self.platform.directory.put(agent, location);
    }
}

impl World for Processes {
    fn bus(&self, process: usize) -> &Bus {
        &self.processes[process].bus
    }

    fn identity(&self, process: usize) -> Identity {
        self.processes[process].identity.clone()
    }

    fn attach<'a>(
        &'a self,
        process: usize,
        name: &'a str,
        limits: Option<MailboxLimits>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)> {
        Box::pin(async move {
            let credential = self.platform.level.authenticates();
            let credential = credential.then(|| self.platform.authority.agent(name));
            let bus = &self.processes[process].bus;
            let attached = bus.attach(name, credential, limits).unwrap();
            self.place(process, name);
            attached
        })
    }

    fn move_to<'a>(
        &'a self,
        from: usize,
        to: usize,
        name: &'a str,
        unread: Vec<ReceivedMessage>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)> {
        Box::pin(async move {
            self.platform.directory.put(name, Location::InTransit);
            self.processes[from].bus.detach(name);
            let credential = self.platform.level.authenticates();
            let credential = credential.then(|| self.platform.authority.agent(name));
            let bus = &self.processes[to].bus;
            let attached = bus.attach_moved(name, credential, None, unread).unwrap();
            self.place(to, name);
            for process in &self.processes {
                process.bus.location_changed(name);
            }
            attached
        })
    }

    fn break_connections(&self) {
        for proxy in &self.proxies {
            proxy.cut();
        }
    }

    fn kill(&self, process: usize) -> BoxFuture<'_, ()> {
        // No more traffic goes in or out, and nothing is announced. The other processes must find out themselves.
        self.proxies[process].close();
        self.break_connections();
        let endpoint = &self.processes[process].endpoint;
        Box::pin(endpoint.shut_down(Duration::ZERO))
    }

    fn revoke<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, ()> {
        let authority = &self.platform.authority;
        let mut list = DenyList::new(authority.issuing.identity().clone());
        let identity = Identity::from_agent_name(agent).unwrap();
        list.deny_identity(
            identity,
            now().plus(crate::support::DAY),
            crate::support::denial(now()),
        )
        .unwrap();
        let signed = list.sign(&authority.issuing).unwrap().whole();
        for process in &self.processes {
            process.trust.apply_deny_list(&signed, now()).unwrap();
            process.endpoint.trust_changed();
        }
        Box::pin(std::future::ready(()))
    }
}

mod signed {
    use super::*;
    sealbus_conformance::conformance_tests!(Mesh(SecurityLevel::Signed));
}

mod auth {
    use super::*;
    sealbus_conformance::conformance_tests!(Mesh(SecurityLevel::Auth));
}

mod tls {
    use super::*;
    sealbus_conformance::conformance_tests!(Mesh(SecurityLevel::Tls));
}

mod none {
    use super::*;
    sealbus_conformance::conformance_tests!(Mesh(SecurityLevel::None));
}
