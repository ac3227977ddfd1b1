//! Filters evaluated for a process that cannot evaluate them itself.

use sealbus_channels::frame::Frame;
use sealbus_channels::{ChannelFilter, ChannelHeader, ChannelPath};
use sealbus_control::channel_log::FilterVerdict;
use sealbus_control::{Blob, Fault, FaultCode};
use sealbus_fipa::{AclMessageRef, Limits, bitefficient};

use super::reading::MOST_COST;

/// The most filters in one question.
pub(super) const MOST_FILTERS: usize = 256;

/// Checks whether an event passes each filter or, without an event, whether each expression is a filter. Filters beyond
/// a total cost of [`MOST_COST`] get no verdict, but the first one always gets one. This takes so long that the caller
/// should give it a thread of its own.
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
        return Ok(filters.iter().map(|text| verdict(text, None).0).collect());
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
    let mut left = MOST_COST;
    let mut verdicts = Vec::with_capacity(filters.len());
    for text in filters {
        let (verdict, cost) = verdict(text, Some(&event));
        verdicts.push(verdict);
        left = left.saturating_sub(cost);
        if left == 0 {
            break;
        }
    }
    Ok(verdicts)
}

/// The verdict of one filter, and the cost of evaluating it.
fn verdict(text: &str, event: Option<&(ChannelHeader, AclMessageRef<'_>)>) -> (FilterVerdict, u32) {
    let failed = |problem: String| FilterVerdict {
        passes: false,
        problem: Some(problem),
    };
    let filter = match ChannelFilter::new(text) {
        Ok(filter) => filter,
        Err(error) => return (failed(error.to_string()), 0),
    };
    let (passes, cost) = event.map_or((Ok(true), 0), |(header, message)| {
        filter.evaluate(header, message)
    });
    let verdict = match passes {
        Ok(passes) => FilterVerdict {
            passes,
            problem: None,
        },
        Err(error) => failed(error.to_string()),
    };
    (verdict, cost)
}
