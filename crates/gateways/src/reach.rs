//! The network addresses that the gateway connects to. Free of I/O.
//!
//! Anybody can write any address into an agent identifier, so an address is only a claim. The gateway connects to
//! addresses that an operator named and to addresses that the platform itself wrote from. For messages that agents of
//! this platform begin, it also connects to the open internet. It checks the address that a name was resolved to, just
//! before it connects.

use std::net::IpAddr;

use sealbus_web::reach::special;
use thiserror::Error;

use crate::policy::GatewayPolicy;

/// Why the gateway does not connect to an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum OutOfReach {
    /// An address of this machine, its network or its infrastructure.
    #[error(
        "{address} is {kind}, which the gateway connects to only if an operator has named it: \
         sealbus gateway allow {platform} --from {address}, or an address under [gateway.http.platforms]"
    )]
    Special {
        platform: String,
        address: IpAddr,
        kind: &'static str,
    },
    /// An address at which the platform has not been seen.
    #[error(
        "{platform} is not known to be at {address}: it wrote from elsewhere, or a rule names its network; \
         sealbus gateway allow {platform} --from {address} if it is there too"
    )]
    Elsewhere { platform: String, address: IpAddr },
}

/// Checks that the gateway may connect to `address` for an agent of `platform`, which has written from the addresses in
/// `seen`.
///
/// # Errors
/// [`OutOfReach`], with the remedy.
pub(crate) fn check(
    policy: &GatewayPolicy,
    platform: &str,
    seen: &[IpAddr],
    address: IpAddr,
) -> Result<(), OutOfReach> {
    let address = address.to_canonical();
    if policy.locates(platform, address) {
        return Ok(());
    }
    if let Some(kind) = special(address) {
        return Err(OutOfReach::Special {
            platform: platform.to_owned(),
            address,
            kind,
        });
    }
    let is_elsewhere = !seen.is_empty() || policy.is_located(platform);
    if is_elsewhere && !seen.contains(&address) {
        return Err(OutOfReach::Elsewhere {
            platform: platform.to_owned(),
            address,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sealbus_web::reach::Reach;

    use super::*;
    use crate::policy::GatewayRule;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn rule(platform: &str, from: &[&str]) -> GatewayRule {
        GatewayRule {
            from: from.iter().map(|it| (*it).to_owned()).collect(),
            ..GatewayRule::new(platform, ["*"])
        }
    }

    #[test]
    fn what_is_not_of_the_open_internet_needs_a_rule_that_names_it() {
        let anywhere = GatewayPolicy {
            rules: vec![rule("*", &[])],
        };
        for address in [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.192",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.100.100.200",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "fe80::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
        ] {
            // This holds even if the platform wrote from there: the whole machine may be behind that address.
            let seen = [ip(address).to_canonical()];
            let refused = check(&anywhere, "plat1", &seen, ip(address));
            assert!(
                matches!(refused, Err(OutOfReach::Special { .. })),
                "{address}: {refused:?}"
            );
            let named = ip(address).to_canonical().to_string();
            let reach = |networks: &[String]| Reach::new(networks).unwrap().check(ip(address));
            assert!(reach(&[]).is_err() && reach(&["198.51.100.0/24".into()]).is_err());
            assert_eq!(reach(std::slice::from_ref(&named)), Ok(()));
            let policy = GatewayPolicy {
                rules: vec![rule("plat1", &[&named])],
            };
            assert_eq!(check(&policy, "PLAT1", &[], ip(address)), Ok(()));
            assert!(check(&policy, "plat2", &[], ip(address)).is_err());
        }
        for address in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:4860::8888"] {
            assert_eq!(check(&anywhere, "plat1", &[], ip(address)), Ok(()));
        }
    }

    #[test]
    fn a_platform_that_has_written_is_where_it_wrote_from() {
        let anywhere = GatewayPolicy {
            rules: vec![rule("*", &[])],
        };
        let (here, third) = (ip("198.51.100.7"), ip("203.0.113.9"));
        assert_eq!(check(&anywhere, "plat1", &[here], here), Ok(()));
        assert_eq!(
            check(&anywhere, "plat1", &[here], third),
            Err(OutOfReach::Elsewhere {
                platform: "plat1".to_owned(),
                address: third,
            })
        );
        // A rule that names the platform's network locates the platform even before it has written.
        let located = GatewayPolicy {
            rules: vec![rule("plat1", &["198.51.100.0/24"])],
        };
        assert_eq!(check(&located, "plat1", &[], here), Ok(()));
        assert!(check(&located, "plat1", &[], third).is_err());
        assert_eq!(check(&located, "plat2", &[], third), Ok(()));
    }
}
