//! The values of the metrics at one moment.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::list::{ALL, BUILD_INFO, Kind, Metric};

/// The values of the metrics at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    values: BTreeMap<&'static str, Series>,
}

/// The values of one metric, by labels.
type Series = BTreeMap<Vec<String>, u64>;

impl Sample {
    /// A sample of the Master or node with this name.
    pub fn of(platform: &str, name: &str) -> Self {
        let mut sample = Self {
            values: BTreeMap::new(),
        };
        let version = env!("CARGO_PKG_VERSION");
        sample.put(&BUILD_INFO, [version, platform, name], 1);
        sample
    }

    /// Notes a value. Values of the same metric with the same labels are added up.
    pub fn put<const LABELS: usize>(
        &mut self,
        metric: &'static Metric,
        labels: [&str; LABELS],
        value: u64,
    ) {
        debug_assert_eq!(metric.labels.len(), LABELS, "{}", metric.stem);
        let labels = labels.map(str::to_owned).to_vec();
        let series = self.values.entry(metric.stem).or_default();
        let sum = series.entry(labels).or_default();
        *sum = sum.saturating_add(value);
    }

    /// The text for Prometheus, in the format of OpenMetrics 1.0.
    ///
    /// # Errors
    /// None is known: writing to a `String` does not fail.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Sample {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in ALL {
            let Some(series) = self.values.get(metric.stem) else {
                continue;
            };
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let help = metric.help.trim();
            let mut all = encoder.encode_descriptor(metric.stem, help, None, kind)?;
            for (values, value) in series {
                let labels = metric.labels.iter().copied();
                let labels: Vec<(&str, &str)> =
                    labels.zip(values.iter().map(String::as_str)).collect();
                match labels.is_empty() {
                    true => write(&mut all, metric.kind, *value)?,
                    false => write(&mut all.encode_family(&labels)?, metric.kind, *value)?,
                }
            }
        }
        Ok(())
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: Kind, value: u64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        Kind::Gauge => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{AGENT_MESSAGES_SENT, NODE_PROCESSES};

    #[test]
    fn a_sample_is_text_of_openmetrics() {
        let mut sample = Sample::of("factory", "node-1");
        sample.put(&AGENT_MESSAGES_SENT, ["b\"\n\\@factory"], 2);
        sample.put(&AGENT_MESSAGES_SENT, ["b\"\n\\@factory"], 3);
        sample.put(&NODE_PROCESSES, [], 7);
        let text = sample.text().unwrap();
        assert!(
            text.contains("sealbus_agent_messages_sent_total{agent=\"b\\\"\\n\\\\@factory\"} 5\n"),
            "{text}"
        );
        assert!(
            text.contains("\n# TYPE sealbus_node_processes gauge\n"),
            "{text}"
        );
        assert!(text.contains("\nsealbus_node_processes 7\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
