//! The client against real servers: what a guest learns, and how connections are made.

use super::*;
use crate::wasm::call::tests::Counting;
use http_body_util::{Empty, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::net::TcpListener;

/// A server that answers every request with its HTTP version, over TLS if it is given a configuration.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(tls: Option<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
        };
        let connections = Arc::clone(&server.connections);
        let tls = tls.map(|config| tokio_rustls::TlsAcceptor::from(Arc::new(config)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, SeqCst);
                match tls.clone() {
                    None => drop(tokio::spawn(serve(stream))),
                    Some(tls) => drop(tokio::spawn(async move {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream).await;
                        }
                    })),
                }
            }
        });
        server
    }
}

async fn serve(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) {
    let answer = service_fn(async |request: http::Request<hyper::body::Incoming>| {
        if request.uri().path() == "/slow" {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let body = format!("{:?} {}", request.version(), request.uri().path());
        Ok::<_, hyper::Error>(http::Response::new(Full::<bytes::Bytes>::from(body)))
    });
    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}

/// A root and a server's certificate for `api.test`, signed by it.
struct Certificates {
    ca_file: PathBuf,
    _folder: tempfile::TempDir,
    server: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Certificates {
    fn new() -> Self {
        let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let root = ca.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
        let server = params.signed_by(&key, &issuer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, root.pem()).unwrap();
        Self {
            ca_file,
            _folder: folder,
            server,
            key,
        }
    }

    fn server(&self, protocols: &[&str]) -> rustls::ServerConfig {
        let key = rustls::pki_types::PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.server.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config
    }
}

/// Takes every name to these addresses.
#[derive(Debug)]
struct Always(Vec<IpAddr>);

impl Resolver for Always {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

fn client(sandbox: &SandboxConfig) -> Arc<Client> {
    let allow = Arc::new(AllowList::parse(&sandbox.allow_hosts).unwrap());
    let plan = ClientPlan::new(allow, sandbox).unwrap();
    Client::new("test".into(), &plan, sandbox)
}

fn sandbox(hosts: &[&str]) -> SandboxConfig {
    SandboxConfig {
        allow_hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        resolver: Arc::new(Always(vec!["127.0.0.1".parse().unwrap()])),
        ..SandboxConfig::default()
    }
}

fn request(uri: &str) -> http::Request<WasiBody> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    http::Request::get(uri)
        .header("host", "ignored")
        .body(body)
        .unwrap()
}

async fn send(client: &Arc<Client>, request: http::Request<WasiBody>) -> Result<String, HttpError> {
    send_with(client, request, None).await
}

async fn send_with(
    client: &Arc<Client>,
    request: http::Request<WasiBody>,
    options: Option<RequestOptions>,
) -> Result<String, HttpError> {
    let turns = Arc::new(Semaphore::new(1));
    let call = Call::test_with(Arc::new(Counting::default()));
    let sent = Arc::clone(client)
        .send(request, options, call, turns)
        .await?;
    let body = sent.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// There are as many of them as calls in flight, and they are moved on the stacks of guests' calls.
#[test]
fn a_request_under_way_is_small() {
    let client = client(&sandbox(&["http://api.test"]));
    let call = Call::test_with(Arc::new(Counting::default()));
    let turns = Arc::new(Semaphore::new(1));
    let sending = client.send(request("http://api.test/"), None, call, turns);
    assert!(size_of_val(&sending) <= 1024, "{}", size_of_val(&sending));
}

#[tokio::test]
async fn https_is_verified_and_speaks_both_protocols() {
    let certificates = Certificates::new();
    for (protocols, spoken, most) in [
        (&["h2", "http/1.1"][..], "HTTP/2.0 /x", 1),
        (&["http/1.1"], "HTTP/1.1 /x", 20),
        (&[], "HTTP/1.1 /x", 20),
    ] {
        let server = Server::start(Some(certificates.server(protocols))).await;
        let port = server.address.port();
        let uri = format!("https://api.test:{port}/x");
        let trusting = SandboxConfig {
            ca_file: Some(certificates.ca_file.clone()),
            ..sandbox(&[
                &format!("https://api.test:{port}"),
                &format!("https://other.test:{port}"),
                "127.0.0.1/32",
            ])
        };
        let client = client(&trusting);
        let mut tasks = Vec::new();
        for _ in 0..20 {
            let (client, uri) = (Arc::clone(&client), uri.clone());
            tasks.push(tokio::spawn(async move {
                send(&client, request(&uri)).await.unwrap()
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), spoken, "{protocols:?}");
        }
        let connections = server.connections.load(SeqCst);
        assert!(
            (1..=most).contains(&connections),
            "{connections} for {protocols:?}"
        );

        let other = send(&client, request(&format!("https://other.test:{port}/"))).await;
        assert!(
            matches!(other, Err(HttpError::TlsCertificateError)),
            "a certificate is for its names: {other:?}"
        );
        let untrusting = self::client(&SandboxConfig {
            ca_file: None,
            ..trusting
        });
        let unknown = send(&untrusting, request(&uri)).await;
        assert!(
            matches!(unknown, Err(HttpError::TlsCertificateError)),
            "{unknown:?}"
        );
    }
}

#[tokio::test]
async fn a_guest_learns_what_is_wrong() {
    let server = Server::start(None).await;
    let port = server.address.port();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let here = format!("http://127.0.0.1:{port}");
    let client = client(&sandbox(&[
        &here,
        "http://api.test:*",
        &format!("http://127.0.0.1:{closed}"),
        &format!("https://127.0.0.1:{port}"),
    ]));

    assert_eq!(send(&client, request(&here)).await.unwrap(), "HTTP/1.1 /");
    let learned = async |uri: &str| format!("{:?}", send(&client, request(uri)).await.unwrap_err());
    for (uri, code) in [
        ("http://127.0.0.2:1/".to_owned(), "HttpRequestDenied"),
        ("http://other.test/".to_owned(), "HttpRequestDenied"),
        ("http://api.test/".to_owned(), "DestinationIpProhibited"),
        (
            format!("http://user@127.0.0.1:{port}/"),
            "HttpRequestUriInvalid",
        ),
        (format!("http://127.0.0.1:{closed}/"), "ConnectionRefused"),
        (format!("https://127.0.0.1:{port}/"), "TlsProtocolError"),
    ] {
        assert_eq!(learned(&uri).await, code, "{uri}");
    }
    let mut tunnel = request(&here);
    *tunnel.method_mut() = http::Method::CONNECT;
    assert!(matches!(
        send(&client, tunnel).await,
        Err(HttpError::HttpRequestMethodInvalid)
    ));
}

#[tokio::test]
async fn a_guests_own_timeouts_hold() {
    let server = Server::start(None).await;
    let here = format!("http://{}", server.address);
    let client = client(&sandbox(&[&here]));
    let options = |first_byte_timeout| {
        Some(RequestOptions {
            first_byte_timeout: Some(first_byte_timeout),
            ..RequestOptions::default()
        })
    };
    let slow = format!("{here}/slow");
    let late = send_with(&client, request(&slow), options(Duration::from_millis(50))).await;
    assert!(
        matches!(late, Err(HttpError::ConnectionReadTimeout)),
        "{late:?}"
    );
    let in_time = send_with(&client, request(&slow), options(Duration::from_secs(5))).await;
    assert_eq!(in_time.unwrap(), "HTTP/1.1 /slow");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    // Taken by the system, and never accepted from.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let waiting = SandboxConfig {
        connect_timeout: Duration::from_millis(100),
        ..sandbox(&[&format!("https://127.0.0.1:{port}")])
    };
    let late = send(
        &client(&waiting),
        request(&format!("https://127.0.0.1:{port}/")),
    )
    .await;
    assert!(
        matches!(late, Err(HttpError::ConnectionTimeout)),
        "the TLS handshake counts: {late:?}"
    );
}

/// Finds no name.
#[derive(Debug)]
struct Never;

impl Resolver for Never {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'a>> {
        Box::pin(std::future::ready(Err(std::io::Error::other("not found"))))
    }
}

#[test]
fn failures_are_said_once_without_secrets_and_hide_no_denial() {
    let lines = crate::wasm::log_capture::Lines::default();
    tracing::subscriber::with_default(lines.subscriber(), || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = client(&SandboxConfig {
                resolver: Arc::new(Never),
                config: vec![crate::wasm::ConfigValue {
                    key: "token".into(),
                    value: "S3CR3T-token".into(),
                    secret: true,
                }],
                ..sandbox(&["*.test"])
            });
            for _ in 0..3 {
                let _ = send(&client, request("http://s3cr3t-token.x.test/")).await;
            }
            for number in 0..200 {
                let _ = send(&client, request(&format!("http://host-{number}.test/"))).await;
            }
            let _ = send(&client, request("http://elsewhere.example/")).await;
        });
    });
    let lines = lines.take();
    assert_eq!(
        lines[0],
        "[test] cannot look up (secret token).x.test: not found"
    );
    assert_eq!(lines.len(), SAID + 2, "{lines:?}");
    assert!(lines[SAID].contains("no more of it is shown"), "{lines:?}");
    assert!(lines[SAID + 1].contains("may not reach http://elsewhere.example"));
}

#[test]
fn denials_are_said_once_with_the_entry_that_helps() {
    let lines = crate::wasm::log_capture::Lines::default();
    tracing::subscriber::with_default(lines.subscriber(), || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = client(&sandbox(&["http://api.test"]));
            for _ in 0..3 {
                let _ = send(&client, request("http://127.0.0.1:8080/")).await;
                let _ = send(&client, request("http://api.test/")).await;
            }
            for number in 0..200 {
                let _ = send(&client, request(&format!("http://host-{number}.test/"))).await;
            }
        });
    });
    let lines = lines.take();
    assert_eq!(
        lines[..2],
        [
            "[test] the plugin may not reach http://127.0.0.1:8080; add \"http://127.0.0.1:8080\" to allow_hosts to allow it",
            "[test] the plugin may not reach http://api.test: it is at 127.0.0.1, a loopback address; \
             add \"http://127.0.0.1\" to allow_hosts to allow it",
        ]
    );
    assert_eq!(lines.len(), SAID + 1, "a flood of denials is cut short");
}
