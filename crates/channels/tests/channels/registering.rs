//! A process that reports to its platform that its agents use channels.

use sealbus_bus::BoxFuture;
use sealbus_channels::ChannelRegistrar;

use super::*;

/// A platform that never answers.
struct Absent;

impl ChannelRegistrar for Absent {
    fn register(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_process_that_leaves_waits_for_no_answer() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let platform: Arc<dyn ChannelRegistrar> = Arc::new(Absent);
    assert!(channels.set_registrar(platform.clone()));
    assert!(!channels.listed(Duration::from_millis(50)).await);
    drop((channels, bus));
    let is_held = async {
        while Arc::strong_count(&platform) > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, is_held).await.expect("nobody holds it");
}
