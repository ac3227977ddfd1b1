//! The page of the documentation.

use std::fmt::Write;

use crate::list::{ALL, Kind, ServedBy};
use crate::traffic::{MOST_AGENTS, MOST_CHANNELS, MOST_PROCESSES};

/// The reference page in Markdown. `cargo run -p sealbus-metrics --example page` prints it.
pub fn page() -> String {
    let mut page = format!(
        "# Metrics\n\n\
         <!-- Made by: cargo run -p sealbus-metrics --example page > docs/reference/metrics.md -->\n\n\
         A Master and each node serve these metrics to Prometheus once the manifest says where\n\
         ([how to](../how-to/prometheus.md)). Counters begin at 0 when the process that they count for is started.\n\n\
         `process` is the name of a process without the number of its start, such as `seller-1`; `agent` is the proved full \
         name of an agent. One answer names at most {MOST_PROCESSES} processes, {MOST_AGENTS} agents and {MOST_CHANNELS} \
         channels, the first by name, and as many channels of each process; `sealbus_left_out` counts the others. A process's \
         numbers are its own, and nobody checks them.\n"
    );
    for (place, title) in [
        (
            ServedBy::Both,
            "Served by nodes, and by the Master for the platform's own agents",
        ),
        (ServedBy::Node, "Served by nodes"),
        (ServedBy::Master, "Served by the Master"),
    ] {
        // Writing to a `String` does not fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n"
        );
        for metric in ALL.iter().filter(|metric| metric.place == place) {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let labels: Vec<String> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
            let _ = writeln!(
                page,
                "| `{}` | {kind} | {} | {} |",
                metric.name(),
                labels.join(", "),
                metric.help.trim()
            );
        }
    }
    page
}
