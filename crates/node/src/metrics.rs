//! The node's numbers for Prometheus.

use std::sync::Arc;

use sealbus_control::traffic::ProcessTraffic;
use sealbus_metrics::{
    CERTIFICATE_END, DENY_LIST_VERSION, NODE_DIRECTORY_AGENTS, NODE_PRESENT, NODE_PROCESSES,
    NODE_SILENT_PROCESSES, Sample,
};
use tokio::net::TcpListener;

use super::shared::Shared;

/// Serves the node's numbers for ever.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let sample = move || {
        let shared = shared.clone();
        Box::pin(async move { Some(shared.sample().await) }) as _
    };
    sealbus_metrics::serve(listener, sample).await;
}

impl Shared {
    async fn sample(&self) -> Sample {
        let attached = self.processes.attached().len();
        let mut processes = self.observe(None).await;
        let mut sample = Sample::of(&self.platform.read().name, &self.name);
        let silent = attached.saturating_sub(processes.len());
        sample.put(&NODE_PROCESSES, [], attached as u64);
        sample.put(&NODE_SILENT_PROCESSES, [], silent as u64);
        let known = self.replica.lock().agents();
        sample.put(&NODE_DIRECTORY_AGENTS, [], known as u64);
        sample.put_agents_and_channels(&processes);
        let own = self.presence.borrow().as_ref().map(|it| it.process.clone());
        sample.put(&NODE_PRESENT, [], u64::from(own.is_some()));
        processes.extend(own.map(|process| ProcessTraffic {
            group: self.name.clone(),
            ..process.observe(None)
        }));
        sample.put_processes(&processes);
        let list = self.trust.latest_deny_list();
        let version = list.map_or(0, |list| list.version());
        sample.put(&DENY_LIST_VERSION, [], version);
        if let Ok(certificate) = self.credential.load().certificate() {
            let end = certificate.not_after().as_unix_seconds();
            sample.put(&CERTIFICATE_END, ["node"], end);
        }
        sample
    }
}
