//! Waiting for changes by others, and for moments that may never come.

use std::time::Instant;

use tokio::sync::Notify;

/// Calls `look` until it finds something: now, and after each of the `news`. News during a call are not missed.
pub async fn until<T>(news: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let told = news.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        told.await;
    }
}

/// Waits until `at`, or for ever if it is `None`.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_news_are_missed_during_a_look() {
        let (news, mut looks) = (Notify::new(), 0);
        let third = until(&news, || {
            news.notify_waiters();
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third.await, 3);
    }
}
