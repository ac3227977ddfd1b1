//! Doors to other agent platforms.
//!
//! [`http`] is the FIPA agent message transport over HTTP (FIPA00084), as JADE and other platforms speak it.

pub mod http;
