//! Any series of messages, each behind its length in two bytes: one table reads everything that the other writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::CodeTable;

fuzz_target!(|bytes: &[u8]| {
    let tables = || CodeTable::new(8).into_iter();
    for (mut received, mut sent, mut read) in tables()
        .zip(tables())
        .zip(tables())
        .map(|((one, two), three)| (one, two, three))
    {
        let mut rest = bytes;
        while let Some((length, more)) = rest.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length)).min(more.len());
            let (message, more) = more.split_at(length);
            rest = more;
            let Ok(message) = received.decode(message, &Limits::DEFAULT) else {
                return;
            };
            let mut again = Vec::new();
            if sent.encode(&message, &mut again).is_ok() {
                let again = read.decode(&again, &Limits::DEFAULT);
                assert_eq!(format!("{again:?}"), format!("Ok({message:?})"));
            }
        }
    }
});
