//! Counts the allocations of each subject of the table `acl` once, and prints them as JSON. This is a program of its
//! own, because counting slows every allocation down.

// Only the subjects of the table's modules are used here.
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
