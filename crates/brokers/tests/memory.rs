//! The transport over a broker in memory: the suite that all transports pass, once while the broker keeps every
//! message, and once while it loses, doubles, delays and cuts.

#![allow(clippy::unwrap_used)]

mod support;

use sealbus_brokers::BrokerPromise;
use sealbus_bus::BoxFuture;
use sealbus_conformance::{Setting, TestedPromise, Verdict, World};
use sealbus_seal::SecurityLevel;
use support::memory::MemoryBroker;
use support::processes::Processes;

struct Memory {
    level: SecurityLevel,
    broker: BrokerPromise,
    /// The seed of a hostile broker.
    seed: Option<u64>,
    promise: TestedPromise,
}

impl Memory {
    fn broker(&self) -> MemoryBroker {
        let broker = self
            .seed
            .map_or_else(MemoryBroker::quiet, MemoryBroker::hostile);
        match self.promise {
            // In its new process, an agent does not know which messages it took before, nor which came first.
            TestedPromise::Moving => broker.losing_nothing(),
            _ => broker,
        }
    }
}

impl Setting for Memory {
    fn name(&self) -> String {
        let promise = match self.broker {
            BrokerPromise::Durable => "durable",
            BrokerPromise::Transient => "transient",
        };
        match self.seed {
            None => format!("memory, {}, {promise}", self.level),
            Some(seed) => format!(
                "hostile memory (SEALBUS_SEED={seed}), {}, {promise}",
                self.level
            ),
        }
    }

    fn open(&self, processes: usize) -> BoxFuture<'_, Box<dyn World>> {
        Box::pin(async move {
            let broker = self.broker();
            let ground = broker.ground(self.level, self.broker);
            let processes = Processes::open(ground, processes, broker.connecting()).await;
            Box::new(processes) as Box<dyn World>
        })
    }

    fn lacks(&self, promise: TestedPromise) -> Option<&'static str> {
        match promise {
            TestedPromise::PushBack
            | TestedPromise::PushBackAlone
            | TestedPromise::FramesPushBack => Some("what is not taken waits at the broker"),
            TestedPromise::ForgedSender | TestedPromise::RevokedSender
                if !self.level.authenticates() =>
            {
                Some("senders are not proved at this level")
            }
            _ => None,
        }
    }
}

async fn keeps(setting: Memory) {
    let promise = setting.promise;
    let expected = match setting.lacks(promise) {
        None => Verdict::Kept,
        Some(why) => Verdict::NotGiven(why.to_owned()),
    };
    match sealbus_conformance::run(&setting, promise).await {
        Ok(verdict) => assert_eq!(verdict, expected),
        Err(failure) => panic!("{failure}"),
    }
}

/// One module for each setting: the tests of all settings run side by side, as some wait for half a minute.
macro_rules! suites {
    ($promises:tt $($setting:ident: $seeds:expr, $level:ident, $broker:ident;)*) => {
        $(suite! { $setting: $seeds, $level, $broker; $promises })*
    };
}

macro_rules! suite {
    ($setting:ident: $seeds:expr, $level:ident, $broker:ident; { $($name:ident $promise:ident),* $(,)? }) => {
        mod $setting {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    for seed in $seeds {
                        keeps(Memory {
                            level: SecurityLevel::$level,
                            broker: BrokerPromise::$broker,
                            seed,
                            promise: TestedPromise::$promise,
                        })
                        .await;
                    }
                }
            )*

            #[test]
            fn every_promise_has_its_test() {
                assert_eq!([$(TestedPromise::$promise),*], TestedPromise::ALL);
            }
        }
    };
}

fn quiet() -> [Option<u64>; 1] {
    [None]
}

fn hostile() -> impl Iterator<Item = Option<u64>> {
    sealbus_conformance::schedule::seeds(2).map(Some)
}

suites! {
    {
        order Order, receivers Receivers, resume Resume, push_back PushBack,
        push_back_alone PushBackAlone, crash Crash, unread Unread, moving Moving, comes_back ComesBack,
        forged_sender ForgedSender, revoked_sender RevokedSender, size_limit SizeLimit,
        frames Frames, frames_push_back FramesPushBack, frames_resume FramesResume,
        events Events, events_resume EventsResume, directed Directed, request Request,
        valid_from ValidFrom, expiry Expiry, filter Filter,
        slow_subscription SlowSubscription, events_push_back EventsPushBack,
        group Group, group_crash GroupCrash, rights Rights, refused_by_name RefusedByName
    }
    quiet_auth: quiet(), Auth, Durable;
    quiet_none: quiet(), None, Durable;
    quiet_signed: quiet(), Signed, Durable;
    quiet_transient: quiet(), Auth, Transient;
    hostile_auth: hostile(), Auth, Durable;
    hostile_signed: hostile(), Signed, Transient;
}
