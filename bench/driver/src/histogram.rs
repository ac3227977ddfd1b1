//! Times in buckets, the form in which a report carries them.

/// The number of buckets in each power of two. A value is known to better than 1 %.
const PER_OCTAVE: u32 = 128;

/// The bucket that `nanoseconds` falls into. Every driver, in any language, counts in these buckets.
pub fn bucket_of(nanoseconds: u64) -> usize {
    let shift = (64 - nanoseconds.leading_zeros()).saturating_sub(PER_OCTAVE.trailing_zeros() + 1);
    (shift * PER_OCTAVE) as usize + (nanoseconds >> shift) as usize
}

/// The smallest value of a bucket.
pub fn bucket_low(bucket: usize) -> u64 {
    let per_octave = PER_OCTAVE as usize;
    if bucket < 2 * per_octave {
        return bucket as u64;
    }
    let shift = bucket / per_octave - 1;
    ((bucket - shift * per_octave) as u64) << shift
}

/// Counted times, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
}

impl Buckets {
    /// Counts one time.
    pub fn record(&mut self, nanoseconds: u64) {
        let bucket = bucket_of(nanoseconds);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.sum += u128::from(nanoseconds);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, count) in self.counts.iter_mut().zip(&other.counts) {
            *own += count;
        }
        self.total += other.total;
        self.sum += other.sum;
    }

    /// The number of counted times.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The mean of the counted times, exact.
    pub fn mean(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        self.sum as f64 / self.total as f64
    }

    /// The buckets in use, as pairs of smallest value and count.
    pub fn to_pairs(&self) -> Vec<(u64, u64)> {
        let used = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (bucket_low(bucket), *count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bucket_which_is_narrow() {
        let mut value = 1_u64;
        while value < u64::MAX / 3 {
            for value in [value - 1, value, value + value / 3] {
                let bucket = bucket_of(value);
                let (low, next) = (bucket_low(bucket), bucket_low(bucket + 1));
                assert!(low <= value && value < next, "{low} {value} {next}");
                assert!(next - low <= 1 + low / 64, "{low} to {next}");
            }
            value *= 2;
        }
    }

    #[test]
    fn pairs_tell_what_was_counted() {
        let mut buckets = Buckets::default();
        for value in [5, 5, 1_000_000] {
            buckets.record(value);
        }
        let pairs = buckets.to_pairs();
        assert_eq!(pairs[0], (5, 2));
        assert_eq!((pairs.len(), pairs[1].1, buckets.total()), (2, 1, 3));
        assert!((buckets.mean() - 333_336.67).abs() < 0.1);
    }
}
