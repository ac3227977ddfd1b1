//! Names for conversations.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A name that no other conversation has. A counter makes it unique in this process, and 64 random bits make it unique
/// between processes.
///
/// ```
/// assert_ne!(sealbus::new_conversation_id(), sealbus::new_conversation_id());
/// ```
pub fn new_conversation_id() -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let process = PROCESS.get_or_init(|| RandomState::new().build_hasher().finish());
    format!("c{process:016x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
