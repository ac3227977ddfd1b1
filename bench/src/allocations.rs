//! Counts the allocations of each subject of the table `acl` once, and prints them as JSON. A program
//! of its own, since counting slows every allocation down.

// Of the table's modules only the subjects are used here.
#![allow(dead_code)]

mod acl;
mod turns;

use std::process::ExitCode;

fn main() -> ExitCode {
    match acl::count_allocations(|work| allocation_counter::measure(work).count_total) {
        Ok(counts) => {
            println!("{counts}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
