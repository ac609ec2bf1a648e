//! The server over a real connection.

use super::*;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

type TestClient = Client<HttpConnector, Full<Bytes>>;

fn client() -> TestClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// A server without latency; options as on the command line, without their dashes.
async fn server(settings: &[&str]) -> Server {
    let mut options = Options::default();
    for setting in ["overhead-ms=0", "per-item-ms=0"].iter().chain(settings) {
        let change: Change = format!("0:{setting}").parse().unwrap();
        options.changes.push(change);
    }
    Server::start(options).await.unwrap()
}

async fn send(
    client: &TestClient,
    server: &Server,
    method: &str,
    path: &str,
    body: impl Into<Bytes>,
) -> Result<Response<String>, hyper_util::client::legacy::Error> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", server.base_url))
        .body(Full::new(body.into()))
        .unwrap();
    let (head, body) = client.request(request).await?.into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
    Ok(Response::from_parts(head, text))
}

async fn post(server: &Server, body: impl Into<Bytes>) -> Response<String> {
    send(&client(), server, "POST", "/items", body)
        .await
        .unwrap()
}

async fn get(server: &Server, path: &str) -> String {
    send(&client(), server, "GET", path, "")
        .await
        .unwrap()
        .into_body()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A batch of keys k0, k1, ...
fn batch(items: usize) -> String {
    let rows: Vec<Value> = (0..items)
        .map(|k| json!({ "key": format!("k{k}"), "data": "x" }))
        .collect();
    Value::from(rows).to_string()
}

/// Waits for what another task does; fails after a time that no machine needs.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn answers_have_status_body_and_headers() {
    let bad = ["bad-key=k1", "bad-mode=207"];
    for (settings, body, status, answer) in [
        (&[] as &[&str], batch(3), 200, r#"{"written":3}"#),
        (
            &[],
            "{\"key\":1}\n{\"key\":true}\n".to_owned(),
            200,
            r#"{"written":2}"#,
        ),
        (&[], "[]".to_owned(), 200, r#"{"written":0}"#),
        (
            &[],
            "[{}]".to_owned(),
            400,
            r#"{"error":"line 1, column 3: not an object with one \"key\" that is text, a number or a boolean"}"#,
        ),
        (
            &["max-batch=2"],
            batch(3),
            413,
            r#"{"error":"3 items in a batch, at most 2 are allowed"}"#,
        ),
        (
            &["bad-key=k1"],
            batch(2),
            422,
            r#"{"error":"row k1: bad value"}"#,
        ),
        (
            &bad,
            batch(2),
            207,
            r#"{"items":[{"key":"k0","status":200},{"key":"k1","message":"bad row","status":422}]}"#,
        ),
        (
            &["status=503"],
            batch(1),
            503,
            r#"{"error":"the server answers every request with this status"}"#,
        ),
        (
            &["fail-every=1"],
            batch(1),
            500,
            r#"{"error":"the server fails every so often"}"#,
        ),
    ] {
        let server = server(settings).await;
        let response = post(&server, body).await;
        assert_eq!(response.status(), status, "{settings:?}");
        let as_json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(as_json(response.body()), as_json(answer), "{settings:?}");
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(
            response.headers().contains_key("retry-after"),
            status == 503
        );
        let entry = server.log()[0];
        assert_eq!((entry.status, entry.in_flight), (status, 1));
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_and_not_counted() {
    let server = server(&[]).await;
    for (method, path, status) in [
        ("GET", "/", 404),
        ("POST", "/item", 404),
        ("GET", "/items", 405),
        ("POST", "/stats", 405),
        ("DELETE", "/keys", 405),
        ("GET", "/log?since=1", 200),
    ] {
        let response = send(&client(), &server, method, path, "").await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
    }
    assert_eq!(server.stats().requests, 0);
}

#[tokio::test]
async fn stats_log_and_keys_tell_what_happened() {
    let server = server(&["max-batch=2000"]).await;
    post(&server, batch(1500)).await;
    post(&server, batch(2)).await;
    post(&server, batch(2001)).await;
    let stats: Value = serde_json::from_str(&get(&server, "/stats").await).unwrap();
    let expected = json!({"requests": 3, "max_in_flight": 1, "stored": 1502, "distinct": 1500,
        "duplicates": 2, "rejected_429": 0, "rejected_413": 1});
    assert_eq!(stats, expected);

    let keys = lines(&get(&server, "/keys").await);
    assert_eq!(keys.len(), 1500);
    assert_eq!(keys[1], json!({"key": "k1", "times": 2}));
    assert_eq!(keys[1499], json!({"key": "k1499", "times": 1}));

    let log = lines(&get(&server, "/log").await);
    let field = |name: &str| log.iter().map(|e| e[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("items"), [1500, 2, 2001]);
    assert_eq!(field("in_flight"), [1, 1, 1]);
    assert_eq!(field("status"), [200, 200, 413]);
    assert!(
        log.is_sorted_by_key(|e| e["t"].as_f64().unwrap().to_bits()),
        "{log:?}"
    );
    assert!(
        log.iter()
            .all(|e| e["ms"].as_f64().unwrap() >= 0.0 && e.as_object().unwrap().len() == 5)
    );
}

#[tokio::test]
async fn no_second_holds_more_requests_than_allowed() {
    let server = server(&["max-per-sec=3", "reject-status=503", "retry-after=7"]).await;
    let mut refused = 0;
    for _ in 0..10 {
        let response = post(&server, batch(1)).await;
        if response.status() == 503 {
            refused += 1;
            assert_eq!(response.headers()["retry-after"], "7");
        }
    }
    let log = server.log();
    let accepted: Vec<f64> = log
        .iter()
        .filter(|e| e.status == 200)
        .map(|e| e.t)
        .collect();
    // The window counts from the reading of the body, the log from the head before it.
    assert!(
        accepted.windows(4).all(|w| w[3] - w[0] > 0.5),
        "{accepted:?}"
    );
    assert!(accepted.len() >= 3 && refused > 0, "{log:?}");
    let stats = server.stats();
    assert_eq!((stats.rejected_429, stats.stored), (refused, 10 - refused));
}

#[tokio::test]
async fn requests_in_flight_are_counted_and_slow_each_other_by_the_formula() {
    let settings = [
        "overhead-ms=200",
        "per-item-ms=5",
        "knee=2",
        "slope=0.5",
        "sigma=0.2",
        "seed=5",
    ];
    let server = server(&settings).await;
    let client = client();
    let mut requests = JoinSet::new();
    for _ in 0..6 {
        let (client, url) = (client.clone(), format!("{}/items", server.base_url));
        requests.spawn(async move {
            let request = Request::post(url).body(Full::from(batch(2))).unwrap();
            client.request(request).await.unwrap().status()
        });
    }
    until("6 in flight", || server.stats().max_in_flight == 6).await;
    assert_eq!(
        server.stats().stored,
        0,
        "nothing is stored before its time"
    );
    assert!(
        server.log().iter().all(|e| e.status == 0),
        "nothing is answered yet"
    );
    assert!(
        requests
            .join_all()
            .await
            .iter()
            .all(|status| *status == 200)
    );

    let model = Behaviour {
        overhead_ms: 200.0,
        per_item_ms: 5.0,
        knee: Some(2),
        slope: 0.5,
        sigma: 0.2,
        seed: 5,
        ..Behaviour::default()
    };
    let log = server.log();
    let active: Vec<u32> = log.iter().map(|e| e.in_flight).collect();
    assert_eq!(active, [1, 2, 3, 4, 5, 6]);
    for (number, entry) in (1..).zip(&log) {
        let least = model.latency(2, entry.in_flight, number).as_secs_f64() * 1e3;
        assert!(
            entry.ms >= least - 0.01 && entry.ms < 5.0 * least + 1000.0,
            "{least} {entry:?}"
        );
    }
}

#[tokio::test]
async fn items_are_stored_though_the_client_is_gone() {
    let server = server(&["overhead-ms=300"]).await;
    let address = server.base_url.trim_start_matches("http://").to_owned();
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let body = batch(3);
    let request = format!(
        "POST /items HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the batch was read", || {
        server.log().first().is_some_and(|e| e.items == 3)
    })
    .await;
    assert_eq!(server.stats().stored, 0);
    drop(stream);
    until("stored", || server.stats().stored == 3).await;
    until("answered", || server.log()[0].status == 200).await;

    // Half a request stores nothing, and is no longer in flight.
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    stream
        .write_all(&request.as_bytes()[..request.len() - 5])
        .await
        .unwrap();
    until("arrived", || server.log().len() == 2).await;
    drop(stream);
    post(&server, batch(1)).await;
    let ends: Vec<u16> = server.log().iter().map(|e| e.status).collect();
    assert_eq!(ends, [200, 0, 200]);
    assert_eq!(server.stats().stored, 4);
}

#[tokio::test]
async fn a_dropped_request_is_stored_but_not_answered() {
    let server = server(&["drop-every=2"]).await;
    let client = client();
    send(&client, &server, "POST", "/items", batch(1))
        .await
        .unwrap();
    send(&client, &server, "POST", "/items", batch(1))
        .await
        .unwrap_err();
    send(&client, &server, "POST", "/items", batch(1))
        .await
        .unwrap();
    assert_eq!(server.stats().stored, 3);
    assert_eq!(
        server.log().iter().map(|e| e.status).collect::<Vec<_>>(),
        [200, 0, 200]
    );
}

#[tokio::test]
async fn http2_with_prior_knowledge_carries_many_requests_on_one_connection() {
    let server = server(&["overhead-ms=600"]).await;
    let client: TestClient = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let mut requests = JoinSet::new();
    for _ in 0..500 {
        let (client, url) = (client.clone(), format!("{}/items", server.base_url));
        requests.spawn(async move {
            let request = Request::post(url)
                .body(Full::from("[{\"key\":1}]"))
                .unwrap();
            let response = client.request(request).await.unwrap();
            (response.version(), response.status().as_u16())
        });
    }
    let answers = requests.join_all().await;
    assert!(answers.iter().all(|a| *a == (http::Version::HTTP_2, 200)));
    assert_eq!(server.stats().stored, 500);
    assert!(server.stats().max_in_flight > 200, "{:?}", server.stats());
}

#[tokio::test]
async fn large_bodies_are_taken_up_to_the_limit() {
    let server = server(&[]).await;
    let row = format!(
        "{{\"key\":\"k\",\"data\":\"{}\"}}\n",
        "x".repeat((1 << 20) - 25)
    );
    let largest = row.repeat(64);
    assert!(largest.len() <= answer::MAX_BODY && largest.len() > answer::MAX_BODY - 1000);
    assert_eq!(
        post(&server, largest.clone()).await.body(),
        r#"{"written":64}"#
    );
    let response = post(&server, largest + &row).await;
    assert_eq!(response.status(), 413);
    assert_eq!(
        response.body(),
        r#"{"error":"the body is larger than 67108864 bytes"}"#
    );
    assert_eq!(server.stats().rejected_413, 1);
}

#[tokio::test]
async fn start_and_shutdown() {
    let server = server(&[]).await;
    assert!(
        server.base_url.starts_with("http://127.0.0.1:"),
        "{}",
        server.base_url
    );
    let address = server.base_url.trim_start_matches("http://").to_owned();
    let taken = Options {
        listen: address.parse().unwrap(),
        ..Options::default()
    };
    let error = Server::start(taken).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot listen on {address}: ")),
        "{error}"
    );
    server.shutdown().await;
    tokio::net::TcpStream::connect(&address).await.unwrap_err();
}
