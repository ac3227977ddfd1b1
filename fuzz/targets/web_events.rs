//! Any stream of a server of others, in any pieces: the same events, never beyond the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_web::events::ServerSentEvents;

const MOST: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, stream)) = bytes.split_first() else {
        return;
    };
    let read = |step: usize| {
        let (mut events, mut found) = (ServerSentEvents::new(MOST), Vec::new());
        for piece in stream.chunks(step) {
            events.push(piece, |data| found.push(data))?;
        }
        Ok::<_, sealbus_web::events::EventError>(found)
    };
    if let (Ok(whole), Ok(pieces)) = (read(stream.len().max(1)), read(usize::from(step).max(1))) {
        assert_eq!(whole, pieces);
        assert!(whole.iter().all(|data| data.len() <= MOST));
    }
});
