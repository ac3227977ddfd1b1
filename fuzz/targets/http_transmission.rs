//! Any request body, and any bytes as an answer: an error, or a transmission that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_acl::Limits;
use sealbus_gateways::http::multipart;
use sealbus_gateways::http::response::AnswerReader;
use sealbus_gateways::http::transmission::{self, Encoding};

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
    let Ok(payload) = transmission::encode_message(&read.message, encoding) else {
        return;
    };
    let mut body = Vec::new();
    if let Ok(boundary) =
        transmission::write(read.envelope.clone(), &payload, encoding, "b", &mut body)
    {
        let content_type = multipart::content_type(&boundary);
        let again = transmission::read(&content_type, &body, &limits);
        let again = again.expect("what was written is read").message;
        assert_eq!(format!("{again:?}"), format!("{:?}", read.message));
    }
});
