//! Ports for the members of clusters.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

/// A free port that no other test gets, even of another program: the tests in Python hold the same locks
/// (`tests/end_to_end/ports.py`).
pub(super) fn free_port() -> u16 {
    static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    let folder = std::env::temp_dir().join(format!("sealbus-test-ports-{user}"));
    std::fs::create_dir_all(&folder).unwrap();
    for port in 10_000..20_000 {
        let lock = File::create(folder.join(port.to_string())).unwrap();
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap().push(lock);
            return port;
        }
    }
    panic!("no port is free");
}
