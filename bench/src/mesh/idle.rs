//! The cost of an idle agent: resident memory of many agents in one process.

use sealbus_bus::{Bus, BusConfig};
use sealbus_seal::Identity;

use crate::mesh::credentials::{Authority, platform};
use crate::mesh::{BenchError, failed};

/// Prints the bytes of each agent, without and with a certificate of its own.
pub(crate) async fn measure(agents: usize) -> Result<(), BenchError> {
    let authority = Authority::create().map_err(failed)?;
    // All agents stay, so that none reuses the memory of one that has gone.
    let mut attached = Vec::with_capacity(2 * agents);
    for is_certified in [false, true] {
        let config = BusConfig::new(platform().map_err(failed)?);
        let bus = Bus::new(config, tokio::runtime::Handle::current());
        let before = resident()?;
        for number in 0..agents {
            let name = format!("idle-{number}@bench");
            let credential = match is_certified {
                true => {
                    let identity = Identity::from_agent_name(&name).map_err(failed)?;
                    Some(authority.credential(identity).map_err(failed)?)
                }
                false => None,
            };
            attached.push(bus.attach(&name, credential, None).map_err(failed)?);
        }
        let bytes = resident()?.saturating_sub(before) / agents as u64;
        println!(
            "{bytes} {}",
            if is_certified {
                "with its certificate and key"
            } else {
                "without certificate"
            }
        );
    }
    Ok(())
}

/// Resident memory of this process in bytes, as Linux counts it.
pub(crate) fn resident() -> Result<u64, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .trim()
                .parse()
                .ok()
        })
        .map(|kilobytes: u64| kilobytes * 1024)
        .ok_or_else(|| failed("the system does not say how much memory is resident"))
}
