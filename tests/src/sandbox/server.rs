//! A small HTTP/1.1 server whose every byte a test controls.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    pub head: String,
    pub body: Vec<u8>,
}

type Answer = Pin<Box<dyn Future<Output = ()> + Send>>;
type Handler = dyn Fn(Request, Connection) -> Answer + Send + Sync;

/// The side of a connection that answers.
#[derive(Clone)]
pub struct Connection(Arc<tokio::sync::Mutex<OwnedWriteHalf>>);

impl Connection {
    /// Writes bytes; a client that is gone is no error here.
    pub async fn write(&self, bytes: &[u8]) -> bool {
        let mut half = self.0.lock().await;
        half.write_all(bytes).await.is_ok() && half.flush().await.is_ok()
    }

    /// Ends the connection.
    pub async fn close(&self) {
        let _ = self.0.lock().await.shutdown().await;
    }

    /// A whole answer.
    pub async fn answer(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        self.write(
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
                .as_bytes(),
        )
        .await;
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    pub requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn heads(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|request| request.head.clone())
            .collect()
    }

    /// Serves until the runtime ends.
    pub async fn start<F, A>(handler: F) -> Self
    where
        F: Fn(Request, Connection) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let handler: Arc<Handler> =
            Arc::new(move |request, connection| Box::pin(handler(request, connection)));
        let (connections, requests) = (
            Arc::clone(&server.connections),
            Arc::clone(&server.requests),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&handler), Arc::clone(&requests)));
            }
        });
        server
    }

    /// One that answers 200 after a while.
    pub async fn slow(milliseconds: u64) -> Self {
        Self::start(move |_, connection| async move {
            tokio::time::sleep(std::time::Duration::from_millis(milliseconds)).await;
            connection.answer("200 OK", "", "fine").await;
        })
        .await
    }
}

async fn serve(stream: TcpStream, handler: Arc<Handler>, requests: Arc<Mutex<Vec<Request>>>) {
    stream.set_nodelay(true).unwrap();
    let (read, write) = stream.into_split();
    let mut read = BufReader::new(read);
    let connection = Connection(Arc::new(tokio::sync::Mutex::new(write)));
    while let Some(request) = read_request(&mut read).await {
        requests.lock().unwrap().push(request.clone());
        handler(request, connection.clone()).await;
    }
}

async fn read_request(read: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if read.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let mut body = Vec::new();
    if let Some(length) = header("content-length") {
        body.resize(length.parse().ok()?, 0);
        read.read_exact(&mut body).await.ok()?;
    } else if header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            read.read_line(&mut size).await.ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            read.read_exact(&mut chunk).await.ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Some(Request { head, body })
}
