//! Any request body, and any bytes as an answer: an error, or a transmission that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_gateways::http::multipart;
use sealbus_gateways::http::response::AnswerReader;
use sealbus_gateways::http::transmission::{self, Encoding, Writer};

fuzz_target!(|bytes: &[u8]| {
    let _ = multipart::boundary(&String::from_utf8_lossy(bytes));
    let mut answers = AnswerReader::default();
    answers.push(bytes);
    while let Ok(Some(_)) = answers.next_answer() {}

    let limits = Limits::DEFAULT;
    let Ok(read) = transmission::read("multipart/mixed; boundary=b", bytes, &limits) else {
        return;
    };
    let encoding = Encoding {
        envelope: read.envelope_representation,
        message: read.representation,
    };
    let mut writer = Writer::new("b".to_owned());
    let Ok(request) = writer.request(read.envelope.clone(), &read.message, encoding) else {
        return;
    };
    let mut ends = request.windows(4);
    let end = ends.position(|it| it == b"\r\n\r\n").expect("a head ends") + 4;
    let (head, body) = request.split_at(end);
    let head = std::str::from_utf8(head).expect("a head is text");
    let line = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).expect(name).1
    };
    assert_eq!(line("Content-Length"), body.len().to_string());
    let again = transmission::read(line("Content-Type"), body, &limits);
    let again = again.expect("what was written is read").message;
    assert_eq!(format!("{again:?}"), format!("{:?}", read.message));
});
