//! A client among servers that do not mean well.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use sealbus_web::{Client, MayReach, Server, WebError, reach, trust, whole};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Long enough on any machine.
const LONG: Duration = Duration::from_secs(60);

fn anywhere() -> MayReach {
    Arc::new(|_| Ok(()))
}

fn get(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Vec<u8>, keeps: bool) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await;
    let _ = stream.write_all(&answer).await;
    if keeps {
        std::future::pending::<()>().await;
    }
}

/// A server that says this to every connection, and perhaps keeps it open.
async fn server(answer: impl Into<Vec<u8>>, keeps: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = answer.into();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, answer.clone(), keeps));
        }
    });
    port
}

#[tokio::test]
async fn an_answer_is_read_within_its_limits() {
    let client = Client::new(None, anywhere());
    let said =
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 5\r\n\r\nhello";
    let url = format!("http://localhost:{}/x", server(said, false).await);
    for (most, fits) in [(5, true), (4, false)] {
        let answer = client.ask(get(&url), LONG).await.unwrap();
        // A redirection is not followed.
        assert_eq!(answer.status(), 302);
        let server = answer.extensions().get::<Server>().unwrap();
        assert_eq!((&server.name, &server.certificate), (&None, &None));
        let read = whole(answer.into_body(), most, LONG).await;
        match read {
            Ok(body) => assert!(fits && body == "hello"),
            Err(WebError::TooLong(4)) => assert!(!fits),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_server_without_an_end_is_given_up() {
    let client = Client::new(None, anywhere());
    let short = Duration::from_millis(50);
    let silent = format!("http://127.0.0.1:{}/", server("", true).await);
    let asked = client.ask(get(&silent), short).await;
    assert!(matches!(asked, Err(WebError::Slow(_))), "{asked:?}");
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let long = format!("http://127.0.0.1:{}/", server(head, true).await);
    let asked = client.ask(get(&long), LONG).await;
    assert!(matches!(asked, Err(WebError::Broken(_))), "{asked:?}");
    let slow = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello";
    let slow = format!("http://127.0.0.1:{}/", server(slow, true).await);
    let answer = client.ask(get(&slow), LONG).await.unwrap();
    let read = whole(answer.into_body(), 100, short).await;
    assert!(matches!(read, Err(WebError::Slow(_))), "{read:?}");
    let none = format!("http://127.0.0.1:{}/", server("what?", false).await);
    assert!(client.ask(get(&none), LONG).await.is_err());
}

/// A server whose connections each end at their second request, without an answer.
async fn forgetful() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let said = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                let _ = stream.write_all(said).await;
                let _ = stream.read(&mut request).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn what_may_come_twice_is_asked_again_when_a_connection_breaks() {
    let url = format!("http://127.0.0.1:{}/", forgetful().await);
    let client = Client::new(None, anywhere());
    // A connection is used again when the client has noticed that its answer ended.
    loop {
        match client.ask(get(&url), LONG).await {
            Ok(answer) => drop(whole(answer.into_body(), 5, LONG).await.unwrap()),
            Err(WebError::Broken(_)) => break,
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..20 {
        let request = Request::get(&url).body("").unwrap();
        let answer = client.fetch(request, 5, LONG).await.unwrap();
        assert_eq!(answer.body(), "hello");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let nonsense = format!("http://127.0.0.1:{}/", server("what?", false).await);
    let request = Request::get(&nonsense).body("").unwrap();
    assert!(client.fetch(request, 5, LONG).await.is_err());
}

#[tokio::test]
async fn what_may_not_come_twice_is_asked_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    let client = Client::new(None, anywhere());
    let request = || Request::get(&url).body("").unwrap();
    let once = client.fetch_once(request(), 5, LONG).await;
    assert!(matches!(once, Err(WebError::Broken(_))), "{once:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(client.fetch(request(), 5, LONG).await.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_caller_may_open_the_connections_itself() {
    let client = Client::over(|url| async move {
        if url.host() != Some("here") {
            return Err(format!("no way leads to {url}"));
        }
        let (ours, theirs) = tokio::io::duplex(4096);
        let said = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        tokio::spawn(talk(theirs, said.into(), false));
        Ok(ours)
    });
    let request = |url: &str| Request::post(url).body("body").unwrap();
    let answer = client.fetch(request("http://here/"), 0, LONG).await;
    assert_eq!(answer.unwrap().status(), 200);
    let failed = client.fetch(request("http://there/"), 0, LONG).await;
    let error = failed.unwrap_err().to_string();
    assert_eq!(error, "no way leads to http://there/");
}

#[tokio::test]
async fn a_name_leads_only_where_it_may() {
    let client = Client::new(None, Arc::new(reach::open_internet));
    for url in [
        "http://localhost:1/",
        "https://127.0.0.1:1/",
        "https://[::1]:1/",
    ] {
        let asked = client.ask(get(url), LONG).await;
        assert!(matches!(asked, Err(WebError::OutOfReach(_))), "{asked:?}");
    }
    // Nothing goes beyond this machine without TLS.
    let anywhere = Client::new(None, anywhere());
    let asked = anywhere.ask(get("http://192.0.2.1/"), LONG).await;
    assert!(matches!(asked, Err(WebError::Plain)), "{asked:?}");
    let asked = anywhere.ask(get("https://127.0.0.1:1/"), LONG).await;
    assert!(asked.is_err());
}

#[tokio::test]
async fn a_server_proves_its_name() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]);
    let certificate = certificate.unwrap().self_signed(&key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, certificate.pem()).unwrap();
    let config = ServerConfig::builder_with_provider(trust::wide_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let said = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                if let Ok(stream) = acceptor.accept(stream).await {
                    talk(stream, said.into(), false).await;
                }
            });
        }
    });
    let trusting = trust::client(Some(&file)).unwrap();
    let client = Client::new(trusting.clone(), anywhere());
    let answer = client
        .ask(get(&format!("https://localhost:{port}/")), LONG)
        .await;
    let answer = answer.unwrap();
    let server = answer.extensions().get::<Server>().unwrap();
    assert_eq!(server.name.as_deref(), Some("localhost"));
    assert_eq!(server.certificate.as_ref().map(String::len), Some(64));
    // Another name, and no authority that could prove it.
    assert!(
        client
            .ask(get(&format!("https://127.0.0.1:{port}/")), LONG)
            .await
            .is_err()
    );
    let strange = Client::new(trust::client(None).unwrap(), anywhere());
    assert!(
        strange
            .ask(get(&format!("https://localhost:{port}/")), LONG)
            .await
            .is_err()
    );
}
