//! Makes connections: to addresses that the allow list lets through, and to no other.
//!
//! Invariant: an address is checked where it is connected to, so no name, redirect or second
//! look-up leads around the check.

use super::allow::{AllowList, Denied};
use super::resolve::Resolver;
use super::target::{Scheme, Target, TargetHost};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tower_service::Service;
use wasmtime_wasi_http::Error as HttpError;

/// A connection's two ends meet here, encrypted or not. Boxed, so that a plain one does not take the room of the other.
pub(super) type Io = Box<dyn Stream>;

pub(super) trait Stream: hyper::rt::Read + hyper::rt::Write + Send + Unpin {}

impl<T: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Stream for T {}

/// A connection that was made.
pub(super) struct Connected {
    pub(super) io: Io,
    /// Whether the server chose HTTP/2.
    pub(super) http2: bool,
}

/// Makes connections for one job.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: Tcp,
    tls: HttpsConnector<Tcp>,
    timeout: Duration,
}

/// The roots of `ca_file` cannot be used.
#[derive(Debug, Error)]
#[error("ca_file: {}: {problem}", path.display())]
pub struct CaError {
    path: PathBuf,
    problem: String,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("cannot look up {name}: {problem}")]
    Lookup { name: String, problem: io::Error },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("cannot connect to {address}: {problem}")]
    Tcp {
        address: SocketAddr,
        problem: io::Error,
    },
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("{0}")]
    Handshake(hyper::Error),
    #[error("no connection within {} s (connect_timeout)", .0.as_secs_f64())]
    Timeout(Duration),
}

impl Connector {
    pub(super) fn new(
        allow: Arc<AllowList>,
        resolver: Arc<dyn Resolver>,
        timeout: Duration,
        ca_file: Option<&Path>,
    ) -> Result<Self, CaError> {
        let tcp = Tcp { allow, resolver };
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(ca_file)?)
            .https_only()
            .enable_all_versions()
            .wrap_connector(tcp.clone());
        Ok(Self { tcp, tls, timeout })
    }

    /// The time for a connection: a guest's own can only be shorter.
    pub(super) fn timeout(&self, own: Option<Duration>) -> Duration {
        own.map_or(self.timeout, |own| own.min(self.timeout))
    }

    /// A connection to a target that the allow list lets through by name.
    pub(super) async fn connect(
        &self,
        target: &Target,
        timeout: Option<Duration>,
    ) -> Result<Connected, ConnectError> {
        let timeout = self.timeout(timeout);
        let connecting = async {
            match target.scheme {
                Scheme::Http => self.tcp.connect(target).await.map(|io| Connected {
                    io: Box::new(io),
                    http2: false,
                }),
                Scheme::Https => self.connect_tls(target).await,
            }
        };
        tokio::time::timeout(timeout, connecting)
            .await
            .unwrap_or(Err(ConnectError::Timeout(timeout)))
    }

    async fn connect_tls(&self, target: &Target) -> Result<Connected, ConnectError> {
        match self.tls.clone().call(target.uri()).await {
            Ok(io) => Ok(Connected {
                http2: io.connected().is_negotiated_h2(),
                io: Box::new(io),
            }),
            Err(error) => Err(match error.downcast::<ConnectError>() {
                Ok(own) => *own,
                // What is not ours is the handshake's.
                Err(other) => ConnectError::Tls(match other.downcast::<io::Error>() {
                    Ok(error) => *error,
                    Err(other) => io::Error::other(other.to_string()),
                }),
            }),
        }
    }
}

impl ConnectError {
    /// The same as a guest sees it.
    pub(super) fn to_guest(&self) -> HttpError {
        match self {
            Self::Denied(Denied::Host { .. }) => HttpError::HttpRequestDenied,
            Self::Denied(Denied::Address { .. }) => HttpError::DestinationIpProhibited,
            Self::Lookup { problem, .. } => HttpError::DnsError {
                rcode: Some(problem.to_string()),
                info_code: None,
            },
            Self::NoAddress(_) => HttpError::DestinationNotFound,
            Self::Tcp { problem, .. } => match problem.kind() {
                io::ErrorKind::ConnectionRefused => HttpError::ConnectionRefused,
                io::ErrorKind::TimedOut => HttpError::ConnectionTimeout,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    HttpError::DestinationUnavailable
                }
                _ => HttpError::ConnectionTerminated,
            },
            Self::Tls(problem) => match tls_error(problem) {
                Some(
                    rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented,
                ) => HttpError::TlsCertificateError,
                Some(rustls::Error::AlertReceived(alert)) => HttpError::TlsAlertReceived {
                    alert_id: Some(u8::from(*alert)),
                    alert_message: Some(format!("{alert:?}")),
                },
                _ => HttpError::TlsProtocolError,
            },
            Self::Handshake(_) => HttpError::HttpProtocolError,
            Self::Timeout(_) => HttpError::ConnectionTimeout,
        }
    }
}

/// The TLS error inside an I/O error, however deep.
fn tls_error(problem: &io::Error) -> Option<&rustls::Error> {
    let inner = problem.get_ref()?;
    inner
        .downcast_ref()
        .or_else(|| tls_error(inner.downcast_ref()?))
}

fn tls_config(ca_file: Option<&Path>) -> Result<rustls::ClientConfig, CaError> {
    let mut roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    if let Some(path) = ca_file {
        let error = |problem: String| CaError {
            path: path.to_owned(),
            problem,
        };
        let file = crate::regular::open(path)
            .map_err(|problem| error(format!("cannot be read: {problem}")))?;
        let certificates = CertificateDer::pem_reader_iter(file);
        let mut found = 0;
        for certificate in certificates {
            let certificate = certificate.map_err(|problem| error(pem(problem)))?;
            roots
                .add(certificate)
                .map_err(|problem| error(format!("certificate {}: {problem}", found + 1)))?;
            found += 1;
        }
        if found == 0 {
            return Err(error(
                "holds no certificate; it must be in PEM form".to_owned(),
            ));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions");
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn pem(problem: rustls::pki_types::pem::Error) -> String {
    match problem {
        rustls::pki_types::pem::Error::Io(problem) => format!("cannot be read: {problem}"),
        problem => format!("is not in PEM form: {problem}"),
    }
}

/// The TCP part.
#[derive(Clone)]
struct Tcp {
    allow: Arc<AllowList>,
    resolver: Arc<dyn Resolver>,
}

impl Tcp {
    async fn connect(&self, target: &Target) -> Result<TokioIo<TcpStream>, ConnectError> {
        let addresses = match &target.host {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => {
                let found = self.resolver.resolve(name).await;
                found.map_err(|problem| ConnectError::Lookup {
                    name: name.clone(),
                    problem,
                })?
            }
        };
        let mut failed = ConnectError::NoAddress(target.host.to_string());
        for address in addresses {
            match self.try_address(target, address).await {
                Ok(stream) => return Ok(TokioIo::new(stream)),
                // That one of several addresses is closed to us says more than that another does not answer.
                Err(error) if !matches!(failed, ConnectError::Denied(_)) => failed = error,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    async fn try_address(
        &self,
        target: &Target,
        address: IpAddr,
    ) -> Result<TcpStream, ConnectError> {
        self.allow.check_address(target, address)?;
        let address = SocketAddr::new(address, target.port);
        let tcp = |problem| ConnectError::Tcp { address, problem };
        let connecting = TcpStream::connect(address);
        let stream = match tokio::time::timeout(NEXT_ADDRESS, connecting).await {
            Ok(stream) => stream.map_err(tcp)?,
            Err(_) => return Err(tcp(io::ErrorKind::TimedOut.into())),
        };
        // Requests are written whole; waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

/// Time for one address of several before the next is tried.
const NEXT_ADDRESS: Duration = Duration::from_secs(5);

impl Service<http::Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let tcp = self.clone();
        Box::pin(async move {
            let target = Target::of(&uri).expect("the client asks for targets alone");
            tcp.connect(&target).await
        })
    }
}
