use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const HOST: (&str, &str) = ("host", "127.0.0.1:7000");

fn window() -> Arc<Window> {
    let seen = vec![Seen::Skipped { count: 3 }];
    Window::new(
        Source::Recording(seen.into()),
        WindowAddress::loopback(),
        7000,
    )
}

async fn send(
    window: &Arc<Window>,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> HttpAnswer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    let stranger = Strangers::new(1).came(Ipv4Addr::LOCALHOST.into());
    window
        .clone()
        .answer(request.body(body).unwrap(), &stranger)
        .await
}

async fn post(window: &Arc<Window>, path: &str, key: &str, body: &str) -> HttpAnswer {
    send(
        window,
        Method::POST,
        path,
        &[HOST, ("sealbus-session", key)],
        body,
    )
    .await
}

async fn said(answer: HttpAnswer) -> serde_json::Value {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

/// The body of a request with the secret of a new link.
fn entering(window: &Window) -> String {
    let link = window.link().unwrap();
    let (page, once) = link.split_once("#once=").unwrap();
    assert_eq!(page, "http://127.0.0.1:7000/");
    json!({ "once": once }).to_string()
}

async fn entered(window: &Arc<Window>) -> String {
    let answer = post(window, "/session", "", &entering(window)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    said(answer).await["session"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_link_is_good_once() {
    let window = window();
    let body = entering(&window);
    assert_eq!(post(&window, "/session", "", &body).await.status(), 200);
    let again = post(&window, "/session", "", &body).await;
    assert_eq!(again.status(), StatusCode::FORBIDDEN);
    assert!(
        said(again).await["error"]
            .as_str()
            .unwrap()
            .contains("was used")
    );
    let unknown = json!({ "once": Secret::random().unwrap().text() }).to_string();
    assert_eq!(post(&window, "/session", "", &unknown).await.status(), 403);
    for wrong in ["", "{}", "{\"once\":\"x\"}", "[]"] {
        assert_eq!(post(&window, "/session", "", wrong).await.status(), 400);
    }
}

#[tokio::test]
async fn nothing_is_told_without_a_session() {
    let window = window();
    let key = entered(&window).await;
    let other = Secret::random().unwrap().text();
    for path in ["/stream", "/ask", "/act", "/other"] {
        for key in ["", "x", &other] {
            assert_eq!(post(&window, path, key, "{}").await.status(), 403, "{path}");
        }
        let cookie = [HOST, ("cookie", key.as_str())];
        let answer = send(&window, Method::POST, path, &cookie, "{}").await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        // A key in an address does not count, and a link or an image can ask nothing.
        let fields = [HOST, ("sealbus-session", key.as_str())];
        let answer = send(&window, Method::GET, path, &fields, "").await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
    let answer = post(&window, "/stream", &key, "{}").await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn other_pages_and_hosts_are_refused() {
    let window = window();
    let key = entered(&window).await;
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let fields = [HOST, (name, value), ("sealbus-session", key.as_str())];
        let answer = send(&window, Method::POST, "/stream", &fields, "{}").await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    }
    let rebound = [("host", "evil.example:7000")];
    let answer = send(&window, Method::GET, "/", &rebound, "").await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    for method in [Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = send(&window, method, "/ask", &[HOST], "").await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn every_answer_has_the_policy_and_no_cookie() {
    let window = window();
    let paths = FILES.iter().map(|file| file.path).chain(["/none"]);
    for path in paths {
        let answer = send(&window, Method::GET, path, &[HOST], "").await;
        let field = |name: &str| answer.headers()[name].to_str().unwrap();
        let policy = field("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
        assert_eq!(field("x-content-type-options"), "nosniff");
        assert_eq!(field("cache-control"), "no-store");
        assert!(!answer.headers().contains_key("set-cookie"));
        assert!(!answer.headers().contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn bodies_and_streams_have_an_end() {
    let window = window();
    let key = entered(&window).await;
    let long = format!("{{\"watch\":\"{}\"}}", "x".repeat(BODY));
    assert_eq!(post(&window, "/stream", &key, &long).await.status(), 413);
    let wide = json!({ "watch": { "id": 1, "agents": vec!["a"; 17] } }).to_string();
    assert_eq!(post(&window, "/stream", &key, &wide).await.status(), 400);
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let answer = post(&window, "/stream", &key, "{}").await;
        assert_eq!(answer.status(), StatusCode::OK);
        open.push(answer);
    }
    assert_eq!(post(&window, "/stream", &key, "{}").await.status(), 429);
    drop(open);
    while window.streams.available_permits() < STREAMS {
        tokio::task::yield_now().await;
    }
    assert_eq!(post(&window, "/stream", &key, "{}").await.status(), 200);
}

#[tokio::test]
async fn a_stream_ends_with_its_session() {
    let look = StreamRequest { watch: None };
    let Ok(answer) = window().stream(look, Instant::now()) else {
        panic!("it is streamed");
    };
    let whole = answer.into_body().collect();
    let whole = tokio::time::timeout(Duration::from_secs(60), whole).await;
    assert!(whole.is_ok(), "it has no end");
}

#[tokio::test]
async fn a_recording_is_streamed() {
    let window = window();
    let key = entered(&window).await;
    let mut body = post(&window, "/stream", &key, "{}").await.into_body();
    let mut lines = Vec::new();
    while lines.len() < 3 {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let line: serde_json::Value = serde_json::from_slice(&data).unwrap();
        lines.push(line["event"].clone());
    }
    assert_eq!(lines, ["hello", "heads", "end"]);
    assert_eq!(
        post(&window, "/ask", &key, "{\"ask\":\"certificates\"}")
            .await
            .status(),
        404
    );
    assert_eq!(
        post(&window, "/ask", &key, "{\"ask\":\"kill\"}")
            .await
            .status(),
        400
    );
}

#[tokio::test]
async fn nothing_is_changed_unless_the_operator_allowed_it() {
    let act = json!({ "confirm": "ann", "act": { "do": "kill", "agent": "ann" } }).to_string();
    let window = window();
    let key = entered(&window).await;
    let refused = post(&window, "/act", &key, &act).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(
        said(refused).await["error"]
            .as_str()
            .unwrap()
            .contains("--operate")
    );
    let nowhere = tempfile::tempdir().unwrap();
    for (operates, status) in [(false, 403), (true, 502)] {
        let directory = nowhere.path().to_owned();
        let source = Source::Platform {
            directory,
            rights: Rights {
                operates,
                ..Rights::default()
            },
        };
        let window = Window::new(source, WindowAddress::loopback(), 7000);
        let key = entered(&window).await;
        assert_eq!(post(&window, "/act", &key, &act).await.status(), status);
        let fields = [HOST, ("sealbus-session", key.as_str())];
        let answer = send(&window, Method::GET, "/act", &fields, &act).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        let other = act.replace("\"confirm\":\"ann\"", "\"confirm\":\"ben\"");
        let refused = post(&window, "/act", &key, &other).await.status();
        assert_eq!(refused, if operates { 400 } else { 403 });
    }
}

#[tokio::test]
async fn bodies_are_for_windows_with_that_right() {
    let nowhere = tempfile::tempdir().unwrap();
    let look = r#"{"watch":{"id":1,"bodies":true}}"#;
    for (bodies, status) in [(false, 403), (true, 200)] {
        let source = Source::Platform {
            directory: nowhere.path().to_owned(),
            rights: Rights {
                bodies,
                ..Rights::default()
            },
        };
        let window = Window::new(source, WindowAddress::loopback(), 7000);
        let key = entered(&window).await;
        let answer = post(&window, "/stream", &key, look).await;
        assert_eq!(answer.status(), status);
        if !bodies {
            let why = said(answer).await["error"].to_string();
            assert!(why.contains("--bodies"), "{why}");
        }
    }
}

#[tokio::test]
async fn silent_connections_make_room_and_one_with_a_session_stays() {
    let window = window();
    let key = entered(&window).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(window.clone().serve(listener));
    let request = |path: &str, key: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:7000\r\nsealbus-session: {key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut page = TcpStream::connect(address).await.unwrap();
    let look = request("/stream", &key, "{}");
    page.write_all(look.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    page.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");

    let mut silent = Vec::new();
    for _ in 0..2 * CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // The first of them have made room, the page has not.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
    let mut newcomer = TcpStream::connect(address).await.unwrap();
    let ask = request("/ask", &key, "{}");
    newcomer.write_all(ask.as_bytes()).await.unwrap();
    newcomer.read_exact(&mut status).await.unwrap();
    page.read_exact(&mut [0; 8]).await.unwrap();
    serving.abort();
}
