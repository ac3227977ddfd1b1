//! Requests to the platform that are repeated while they fail for a reason that may pass.

use std::future::Future;
use std::time::Duration;

use sealbus_control::Fault;

/// The first pause before a request is made again. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Asks until there is an answer, or a fault that repeating does not help. No pause is longer than `longest_pause`.
///
/// # Errors
/// The last fault.
pub(super) async fn again<T, F>(
    longest_pause: Duration,
    goes_on: impl Fn(&Fault) -> bool,
    ask: impl Fn() -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match ask().await {
            Err(fault) if goes_on(&fault) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest_pause);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use parking_lot::Mutex;
    use sealbus_control::FaultCode;

    use super::*;

    #[tokio::test]
    async fn it_is_asked_until_a_fault_does_not_pass() {
        let codes = [
            FaultCode::NotPermitted,
            FaultCode::Full,
            FaultCode::Unavailable,
        ];
        let left = Mutex::new(codes.to_vec());
        let ask = || ready(Err::<(), _>(Fault::new(left.lock().pop().unwrap(), "no")));
        let fault = again(Duration::ZERO, Fault::may_pass, ask)
            .await
            .unwrap_err();
        assert_eq!(fault.code, FaultCode::NotPermitted);
        assert!(left.lock().is_empty());
    }
}
