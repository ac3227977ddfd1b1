//! Busy loops beside a run show how systems fare where others want the processors, too.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// The loops' name, as the system shows it.
const NAME: &str = "busy-loop";

/// Loops that want a processor each until this is dropped. They are threads of the instrument, so they end with it in any
/// case, and have the priority of the drivers that it starts.
#[derive(Default)]
pub(crate) struct Busy {
    is_over: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Busy {
    pub(crate) fn start(count: u8) -> io::Result<Self> {
        let mut busy = Self::default();
        for _ in 0..count {
            let is_over = busy.is_over.clone();
            let work = move || {
                let mut turns = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    turns = black_box(turns.wrapping_add(1));
                }
            };
            let thread = Builder::new().name(NAME.to_owned()).spawn(work)?;
            busy.loops.push(thread);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.loops.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    fn running() -> usize {
        let threads = fs::read_dir("/proc/self/task").unwrap();
        let names = threads.map(|it| fs::read_to_string(it.unwrap().path().join("comm")));
        // A thread may end before its name is read.
        names.flatten().filter(|it| it.trim() == NAME).count()
    }

    fn wait_for(count: usize) {
        // The system shows a change a little later.
        let mut looks = 0..1_000;
        while running() != count {
            assert!(looks.next().is_some(), "{} loops run", running());
            sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn busy_loops_end_with_their_owner() {
        let busy = Busy::start(2).unwrap();
        wait_for(2);
        drop(busy);
        wait_for(0);
    }
}
