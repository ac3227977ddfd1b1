//! Prints the reference page of the metrics.

fn main() {
    print!("{}", sealbus_metrics::page());
}
