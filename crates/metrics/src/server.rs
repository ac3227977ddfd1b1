//! Answers `GET /metrics` over HTTP/1.1.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use sealbus_control::network_of;
use sealbus_mesh::Strangers;
use sealbus_web::{HeadLimits, accept_each, answer_http1, empty_answer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::sample::Sample;

/// Most connections at a time: more than readers of metrics need, and an eighth of the 1,024 files that a process may mostly
/// open. When there are more, the oldest one of the address with the most ends, so that silent ones keep no reader out.
const CONNECTIONS: usize = 128;
/// How long a connection may take in all.
const CONNECTION: Duration = Duration::from_secs(20);
/// The limits of a request's head.
const HEAD: HeadLimits = HeadLimits {
    time: Duration::from_secs(5),
    length: 8 << 10,
    fields: 64,
};
/// How long one sample answers all requests.
const FRESH: Duration = Duration::from_millis(500);

/// Listens for Prometheus.
///
/// # Errors
/// If the address is taken, or is not of this machine.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "everyone who reaches this address can read the metrics");
    }
    tracing::info!("metrics are at http://{address}/metrics");
    Ok(listener)
}

/// Serves samples for ever. Without a sample the answer is 503.
pub async fn serve(
    listener: TcpListener,
    sample: impl Fn() -> BoxFuture<'static, Option<Sample>> + Send + Sync + 'static,
) {
    let state = State {
        sample: Box::new(sample),
        latest: Mutex::new(None),
        is_local: listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_loopback()),
        head: HEAD,
        longest: CONNECTION,
    };
    accept(listener, Arc::new(state)).await;
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let strangers = Strangers::new(CONNECTIONS);
    accept_each(&listener, |stream, from, _| {
        let stranger = strangers.came(network_of(from.ip()));
        let serving = state.clone().connection(stream);
        Some(async move {
            tokio::select! {
                () = serving => {}
                () = stranger.must_go() => {}
            }
        })
    })
    .await;
}

struct State {
    sample: Box<dyn Fn() -> BoxFuture<'static, Option<Sample>> + Send + Sync>,
    latest: Mutex<Option<(Instant, Bytes)>>,
    /// Whether the server listens on a loopback address.
    is_local: bool,
    /// The limits of a request's head.
    head: HeadLimits,
    /// How long a connection may take in all.
    longest: Duration,
}

impl State {
    /// Serves one request on one connection. A client that keeps connections open would take room from others.
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let answer = async |request| {
            let mut answer = self.answer(&request).await;
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
            answer
        };
        match timeout(self.longest, answer_http1(stream, self.head, answer)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a reader of metrics is gone"),
            Err(_) => tracing::debug!("a reader of metrics was too slow"),
        }
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if self.is_local && !is_for_loopback(request) {
            return empty_answer(StatusCode::MISDIRECTED_REQUEST);
        }
        if request.uri().path() != "/metrics" {
            return empty_answer(StatusCode::NOT_FOUND);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return empty_answer(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Some(text) = self.text().await else {
            return empty_answer(StatusCode::SERVICE_UNAVAILABLE);
        };
        let mut response = Response::new(Full::new(text));
        let headers = response.headers_mut();
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// The text of the latest sample, or of a new one. All requests meanwhile wait for the same one.
    async fn text(&self) -> Option<Bytes> {
        let mut latest = self.latest.lock().await;
        if let Some((taken, text)) = &*latest
            && taken.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let text = Bytes::from((self.sample)().await?.text().ok()?);
        *latest = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

/// Whether a request names a loopback address. Another name means that a web page led a browser here.
fn is_for_loopback<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST);
    let Some(host) = host.and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    /// A server, its address, and the number of samples that it has taken.
    async fn server() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let samples = Arc::new(AtomicUsize::new(0));
        let counting = samples.clone();
        tokio::spawn(serve(listener, move || {
            counting.fetch_add(1, Ordering::Relaxed);
            sample()
        }));
        (address, samples)
    }

    fn sample() -> BoxFuture<'static, Option<Sample>> {
        Box::pin(async { Some(Sample::of("factory", "node-1")) })
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let stream = TcpStream::connect(address).await.unwrap();
        answer_on(stream, request).await
    }

    async fn answer_on(mut stream: TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may reset the connection of a refused request.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn only_what_is_asked_rightly_is_answered() {
        let (address, _) = server().await;
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n\r\n", 200),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
            ("GET /metrics HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
            ("GET /metrics HTTP/1.1\r\n\r\n", 421),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
            (
                "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
                405,
            ),
            ("nonsense\r\n\r\n", 400),
        ] {
            let answer = ask(address, request).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{request}: {answer}"
            );
        }
        let huge = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(4 * HEAD.length)
        );
        assert!(!ask(address, &huge).await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn many_who_ask_get_one_sample() {
        let (address, samples) = server().await;
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let since = Instant::now();
        let asking = (0..100).map(|_| ask(address, request));
        let answers = futures_util::future::join_all(asking).await;
        assert!(answers.iter().all(|answer| answer.ends_with("# EOF\n")));
        let most = 1 + since.elapsed().as_millis() / FRESH.as_millis();
        assert!(samples.load(Ordering::Relaxed) as u128 <= most);
    }

    #[tokio::test]
    async fn those_who_say_nothing_are_sent_away() {
        let (address, _) = server().await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut answer = Vec::new();
        // The server may answer that the request took too long, or end the connection at once.
        let _ = silent.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn silent_connections_of_one_address_make_room_for_a_reader_at_another() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        // No connection ends because of its time.
        let hour = Duration::from_secs(3600);
        let state = State {
            sample: Box::new(sample),
            latest: Mutex::new(None),
            is_local: true,
            head: HeadLimits { time: hour, ..HEAD },
            longest: hour,
        };
        tokio::spawn(accept(listener, Arc::new(state)));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS + 16 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        // On other systems only 127.0.0.1 is an address of this machine.
        let other = if cfg!(target_os = "linux") { 2 } else { 1 };
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, other], 0).into()).unwrap();
        let reader = socket.connect(address).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answered = timeout(Duration::from_secs(60), answer_on(reader, request)).await;
        assert!(answered.unwrap().starts_with("HTTP/1.1 200"));
        assert_eq!(silent[0].read(&mut [0; 8]).await.unwrap_or(0), 0);
    }
}
