//! `evidence disclose`: the words of sealed messages, for others.

use sealbus_proof::{Disclosure, disclose as with_words, inspect};
use serde_json::json;

use super::{Demands, create, now};
use crate::arguments::EvidenceDisclose;
use crate::commands::issuance_log::{read, wrong};
use crate::error::CliError;
use crate::output::Output;

/// `sealbus evidence disclose FILE WORDS NEW`
pub(crate) fn disclose(disclose: &EvidenceDisclose, output: Output) -> Result<(), CliError> {
    let path = &disclose.words;
    let words = String::from_utf8_lossy(&read(path)?).into_owned();
    let of_line = |(number, line): (usize, &str)| {
        let words = line.parse::<Disclosure>();
        words.map_err(|error| wrong(format!("line {number} of {}: {error}", path.display())))
    };
    let words: Vec<Disclosure> = (1..)
        .zip(words.lines())
        .map(of_line)
        .collect::<Result<_, _>>()?;
    let file = with_words(&read(&disclose.file)?, &words).map_err(wrong)?;
    // Nobody should get a file that proves nothing.
    let demands = Demands {
        now: now(),
        ..Demands::default()
    };
    let report = inspect(&file, &demands).map_err(wrong)?;
    create(&disclose.new, &file)?;
    let messages = report.messages.iter();
    let disclosed = messages.filter(|it| it.disclosed.is_some()).count();
    let new = &disclose.new;
    let told = json!({ "file": new, "messages": report.messages.len(), "disclosed": disclosed });
    output.show(&told, || {
        format!(
            "{} shows the words of {disclosed} sealed messages",
            new.display()
        )
    });
    Ok(())
}
