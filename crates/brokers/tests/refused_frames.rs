//! A frame that its receiver does not take comes back to its sender, however much the receiver itself has to say.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_brokers::{BrokerConfig, BrokerPromise};
use sealbus_bus::{
    ArrivedFrame, BoxFuture, FrameInlet, FrameSender, LostFrame, OutgoingFrame, ProcessEndpoint,
    RefusedFrame, UndeliverableReason,
};
use sealbus_seal::{Identity, SecurityLevel};
use support::memory::MemoryBroker;
use support::processes::{Connected, Directory, Process};
use support::wait_for;

/// Keeps the reasons for which frames came back.
#[derive(Default)]
struct Inlet(Mutex<Vec<String>>);

impl FrameInlet for Inlet {
    fn take(&self, _: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        Vec::new()
    }

    fn process_joined(&self, _: &ProcessEndpoint) {}

    fn process_left(&self, _: &Identity) {}

    fn lost(&self, _: &Identity, frames: Vec<LostFrame>, reason: &UndeliverableReason) {
        let reasons = frames.iter().map(|_| reason.to_string());
        self.0.lock().extend(reasons);
    }
}

#[tokio::test]
async fn a_refusal_goes_out_although_its_process_has_no_room_for_messages() {
    let broker = MemoryBroker::hostile(1);
    let ground = broker.ground(SecurityLevel::Auth, BrokerPromise::Durable);
    let accounts = ground.accounts();
    let directory = Arc::new(Directory::default());
    let connect = |room: usize| {
        let broker = broker.clone();
        move |mut config: BrokerConfig| -> BoxFuture<'static, Connected> {
            config.addresses = vec!["memory".to_owned()];
            config.unconfirmed_messages = room;
            let (client, way) = broker.client(&config);
            Box::pin(std::future::ready((config, client, way)))
        }
    };
    let here = Process::open(&ground, &accounts, &directory, "node-1", &connect(1024)).await;
    // It takes no frames, and has no room for anything that it might send.
    let there = Process::open(&ground, &accounts, &directory, "node-2", &connect(0)).await;
    here.bus.process_joined(there.contact());
    let inlet = Arc::new(Inlet::default());
    assert!(here.bus.set_frame_inlet(inlet.clone()));
    let transport = here.bus.transport().unwrap();
    let way = transport.process_destination(&there.contact()).unwrap();
    let frame = OutgoingFrame {
        sender: FrameSender::Process,
        head: b"news",
        body: &Bytes::new(),
        tail: b"",
        statement: None,
    };
    for _ in 0..3 {
        way.try_send(&frame).unwrap();
    }
    wait_for("all three refusals", async || inlet.0.lock().len() == 3).await;
    for reason in inlet.0.lock().iter() {
        assert!(reason.contains("takes no frames"), "{reason}");
    }
}
