//! Measures several things in turns, so that a disturbance of the machine affects them alike.

use std::time::{Duration, Instant};

/// How long one batch of repetitions takes.
const BATCH: Duration = Duration::from_micros(500);
/// How often each thing has its turn.
const TURNS: usize = 201;

/// A subject of the measurement, which is called again and again.
pub(crate) struct Subject<'a> {
    pub(crate) name: String,
    pub(crate) work: Box<dyn FnMut() + 'a>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(name: impl Into<String>, work: impl FnMut() + 'a) -> Self {
        Self {
            name: name.into(),
            work: Box::new(work),
        }
    }
}

/// The figures of a subject.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// Nanoseconds for each call, in the batch that nine of ten batches are slower than. Other load on the machine
    /// makes batches slower, never faster.
    pub(crate) nanoseconds: f64,
}

/// Measures all subjects in turns.
pub(crate) fn measure(mut subjects: Vec<Subject<'_>>) -> Vec<Measured> {
    let repetitions: Vec<u32> = subjects
        .iter_mut()
        .map(|it| repetitions(&mut it.work))
        .collect();
    let mut batches: Vec<Vec<f64>> = vec![Vec::with_capacity(TURNS); subjects.len()];
    for _ in 0..TURNS {
        for (index, subject) in subjects.iter_mut().enumerate() {
            let started = Instant::now();
            for _ in 0..repetitions[index] {
                (subject.work)();
            }
            let each = started.elapsed().as_nanos() as f64 / f64::from(repetitions[index]);
            batches[index].push(each);
        }
    }
    let mut measured = Vec::with_capacity(subjects.len());
    for (subject, mut batches) in subjects.into_iter().zip(batches) {
        batches.sort_by(f64::total_cmp);
        measured.push(Measured {
            name: subject.name,
            nanoseconds: batches[TURNS / 10],
        });
    }
    measured
}

/// The number of calls that fill a batch.
fn repetitions(work: &mut dyn FnMut()) -> u32 {
    let mut repetitions = 1;
    loop {
        let started = Instant::now();
        for _ in 0..repetitions {
            work();
        }
        if started.elapsed() >= BATCH || repetitions > 1 << 24 {
            return repetitions;
        }
        repetitions *= 2;
    }
}
