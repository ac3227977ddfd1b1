//! Filters evaluated for a process that cannot evaluate them itself.

use sealbus_channels::frame::Frame;
use sealbus_channels::{ChannelFilter, ChannelHeader, ChannelPath};
use sealbus_control::channel_log::FilterVerdict;
use sealbus_control::{Blob, Fault, FaultCode};
use sealbus_fipa::{AclMessageRef, Limits, bitefficient};

/// Most filters in one question.
pub(super) const MOST_FILTERS: usize = 256;

/// Whether an event passes each filter; without an event, whether each expression is a filter. This takes up to
/// [`HIGHEST_COST`](sealbus_channels::HIGHEST_COST) for each filter, so the caller gives it a thread of its own.
///
/// # Errors
/// [`FaultCode::BadRequest`] if there are too many filters, or the event cannot be read.
pub(super) fn judge(filters: &[String], event: Option<Blob>) -> Result<Vec<FilterVerdict>, Fault> {
    let refuse = |text: String| Fault::new(FaultCode::BadRequest, text);
    if filters.len() > MOST_FILTERS {
        return Err(refuse(format!(
            "at most {MOST_FILTERS} filters are judged at once"
        )));
    }
    let Some(event) = event else {
        return Ok(filters.iter().map(|text| verdict(text, None)).collect());
    };
    let frame = Frame::decode(&event.0).map_err(|error| refuse(error.to_string()))?;
    let Frame::Keep { head, body, .. } = frame else {
        return Err(refuse("it is not an event".to_owned()));
    };
    let channel = ChannelPath::new(head.channel).map_err(|error| refuse(error.to_string()))?;
    let limits = Limits {
        message_length: body.len(),
        ..Limits::default()
    };
    let message =
        bitefficient::decode_ref(body, &limits).map_err(|error| refuse(error.to_string()))?;
    let event = (head.to_header(channel), message);
    let verdicts = filters.iter().map(|text| verdict(text, Some(&event)));
    Ok(verdicts.collect())
}

fn verdict(text: &str, event: Option<&(ChannelHeader, AclMessageRef<'_>)>) -> FilterVerdict {
    let failed = |problem: String| FilterVerdict {
        passes: false,
        problem: Some(problem),
    };
    let filter = match ChannelFilter::new(text) {
        Ok(filter) => filter,
        Err(error) => return failed(error.to_string()),
    };
    let passes = event.map_or(Ok(true), |(header, message)| {
        filter.matches(header, message)
    });
    match passes {
        Ok(passes) => FilterVerdict {
            passes,
            problem: None,
        },
        Err(error) => failed(error.to_string()),
    }
}
