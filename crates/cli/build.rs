//! Development builds are started thousands of times by the tests: without position-independent code, none of their hundreds of thousands
//! of addresses is corrected at each start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name, value| std::env::var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "debug")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
