//! Measures the instrument itself. A driver with a link that holds, drops and repeats messages runs like any system,
//! and reports how much of each it did. The instrument's report must agree with it. Nothing depends on the speed of the
//! machine.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const SENDERS: u64 = 4;
const MESSAGES: u64 = 100;

const SCENARIO: &str = r#"
paper = "None"
title = "A link of known faults"
about = "."
shows = "latency_and_throughput"
kind = "stream"
shape = "one_to_one"
size = 48
messages = 100
interval_us = 1000
warm_up = 10
rounds = 3
patience_s = 120
quiet_s = 60
quick = 2
full = 2
columns = [{ title = "4 pairs", senders = 4, receivers = 4, quick = true }]
"#;

const SYSTEM: &str = r#"
title = "Known"
side = "peer"
language = "Rust"
settings = "."
driver = ["{self}", "driver", "known"]
shapes = ["one_to_one"]
kinds = ["stream"]

[[setting]]
name = "sound"
class = "none"
with = { level = "none", delays_us = [0], drop_every = 0, repeat_every = 0 }

[[setting]]
name = "slow"
class = "none"
with = { level = "none", delays_us = [50000], drop_every = 0, repeat_every = 0 }

[[setting]]
name = "lossy"
class = "none"
with = { level = "none", delays_us = [0], drop_every = 10, repeat_every = 0 }

[[setting]]
name = "lossy once"
class = "none"
with = { level = "none", delays_us = [0], drop_every = 10, repeat_every = 0, only_in = 3 }

[[setting]]
name = "uneven"
class = "none"
with = { level = "none", delays_us = [0, 0, 90000, 10000, 50000], drop_every = 0, repeat_every = 0 }

[[setting]]
name = "stammering"
class = "none"
with = { level = "none", delays_us = [0], drop_every = 0, repeat_every = 7 }
"#;

const BROKEN: &str = r#"
title = "Broken"
side = "peer"
language = "Rust"
settings = "."
driver = ["false"]
shapes = ["one_to_one"]
kinds = ["stream"]

[[setting]]
name = "ends at once"
class = "none"
"#;

const ABSENT: &str = r#"
title = "Absent"
side = "peer"
language = "Rust"
settings = "."
driver = ["no-such-program"]
needs = ["{peers}/no-such-program"]
shapes = ["one_to_one"]
kinds = ["stream"]

[[setting]]
name = "as it comes"
class = "none"
"#;

fn papers(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealbus-bench"))
        .args([
            "papers", "--bench", "bench", "--report", "report", "--peers", "peers",
        ])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn results(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("report/results.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn run(folder: &Path) -> Value {
    let output = papers(folder, &[]);
    assert!(output.status.success(), "{output:?}");
    results(folder)
}

/// Writes scenarios and systems into the folder.
fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join("bench").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn of<'a>(results: &'a Value, setting: &str) -> Vec<&'a Value> {
    let all = results["measurements"].as_array().unwrap();
    all.iter().filter(|it| it["setting"] == setting).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// The driver's means: the time on the way and the time held.
fn told_mean_ms(figures: &Value) -> f64 {
    let told = &figures["remarks"];
    let sum = number(&told["transit_ns"]) + number(&told["held_ns"]);
    sum / number(&told["handed_over"]) / 1e6
}

/// The mean time for which the driver says it held a message.
fn told_held_ms(remarks: &Value) -> f64 {
    number(&remarks["held_ns"]) / number(&remarks["handed_over"]) / 1e6
}

/// Checks that each round received what it sent, and that the median round is reported.
fn assert_rounds(figures: &Value) {
    let rounds = figures["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 3, "{figures}");
    for it in rounds {
        assert_eq!((&it["sent"], &it["received"]), (&400.into(), &400.into()));
    }
    let mut all: Vec<&Value> = rounds.iter().collect();
    all.sort_by(|a, b| number(&a["value"]).total_cmp(&number(&b["value"])));
    assert_eq!(figures["p50_ms"], all[1]["value"], "{figures}");
    assert_eq!(figures["remarks"], all[1]["remarks"], "{figures}");
}

fn assert_mean_as_told(figures: &Value) {
    let (measured, told) = (number(&figures["mean_ms"]), told_mean_ms(figures));
    assert!(
        (measured - told).abs() <= told * 0.02,
        "{measured} measured, {told} told"
    );
}

#[test]
fn what_a_driver_did_is_what_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("scenarios/known.toml", SCENARIO),
        ("systems/known.toml", SYSTEM),
        ("systems/broken.toml", BROKEN),
        ("systems/absent.toml", ABSENT),
    ];
    write(folder.path(), &files);
    let results = run(folder.path());

    for setting in ["sound", "slow", "uneven"] {
        let repetitions = of(&results, setting);
        assert_eq!(repetitions.len(), 2);
        for it in repetitions {
            assert_eq!(it["outcome"], "measured", "{it}");
            assert_eq!((&it["sent"], &it["received"]), (&400.into(), &400.into()));
            assert_mean_as_told(it);
            assert_rounds(it);
        }
    }
    for it in of(&results, "uneven") {
        // The first round that counts is the one after the warm-up.
        let rounds = it["rounds"].as_array().unwrap();
        for (round, held_ms) in rounds.iter().zip([89.0, 9.0, 49.0]) {
            let told_ms = told_held_ms(&round["remarks"]);
            assert!(told_ms >= held_ms, "{round}");
            assert!(number(&round["value"]) >= held_ms, "{round}");
        }
    }
    for it in of(&results, "lossy once") {
        // The first round was sound. One faulty round of three fails the cell, and is the one reported.
        assert_eq!(it["outcome"], "failed", "{it}");
        let rounds = it["figures"]["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2, "{it}");
        assert_eq!(rounds[0]["received"], 400, "{it}");
        assert_eq!(rounds[1]["received"], it["figures"]["received"], "{it}");
        assert_eq!(it["figures"]["received"], 360, "{it}");
    }
    for it in of(&results, "slow") {
        let held_ms = told_held_ms(&it["remarks"]);
        assert!(held_ms >= 49.0, "{it}");
        assert!(number(&it["mean_ms"]) >= held_ms * 0.99, "{it}");
        // A bucket is known to better than 1 %.
        assert!(number(&it["p50_ms"]) >= 49.0, "{it}");
    }
    for it in of(&results, "lossy") {
        assert_eq!(it["outcome"], "failed", "{it}");
        let figures = &it["figures"];
        let lost = number(&figures["sent"]) - number(&figures["received"]);
        assert_eq!(lost, number(&figures["remarks"]["dropped"]));
        assert_eq!(lost, (SENDERS * MESSAGES / 10) as f64);
        assert_eq!(figures["duplicated"], 0);
        assert_mean_as_told(figures);
    }
    for it in of(&results, "stammering") {
        assert_eq!(it["outcome"], "failed", "{it}");
        let figures = &it["figures"];
        assert_eq!(figures["received"], 400);
        assert_eq!(figures["duplicated"], figures["remarks"]["repeated"]);
        assert_eq!(figures["duplicated"], SENDERS * MESSAGES.div_ceil(7));
    }
    for it in of(&results, "ends at once") {
        assert_eq!(it["outcome"], "failed", "{it}");
    }
    for it in of(&results, "as it comes") {
        assert_eq!(it["outcome"], "cannot", "{it}");
        assert!(it["why"].as_str().unwrap().contains("make peers"), "{it}");
    }
    let page = fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("A link of known faults") && page.contains("Known, slow"));

    // Measured cells are not measured again; failed cells are.
    let again = run(folder.path());
    for setting in ["sound", "slow"] {
        assert_eq!(of(&results, setting), of(&again, setting));
    }
    assert_ne!(of(&results, "lossy"), of(&again, "lossy"));
}

#[test]
fn figures_that_were_taken_beside_busy_loops_stay_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = [
        ("scenarios/known.toml", SCENARIO),
        ("systems/absent.toml", ABSENT),
    ];
    write(folder, &files);
    let output = papers(folder, &["--busy", "1"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(results(folder)["busy"], 1);
    let page = fs::read_to_string(folder.join("report/index.html")).unwrap();
    assert!(page.contains("busy loops"), "{page}");

    let refused: [(&[&str], &str); 3] = [
        (&[], "--fresh"),
        (&["--busy", "2"], "taken beside 1 busy loops"),
        (&["--report-only", "--markdown", "page.md"], "--markdown"),
    ];
    for (arguments, reason) in refused {
        let output = papers(folder, arguments);
        assert!(!output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(reason), "{text}");
    }
    let output = papers(folder, &["--fresh"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(results(folder)["busy"], 0);
}
