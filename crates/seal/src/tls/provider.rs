//! The cryptographic provider.

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::kx_group;

/// The cryptographic provider of every TLS connection: aws-lc-rs, with X25519MLKEM768, and with X25519 for peers that
/// do not know it.
///
/// Each configuration gets this provider. The process-wide default of rustls is never touched.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || CryptoProvider {
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(make())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two providers in one tree, the first handshake panics, or one silently decides for the other.
    #[test]
    fn the_tree_holds_one_provider() {
        // The lock file does not suffice: it names optional dependencies that are not enabled.
        let output = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--workspace", "--locked"])
            .args(["--prefix", "none", "--format", "{lib} {p} features={f}"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let tree = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let crates: std::collections::BTreeSet<&str> = tree.lines().collect();
        let of = |name: &str| {
            let start = format!("{name} v");
            let named = |line: &&&str| {
                line.split_once(' ')
                    .is_some_and(|(_, package)| package.starts_with(&start))
            };
            crates.iter().filter(named).copied().collect::<Vec<_>>()
        };
        assert!(!of("aws-lc-rs").is_empty());
        let rustls = of("rustls");
        assert!(!rustls.is_empty());
        assert!(
            rustls.iter().all(|line| !line.contains("ring")),
            "{rustls:?}"
        );
        for foreign in [
            "ring",
            "openssl",
            "native-tls",
            "boring",
            "rustls-ring",
            "rustls-rustcrypto",
            "rustls-graviola",
            "rustls-mbedcrypto-provider",
        ] {
            let found = of(foreign);
            assert!(
                found.is_empty(),
                "{found:?}: `cargo tree -i {foreign}` says for whom"
            );
        }
    }

    #[test]
    fn the_provider_prefers_the_post_quantum_group() {
        let groups = provider()
            .kx_groups
            .iter()
            .map(|group| group.name())
            .collect::<Vec<_>>();
        use rustls::NamedGroup::{X25519, X25519MLKEM768};
        assert_eq!(groups, [X25519MLKEM768, X25519]);
        assert!(CryptoProvider::get_default().is_none());
    }
}
