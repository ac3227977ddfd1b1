//! Push notifications (specification, section 3.1.7): each event of a task is posted to the address that its caller named, in
//! order, until the task ends or the address takes nothing. The task's file has what was posted, so a gateway that starts anew goes on
//! there. It posts an event again that was posted just before its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, StatusCode};
use sealbus_callers::shown;
use sealbus_web::{Client, WebError, whole};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::push::{Authentication, KeptWebhook, MOST_WEBHOOKS, PushConfig, Webhook};
use crate::record::Posting;
use crate::tasks::{Task, Tasks};
use crate::{Fault, lines};

/// The time for one post, and the pauses before it is tried again.
const POST_TIME: Duration = Duration::from_secs(15);
const PAUSES: [Duration; 4] = if cfg!(test) {
    [Duration::ZERO; 4]
} else {
    [
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(8),
        Duration::from_secs(30),
    ]
};
/// Longest answer that is read.
const LONGEST_ANSWER: usize = 64 << 10;

/// Tells an address of all that becomes of the task from now on, also after a restart of the gateway. If it comes again while it is
/// told, it goes on where it is. Another one of the same id takes its place. Returns whether the id is new.
pub(crate) fn add(
    tasks: &Arc<Tasks>,
    task: &Arc<Task>,
    config: PushConfig,
    web: Client,
) -> Result<bool, Fault> {
    // Locked to the end, so that two that come at once are one.
    let mut webhooks = task.webhooks.lock();
    let is_told = |it: &Webhook| !it.posting.is_finished() || task.state().is_terminal();
    if webhooks.iter().any(|it| it.config == config && is_told(it)) {
        return Ok(false);
    }
    let others = webhooks.iter().filter(|it| it.config.id != config.id);
    let others = others.count();
    if others >= MOST_WEBHOOKS {
        let why = format!("{MOST_WEBHOOKS} webhooks are told of the task: delete one");
        return Err(Fault::Exhausted(why));
    }
    let kept = tasks.keep_webhook(task, config)?;
    let is_new = others == webhooks.len();
    webhooks.retain(|it| it.config.id != kept.config.id);
    webhooks.push(begin(tasks, task, kept, web));
    Ok(is_new)
}

/// Forgets an address.
pub(crate) fn remove(tasks: &Tasks, task: &Task, id: &str) {
    let mut webhooks = task.webhooks.lock();
    let before = webhooks.len();
    webhooks.retain(|it| it.config.id != id);
    if webhooks.len() < before {
        tasks.note_webhook(task, &Posting::End(id.to_owned()), 0);
    }
}

/// Goes on with an address of an earlier run.
pub(crate) fn resume(tasks: &Arc<Tasks>, task: &Arc<Task>, kept: KeptWebhook, web: Client) {
    task.webhooks.lock().push(begin(tasks, task, kept, web));
}

/// Tells an address of all that it has not been told.
fn begin(tasks: &Arc<Tasks>, task: &Arc<Task>, kept: KeptWebhook, web: Client) -> Webhook {
    let KeptWebhook {
        config,
        told,
        is_lost,
    } = kept;
    let posting = {
        let (tasks, task, config) = (tasks.clone(), task.clone(), config.clone());
        tokio::spawn(async move {
            if !is_lost {
                tell(&tasks, &task, &config, &web, told).await;
            }
        })
    };
    Webhook {
        config,
        posting: posting.abort_handle(),
    }
}

async fn tell(tasks: &Tasks, task: &Task, config: &PushConfig, web: &Client, mut at: u64) {
    let mut changes = task.changes();
    loop {
        changes.mark_unchanged();
        if let Some(next) = task.read(|log| log.after(at)) {
            at = next.number;
            if let Err(reason) = post(config, &next.told, web, &tasks.posts).await {
                let (caller, url) = (tasks.caller.voice.name(), shown(&config.url, 200));
                if let Some(left_out) = lines::admit_webhook(caller, &url) {
                    tracing::warn!(
                        caller,
                        url,
                        left_out,
                        "a webhook is told nothing more: {reason}"
                    );
                }
                tasks.note_webhook(task, &Posting::Lost(config.id.clone()), at);
                return;
            }
            if !next.is_notice {
                tasks.note_webhook(task, &Posting::Told(config.id.clone()), at);
            }
            continue;
        }
        if task.state().is_terminal() || changes.changed().await.is_err() {
            return;
        }
    }
}

/// Posts one event, some times if need be.
async fn post(
    config: &PushConfig,
    event: &RawValue,
    web: &Client,
    posts: &Semaphore,
) -> Result<(), String> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let request = request(config, event).map_err(|error| error.to_string())?;
        let turn = posts.acquire().await.map_err(|error| error.to_string())?;
        let sent = send(request, web).await;
        drop(turn);
        let (reason, may_pass) = match sent {
            Ok(status) if status.is_success() => return Ok(()),
            Ok(status) => {
                let may_pass = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
                (format!("its answer is {status}"), may_pass)
            }
            Err(error) => {
                use WebError::{Broken, Io, Slow};
                (
                    error.to_string(),
                    matches!(error, Io(_) | Slow(_) | Broken(_)),
                )
            }
        };
        let pause = pauses.next().filter(|_| may_pass).ok_or(reason)?;
        tokio::time::sleep(pause).await;
    }
}

/// The status of the answer. Its body is read, and means nothing.
async fn send(request: Request<Full<Bytes>>, web: &Client) -> Result<StatusCode, WebError> {
    let answer = web.ask(request, POST_TIME).await?;
    let status = answer.status();
    // A body that breaks off takes nothing back.
    let _ = whole(answer.into_body(), LONGEST_ANSWER, POST_TIME).await;
    Ok(status)
}

fn request(
    config: &PushConfig,
    event: &RawValue,
) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let mut request = Request::post(&config.url).header(CONTENT_TYPE, "application/a2a+json");
    if let Some(Authentication {
        scheme,
        credentials,
    }) = &config.authentication
    {
        request = request.header(AUTHORIZATION, format!("{scheme} {credentials}"));
    }
    if !config.token.is_empty() {
        request = request.header("x-a2a-notification-token", &config.token);
    }
    request.body(Full::new(Bytes::from(event.get().to_owned())))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::value::to_raw_value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::{JoinSet, yield_now};

    use super::*;
    use crate::tasks::tests::tasks;

    /// The way to a server that gives each post this answer on a connection of its own, and how many posts have come. A
    /// server without an answer keeps posts waiting.
    fn server(answer: Option<&'static str>) -> (Client, Arc<AtomicUsize>) {
        let posts = Arc::new(AtomicUsize::new(0));
        let come = posts.clone();
        let web = Client::over(move |_| {
            let (near, mut far) = tokio::io::duplex(64 << 10);
            let come = come.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 1024];
                assert!(far.read(&mut bytes).await.unwrap() > 0);
                come.fetch_add(1, Ordering::Relaxed);
                if let Some(answer) = answer {
                    far.write_all(answer.as_bytes()).await.unwrap();
                }
                while matches!(far.read(&mut bytes).await, Ok(1..)) {}
            });
            std::future::ready(Ok(near))
        });
        (web, posts)
    }

    async fn post_to(web: &Client, posts: &Semaphore) -> Result<(), String> {
        let config = PushConfig {
            id: "one".to_owned(),
            task_id: "1".to_owned(),
            url: "http://hooks.example/".to_owned(),
            token: String::new(),
            authentication: None,
        };
        post(&config, &to_raw_value("news").unwrap(), web, posts).await
    }

    #[tokio::test]
    async fn a_server_that_always_fails_is_asked_five_times() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\n\
            connection: close\r\ncontent-length: 0\r\n\r\n";
        let (web, asked) = server(Some(answer));
        let given_up = post_to(&web, &Semaphore::new(1)).await;
        let why = "its answer is 503 Service Unavailable".to_owned();
        assert_eq!(given_up, Err(why));
        assert_eq!(asked.load(Ordering::Relaxed), 5);
    }

    #[tokio::test]
    async fn a_callers_posts_go_out_32_at_a_time() {
        let (_platform, tasks) = tasks().await;
        let (web, asked) = server(None);
        let mut posting = JoinSet::new();
        for _ in 0..40 {
            let (web, posts) = (web.clone(), tasks.posts.clone());
            posting.spawn(async move { post_to(&web, &posts).await });
        }
        while asked.load(Ordering::Relaxed) < 32 {
            yield_now().await;
        }
        // The others have had their turn, too.
        for _ in 0..1_000 {
            yield_now().await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), 32);
        assert_eq!(tasks.posts.available_permits(), 0);
    }
}
