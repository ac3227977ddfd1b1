//! `[telemetry]`: numbers and traces for existing monitoring tools.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::AgentEntry;
use super::read::Reader;

const METRICS: &str = "an address such as \"127.0.0.1:9464\"";
const OTLP: &str =
    "write the address of a collector that takes OTLP over HTTP: \"http://127.0.0.1:4318\"";

/// `[telemetry]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TelemetryEntry {
    /// The address of the Master's metrics for Prometheus. Its local nodes listen on the ports that follow. With port 0 the
    /// system chooses all ports. Without an address nobody serves metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

impl TelemetryEntry {
    /// The address for the metrics of a local node, `node-1` being the first. None if there are no metrics, or no such port.
    pub fn metrics_of_node(&self, number: u32) -> Option<SocketAddr> {
        let of_master = self.metrics?;
        let port = match of_master.port() {
            0 => 0,
            port => u16::try_from(number).ok()?.checked_add(port)?,
        };
        Some(SocketAddr::new(of_master.ip(), port))
    }
}

impl<'t> Reader<'t> {
    /// Reads the section. The agents get the variables of OpenTelemetry that their own entries do not set.
    pub(super) fn telemetry(
        &mut self,
        root: &DeTable<'t>,
        platform: &str,
        nodes: u32,
        agents: &mut [AgentEntry],
    ) -> TelemetryEntry {
        let Some(value) = root.get("telemetry") else {
            return TelemetryEntry::default();
        };
        let Some(table) = self.table(value, "telemetry") else {
            return TelemetryEntry::default();
        };
        self.unknown_keys(table, &["metrics", "otlp"], "in [telemetry]");
        let entry = TelemetryEntry {
            metrics: self.parsed(table, "metrics", METRICS),
        };
        if let Some(metrics) = entry.metrics
            && entry.metrics_of_node(nodes).is_none()
        {
            let message = format!("{metrics} leaves no ports for the metrics of {nodes} nodes");
            self.problem(
                value.span(),
                message,
                Some("choose a lower port".to_owned()),
            );
        }
        if let Some((otlp, at)) = self.text_of(table, "otlp") {
            let is_web = otlp.starts_with("http://") || otlp.starts_with("https://");
            if !is_web || otlp.contains(char::is_whitespace) {
                let message = format!("\"{otlp}\" is no address of a collector");
                self.problem(at, message, Some(OTLP.to_owned()));
            }
            for agent in agents {
                trace_to(&otlp, platform, agent);
            }
        }
        entry
    }
}

/// The variables are those of the OpenTelemetry specification.
fn trace_to(collector: &str, platform: &str, agent: &mut AgentEntry) {
    let service = agent.name.clone();
    let namespace = format!("service.namespace={platform}");
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.to_owned()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
        ("OTEL_SERVICE_NAME", service),
        ("OTEL_RESOURCE_ATTRIBUTES", namespace),
    ] {
        agent.environment.entry(name.to_owned()).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Manifest;

    fn manifest(section: &str) -> Result<Manifest, String> {
        let text = format!(
            "[platform]\nname = \"factory\"\nnodes = 2\n[telemetry]\n{section}\n\
             [[agent]]\nname = \"seller\"\ncommand = \"sh\"\nenvironment = {{ OTEL_SERVICE_NAME = \"shop\" }}\n"
        );
        let parsed = Manifest::parse("platform.toml", &text, Path::new("/"));
        parsed.map_err(|error| error.problems[0].message.clone())
    }

    #[test]
    fn local_nodes_serve_metrics_on_the_ports_that_follow() {
        let telemetry = manifest("metrics = \"127.0.0.1:9464\"").unwrap().telemetry;
        let address = |text: &str| Some(text.parse().unwrap());
        assert_eq!(telemetry.metrics, address("127.0.0.1:9464"));
        assert_eq!(telemetry.metrics_of_node(2), address("127.0.0.1:9466"));
        let any = manifest("metrics = \"[::1]:0\"").unwrap().telemetry;
        assert_eq!(any.metrics_of_node(2), address("[::1]:0"));
        assert_eq!(manifest("").unwrap().telemetry.metrics_of_node(1), None);
    }

    #[test]
    fn agents_learn_of_the_collector_by_the_standard_variables() {
        let manifest = manifest("otlp = \"http://127.0.0.1:4318\"").unwrap();
        let variable = |name: &str| manifest.agents[0].environment[name].as_str();
        assert_eq!(
            variable("OTEL_EXPORTER_OTLP_ENDPOINT"),
            "http://127.0.0.1:4318"
        );
        assert_eq!(
            variable("OTEL_RESOURCE_ATTRIBUTES"),
            "service.namespace=factory"
        );
        assert_eq!(variable("OTEL_SERVICE_NAME"), "shop");
    }

    #[test]
    fn mistakes_are_told() {
        for (section, said) in [
            ("metrics = \"9464\"", "9464"),
            ("metrics = \"127.0.0.1:65534\"", "leaves no ports"),
            ("otlp = \"127.0.0.1:4318\"", "no address of a collector"),
            ("listen = 1", "listen"),
        ] {
            let error = manifest(section).unwrap_err();
            assert!(error.contains(said), "{section}: {error}");
        }
    }
}
