//! Requests of HTTP on one connection, and their answers in the same order.

use std::sync::LazyLock;

use parking_lot::Mutex;
use sealbus_bus::LogShares;

use super::address::HttpAddress;
use super::response::AnswerReader;
use crate::conversation::{Heard, PeerConversation};
use crate::queue::Verdict;

/// The shares of the log for the answers of other platforms, by their hosts.
static LINES: LazyLock<Mutex<LogShares>> = LazyLock::new(Mutex::default);

pub(crate) struct HttpConversation {
    address: HttpAddress,
    /// The lines of a request that depend on the address.
    head: String,
    answers: AnswerReader,
}

impl HttpConversation {
    pub(crate) fn new(address: HttpAddress) -> Self {
        Self {
            head: format!(
                "POST {address} HTTP/1.1\r\nHost: {}\r\n",
                address.authority()
            ),
            address,
            answers: AnswerReader::default(),
        }
    }
}

impl PeerConversation for HttpConversation {
    fn write(&mut self, request: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(request);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.answers.push(bytes);
    }

    fn hear(&mut self) -> Result<Option<Heard>, String> {
        let answer = self.answers.next_answer();
        let Some(answer) = answer.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let verdict = verdict(answer.status);
        if verdict != Verdict::Taken
            && let Some(left_out) = LINES.lock().admit(self.address.authority())
        {
            let (status, detail) = (answer.status, answer.detail.escape_debug());
            tracing::info!(address = %self.address, status, %detail, left_out, "another platform did not take a message");
        }
        Ok(Some(Heard::Answer {
            verdict,
            keeps_open: answer.keeps_open,
        }))
    }
}

/// The meaning of a status code (RFC 9110, section 15). Redirections are refusals. The text of the answer is left out,
/// because it would show an agent the contents behind any address.
fn verdict(status: u16) -> Verdict {
    let known = hyper::StatusCode::from_u16(status).ok();
    let told = || match known.and_then(|it| it.canonical_reason()) {
        Some(reason) => format!("status {status} ({reason})"),
        None => format!("status {status}"),
    };
    match status {
        200..=299 => Verdict::Taken,
        408 | 425 | 429 | 500..=599 if status != 505 && status != 508 => Verdict::Later(told()),
        _ => Verdict::Refused(told()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_that_refuses_everything_has_a_share_of_the_log() {
        let address: HttpAddress = "http://192.0.2.7/acc".parse().unwrap();
        let mut conversation = HttpConversation::new(address.clone());
        for _ in 0..100 {
            conversation.push(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
            let heard = conversation.hear();
            assert!(matches!(heard, Ok(Some(Heard::Answer { .. }))), "{heard:?}");
        }
        let admit = |host: String| LINES.lock().admit(host);
        assert_eq!(admit(address.authority()), None);
        assert!(admit("192.0.2.8:80".to_owned()).is_some());
    }

    #[test]
    fn statuses_are_judged() {
        assert_eq!(verdict(200), Verdict::Taken);
        assert!(matches!(verdict(503), Verdict::Later(_)));
        assert!(matches!(verdict(508), Verdict::Refused(_)));
        assert!(matches!(verdict(406), Verdict::Refused(_)));
        for redirection in [301, 302, 303, 307, 308] {
            assert!(matches!(verdict(redirection), Verdict::Refused(_)));
        }
        assert_eq!(
            verdict(403),
            Verdict::Refused("status 403 (Forbidden)".to_owned())
        );
    }
}
