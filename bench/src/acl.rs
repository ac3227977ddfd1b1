//! Messages in every encoding.

mod jade;
mod peers;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use sealbus_fipa::{
    AclMessage, AclMessageRef, Aid, Limits, Performative, bitefficient, json, string, xml,
};
use serde::Serialize;

use crate::turns::{Measured, Subject, measure};
use peers::{ProstMessage, SerdeMessage};

/// A line of the table.
#[derive(Debug, Serialize)]
struct Row {
    message: &'static str,
    subject: String,
    work: &'static str,
    nanoseconds: f64,
    allocations: Option<u64>,
    bytes: Option<usize>,
}

fn agent(name: &str) -> Aid {
    // These names are valid.
    let aid = Aid::new(name).unwrap_or_else(|_| unreachable!("{name} is an agent's name"));
    aid.with_address("http://127.0.0.1:7778/acc")
}

/// The messages: two from the papers, a search in the DF with its answer, and a multicast.
fn messages() -> Vec<(&'static str, AclMessage)> {
    let plain = |content: String| {
        AclMessage::new(Performative::Inform)
            .with_sender(agent("sender@plat1"))
            .with_receiver(agent("receiver@plat2"))
            .with_language("fipa-sl")
            .with_ontology("benchmark")
            .with_conversation_id("conv-0001")
            .with_reply_with("rw-77")
            .with_content(content)
    };
    let search = AclMessage::new(Performative::Request)
        .with_sender(agent("buyer-1@factory"))
        .with_receiver(agent("df@factory"))
        .with_language("fipa-sl0")
        .with_ontology("fipa-agent-management")
        .with_protocol("fipa-request")
        .with_conversation_id("search-1795241639029")
        .with_reply_with("r-4711")
        .with_content(
            "((action (agent-identifier :name df@factory) (search (df-agent-description \
             :services (set (service-description :type sell :ontologies (set market)))) \
             (search-constraints :max-results 10))))",
        );
    let found = (1..=10).fold(String::new(), |found, number| {
        found
            + &format!(
                "(df-agent-description :name (agent-identifier :name seller-{number}@factory \
                 :addresses (sequence http://127.0.0.1:7778/acc)) :services (set \
                 (service-description :name \"stall {number}\" :type sell)) :protocols (set fipa-contract-net)) "
            )
    });
    let answer = search
        .create_reply(Performative::Inform)
        .with_sender(agent("df@factory"))
        .with_content(format!("((result (action df search) (sequence {found})))"));
    let multicast = (0..10).fold(plain("x".repeat(64)), |message, number| {
        message.with_receiver(agent(&format!("receiver-{number}@plat2")))
    });
    vec![
        ("7 B", plain("ping-77".to_owned())),
        ("2150 B", plain("0123456789".repeat(215))),
        ("DF search", search),
        ("DF answer", answer),
        ("10 receivers", multicast),
    ]
}

/// Reads the fields that a receiver reads.
fn look(view: &AclMessageRef<'_>) -> usize {
    let name = view.sender().map_or(0, |aid| aid.name().len());
    let conversation = view
        .conversation_id()
        .and_then(|id| id.text())
        .map_or(0, |id| id.len());
    let content = view.content_text().map_or(0, |text| text.len());
    name + conversation + content
}

/// One message in every encoding.
fn subjects<'a>(message: &'a AclMessage, encoded: &'a Encoded) -> Vec<Subject<'a>> {
    let limits = &Limits::DEFAULT;
    let mut out = [const { Vec::new() }; 4].map(|_: Vec<u8>| Vec::with_capacity(64 << 10));
    let [mut bits, mut text, mut markup, mut braces] = std::mem::take(&mut out);
    let mut copy = vec![0u8; encoded.bitefficient.len()];
    let mut serde_out = Vec::with_capacity(64 << 10);
    let mut prost_out = Vec::with_capacity(64 << 10);
    vec![
        Subject::new("memcpy|copy", move || {
            copy.copy_from_slice(black_box(&encoded.bitefficient));
            black_box(&copy);
        }),
        Subject::new("bit-efficient|encode", move || {
            bits.clear();
            let _ = black_box(bitefficient::encode(black_box(message), &mut bits));
        }),
        Subject::new("bit-efficient|decode borrowed", move || {
            let view = bitefficient::decode_ref(black_box(&encoded.bitefficient), limits);
            let _ = black_box(view);
        }),
        Subject::new("bit-efficient|decode borrowed and look", move || {
            let view = bitefficient::decode_ref(black_box(&encoded.bitefficient), limits);
            let _ = black_box(view.map(|view| look(&view)));
        }),
        Subject::new("bit-efficient|decode owned", move || {
            let _ = black_box(bitefficient::decode(
                black_box(&encoded.bitefficient),
                limits,
            ));
        }),
        Subject::new("String|encode", move || {
            text.clear();
            let _ = black_box(string::encode(black_box(message), &mut text));
        }),
        Subject::new("String|decode borrowed", move || {
            let _ = black_box(string::decode_ref(black_box(&encoded.string), limits));
        }),
        Subject::new("String|decode owned", move || {
            let _ = black_box(string::decode(black_box(&encoded.string), limits));
        }),
        Subject::new("XML|encode", move || {
            markup.clear();
            let _ = black_box(xml::encode(black_box(message), &mut markup));
        }),
        Subject::new("XML|decode owned", move || {
            let _ = black_box(xml::decode(black_box(&encoded.xml), limits));
        }),
        Subject::new("quick-xml's own pass|decode", move || {
            black_box(peers::pass_over_xml(black_box(&encoded.xml)));
        }),
        Subject::new("JSON|encode", move || {
            braces.clear();
            let _ = black_box(json::encode(black_box(message), &mut braces));
        }),
        Subject::new("JSON|decode owned", move || {
            let _ = black_box(json::decode(black_box(&encoded.json), limits));
        }),
        Subject::new("serde_json|encode", move || {
            serde_out.clear();
            let _ = black_box(serde_json::to_writer(
                &mut serde_out,
                black_box(&encoded.serde),
            ));
        }),
        Subject::new("serde_json|decode owned", move || {
            let _ = black_box(serde_json::from_slice::<SerdeMessage>(black_box(
                &encoded.serde_json,
            )));
        }),
        Subject::new("prost|encode", move || {
            prost_out.clear();
            let _ = black_box(prost::Message::encode(
                black_box(&encoded.prost),
                &mut prost_out,
            ));
        }),
        Subject::new("prost|decode owned", move || {
            let bytes = black_box(encoded.prost_bytes.as_slice());
            let _ = black_box(<ProstMessage as prost::Message>::decode(bytes));
        }),
    ]
}

/// A message as bytes, and in the form of each peer.
struct Encoded {
    bitefficient: Vec<u8>,
    string: Vec<u8>,
    xml: Vec<u8>,
    json: Vec<u8>,
    serde: SerdeMessage,
    serde_json: Vec<u8>,
    prost: ProstMessage,
    prost_bytes: Vec<u8>,
}

impl Encoded {
    fn new(message: &AclMessage) -> Result<Self, Box<dyn std::error::Error>> {
        let mut encoded = Self {
            bitefficient: Vec::new(),
            string: Vec::new(),
            xml: Vec::new(),
            json: Vec::new(),
            serde: SerdeMessage::from(message),
            serde_json: Vec::new(),
            prost: ProstMessage::from(message),
            prost_bytes: Vec::new(),
        };
        bitefficient::encode(message, &mut encoded.bitefficient)?;
        string::encode(message, &mut encoded.string)?;
        xml::encode(message, &mut encoded.xml)?;
        json::encode(message, &mut encoded.json)?;
        serde_json::to_writer(&mut encoded.serde_json, &encoded.serde)?;
        prost::Message::encode(&encoded.prost, &mut encoded.prost_bytes)?;
        Ok(encoded)
    }

    fn size(&self, subject: &str) -> Option<usize> {
        match subject {
            "memcpy" | "bit-efficient" => Some(self.bitefficient.len()),
            "String" => Some(self.string.len()),
            "XML" | "quick-xml's own pass" => Some(self.xml.len()),
            "JSON" => Some(self.json.len()),
            "serde_json" => Some(self.serde_json.len()),
            "prost" => Some(self.prost_bytes.len()),
            _ => None,
        }
    }
}

/// Does each work once with `count` around it. Returns the counts by message and subject.
pub(crate) fn count_allocations(
    count: impl Fn(&mut dyn FnMut()) -> u64,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut counts = BTreeMap::new();
    for (name, message) in &messages() {
        let encoded = Encoded::new(message)?;
        for mut subject in subjects(message, &encoded) {
            // The second run is counted, so that values that are made only once do not count.
            (subject.work)();
            counts.insert(format!("{name}|{}", subject.name), count(&mut subject.work));
        }
    }
    Ok(serde_json::to_string(&counts)?)
}

/// The counts from the program beside this one.
fn counted() -> Option<BTreeMap<String, u64>> {
    let program = std::env::current_exe()
        .ok()?
        .with_file_name("sealbus-bench-allocations");
    let output = Command::new(program).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

/// Measures, prints the tables, and on request writes the rows as JSON.
pub(crate) fn run(
    json: Option<&Path>,
    with_jade: bool,
    only: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let messages = messages();
    let counts = counted().unwrap_or_default();
    let mut rows = Vec::new();
    for (name, message) in &messages {
        let encoded = Encoded::new(message)?;
        let mut subjects = subjects(message, &encoded);
        subjects.retain(|subject| subject.name.contains(only));
        for Measured {
            name: subject,
            nanoseconds,
        } in measure(subjects)
        {
            let allocations = counts.get(&format!("{name}|{subject}")).copied();
            let (subject, work) = subject.split_once('|').unwrap_or((&subject, ""));
            let work = match work {
                "encode" => "encode",
                "copy" => "copy",
                "decode" => "decode",
                "decode borrowed" => "decode borrowed",
                "decode borrowed and look" => "decode borrowed and look",
                _ => "decode owned",
            };
            rows.push(Row {
                message: name,
                bytes: encoded.size(subject),
                subject: subject.to_owned(),
                work,
                nanoseconds,
                allocations,
            });
        }
    }
    let mut without_jade = None;
    if with_jade {
        match jade::run(&messages) {
            Ok(measured) => rows.extend(measured),
            Err(error) => without_jade = Some(error),
        }
    }
    for (name, _) in &messages {
        print_table(name, &rows);
    }
    if let Some(reason) = without_jade {
        println!("JADE String: not measured: {reason}");
    }
    print_goals(&rows);
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

fn print_table(message: &str, rows: &[Row]) {
    println!("\n{message}\n");
    println!("| subject | work | ns | allocations | bytes |");
    println!("|---|---|---:|---:|---:|");
    for row in rows.iter().filter(|row| row.message == message) {
        let optional = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        println!(
            "| {} | {} | {:.0} | {} | {} |",
            row.subject,
            row.work,
            row.nanoseconds,
            optional(row.allocations.map(|count| count.to_string())),
            optional(row.bytes.map(|bytes| bytes.to_string())),
        );
    }
}

/// Prints the target ratios for each message, and whether they hold.
fn print_goals(rows: &[Row]) {
    const GOALS: [(&str, &str, &str, &str, f64); 8] = [
        ("bit-efficient", "encode", "prost", "encode", 1.0),
        (
            "bit-efficient",
            "decode borrowed",
            "prost",
            "decode owned",
            1.0,
        ),
        ("bit-efficient", "encode", "JADE String", "encode", 10.0),
        (
            "bit-efficient",
            "decode borrowed",
            "JADE String",
            "decode owned",
            10.0,
        ),
        ("String", "encode", "JADE String", "encode", 5.0),
        ("String", "decode owned", "JADE String", "decode owned", 5.0),
        (
            "String",
            "decode borrowed",
            "JADE String",
            "decode owned",
            5.0,
        ),
        ("XML", "decode owned", "quick-xml's own pass", "decode", 0.5),
    ];
    println!("\nTimes as fast as the other, at least so many\n");
    println!("| message | ours | other | goal | is | |");
    println!("|---|---|---|---:|---:|---|");
    let mut messages: Vec<_> = rows.iter().map(|row| row.message).collect();
    messages.dedup();
    messages.truncate(5);
    for message in messages {
        let time = |subject: &str, work: &str| {
            let mut rows = rows.iter();
            let row = rows
                .find(|row| row.message == message && row.subject == subject && row.work == work);
            row.map(|row| row.nanoseconds)
        };
        for (ours, our_work, other, other_work, goal) in GOALS {
            let (Some(our_time), Some(other_time)) =
                (time(ours, our_work), time(other, other_work))
            else {
                continue;
            };
            let ratio = other_time / our_time;
            let holds = if ratio >= goal { "holds" } else { "MISSED" };
            println!(
                "| {message} | {ours}, {our_work} | {other}, {other_work} | {goal} | {ratio:.2} | {holds} |"
            );
        }
    }
}
