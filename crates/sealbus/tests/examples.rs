//! The examples run, and print the expected lines.

use std::process::{Command, Stdio};

/// The output of an example. It is built with the tests.
fn output(example: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    // The path is target/debug/deps/examples-…, and the examples lie beside `deps`.
    let tests = std::env::current_exe()?;
    let profile = tests.ancestors().nth(2).ok_or("not in a target folder")?;
    let program = profile.join("examples").join(example);
    if !program.exists() {
        let advice = "build it: `cargo build -p sealbus --examples`";
        return Err(format!("{} is missing; {advice}", program.display()).into());
    }
    let ended = Command::new(&program)
        .env_remove("SEALBUS_STATE")
        .env_remove("SEALBUS_ATTACH")
        .env_remove("SEALBUS_TICKET")
        .stdin(Stdio::null())
        .output()?;
    let shown = String::from_utf8(ended.stdout)?;
    if !ended.status.success() {
        let told = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("{} {}\n{shown}{told}", program.display(), ended.status).into());
    }
    Ok(shown.lines().map(str::to_owned).collect())
}

type Tested = Result<(), Box<dyn std::error::Error>>;

#[test]
fn channels() -> Tested {
    let mut lines = output("channels")?;
    lines.sort();
    assert_eq!(
        lines,
        [
            "no answer from shop-3@home",
            "shop-1@home on /offers/tea: a pound of tea",
            "shop-1@home proposes 7 EUR",
            "shop-2@home on /offers/tea: a pound of tea",
            "shop-2@home proposes 9 EUR",
        ]
    );
    Ok(())
}

#[test]
fn contract_net() -> Tested {
    assert_eq!(
        output("contract_net")?,
        [
            "16 proposals, 2 refused, 2 silent, 1 not delivered",
            "bidder-20@home sells ten boxes for 100",
        ]
    );
    Ok(())
}

#[test]
fn history() -> Tested {
    let lines = output("history")?;
    let sold = lines.iter().filter(|line| line.starts_with("sold: "));
    assert_eq!(sold.count(), 4);
    let read: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("the "))
        .collect();
    assert_eq!(
        read,
        [
            "auditor reads #1: a pound of tea",
            "auditor reads #2: a pound of tea",
            "auditor reads #3: a pound of tea",
            "accountant reads #1: a pound of tea",
            "accountant reads #2: a pound of tea",
            "accountant reads #3: a pound of tea",
            "accountant reads #4: a pound of tea",
        ]
    );
    Ok(())
}

#[test]
fn tool_agent() -> Tested {
    let lines = output("tool_agent")?;
    assert_eq!(lines[0].split(' ').count(), 20);
    assert_eq!(
        lines[1],
        "To the end: Some(Progress { done: 1.0, text: \"\" })"
    );
    assert_eq!(lines[3], "One sentence of a million words was enough.");
    Ok(())
}

#[test]
fn the_others_come_to_their_end() -> Tested {
    for example in ["hello", "request", "counter", "marketplace"] {
        assert!(!output(example)?.is_empty(), "{example} says nothing");
    }
    Ok(())
}
