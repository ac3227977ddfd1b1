//! The command line `sealbus`, in the native module of the package. The small program of the wheel (`packaging/program.c`) loads
//! this module and calls it, so that a wheel contains the platform only once. There is no interpreter then, so nothing here may
//! need one.

use std::ffi::c_int;
use std::panic::catch_unwind;
use std::process::ExitCode;

/// The exit code of a Rust program that panicked.
const PANICKED: c_int = 101;

/// Runs the command that the process's arguments name, and returns its exit code.
#[allow(unsafe_code)] // No other function has this name.
#[unsafe(no_mangle)]
extern "C" fn sealbus_command() -> c_int {
    let Ok(code) = catch_unwind(sealbus_cli::main) else {
        return PANICKED;
    };
    // The standard library compares exit codes, but does not tell their numbers.
    (0..=u8::MAX)
        .find(|number| ExitCode::from(*number) == code)
        .map_or(1, c_int::from)
}
