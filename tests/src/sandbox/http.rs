//! The one client of a job: its connections, its clocks, and what it sees and counts.

use super::server::Server;
use super::*;
use batchgate_policy::outcome::CallEnd;
use std::sync::atomic::AtomicBool;

fn allowing(server: &Server) -> SandboxConfig {
    SandboxConfig {
        allow_hosts: vec![server.url()],
        ..SandboxConfig::default()
    }
}

fn get(url: &str) -> String {
    serde_json::json!({"do": "get", "url": url}).to_string()
}

/// 1,000 requests from 16 slots.
#[test]
fn connections_are_kept_and_shared() {
    block_on(async {
        let server = Server::start(|request, connection| async move {
            // Long and short answers, and some that come in pieces.
            let body = "x".repeat(request.head.len() % 7 * 5000);
            connection.answer("200 OK", "", &body).await;
        })
        .await;
        let plugin = Arc::new(plugin("scripted", &allowing(&server)));
        let mut tasks = Vec::new();
        for number in 0..16 {
            let (plugin, url) = (Arc::clone(&plugin), server.url());
            tasks.push(tokio::spawn(async move {
                let mut slot = plugin.start_slot(number).await.unwrap();
                for n in 0..63 {
                    let report =
                        call(&mut slot, &get(&format!("{url}/{}", "p".repeat(n % 9)))).await;
                    assert!(format!("{:?}", report.end).contains("200"), "{report:?}");
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(server.heads().len(), 16 * 63);
        let connections = server.connections.load(SeqCst);
        assert!((1..=16).contains(&connections), "{connections} connections");
    });
}

#[test]
fn a_host_has_its_most_connections_and_idle_ones_are_closed() {
    block_on(async {
        let server = Server::slow(30).await;
        let sandbox = SandboxConfig {
            max_connections_per_host: 2,
            idle_timeout: Duration::from_millis(200),
            ..allowing(&server)
        };
        let plugin = Arc::new(plugin("scripted", &sandbox));
        let round = async || {
            let mut tasks = Vec::new();
            for number in 0..8 {
                let (plugin, script) = (Arc::clone(&plugin), get(&server.url()));
                tasks.push(tokio::spawn(async move {
                    let mut slot = plugin.start_slot(number).await.unwrap();
                    call(&mut slot, &script).await.end
                }));
            }
            for task in tasks {
                let end = task.await.unwrap();
                assert!(format!("{end:?}").contains("fine"), "{end:?}");
            }
        };
        round().await;
        assert_eq!(server.connections.load(SeqCst), 2);
        tokio::time::sleep(Duration::from_millis(800)).await;
        round().await;
        assert_eq!(
            server.connections.load(SeqCst),
            4,
            "the idle ones were closed"
        );
    });
}

/// A server that closes a connection that it was expected to keep costs no request.
#[test]
fn a_connection_that_its_server_closed_is_replaced() {
    block_on(async {
        let server = Server::start(|_, connection| async move {
            connection.answer("200 OK", "", "fine").await;
            connection.close().await;
        })
        .await;
        let mut slot = slot("scripted", &allowing(&server)).await;
        for _ in 0..20 {
            let end = call(&mut slot, &get(&server.url())).await.end;
            assert!(format!("{end:?}").contains("fine"), "{end:?}");
        }
    });
}

/// A guest calls all of these a failure; the host knows which of its requests may have been carried out.
#[test]
fn what_was_sent_and_not_answered_is_known() {
    for guest in ["scripted", "scripted_async"] {
        block_on(unanswered_by(guest));
    }
}

async fn unanswered_by(guest: &str) {
    for (head, unanswered) in [
        ("", true),
        ("HTTP/1.1 20", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine", false),
        ("HTTP/1.1 503 Later\r\ncontent-length: 0\r\n\r\n", false),
    ] {
        let server = Server::start(move |_, connection| async move {
            connection.write(head.as_bytes()).await;
            connection.close().await;
        })
        .await;
        let report = call(
            &mut slot(guest, &allowing(&server)).await,
            &get(&server.url()),
        )
        .await;
        assert_eq!(report.unanswered, unanswered, "{head:?}: {report:?}");
    }
    // Nobody listens: nothing was sent.
    let server = Server::start(|_, _| async {}).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let sandbox = SandboxConfig {
        allow_hosts: vec![url.clone()],
        ..allowing(&server)
    };
    let report = call(&mut slot(guest, &sandbox).await, &get(&url)).await;
    assert!(!report.unanswered, "{report:?}");
}

/// It only waits, so that it costs the tests beside it nothing.
#[test]
fn an_answer_after_30_s_is_no_compute() {
    block_on(async {
        let server = Server::slow(30_000).await;
        let sandbox = SandboxConfig {
            cpu_timeout: Duration::from_secs(1),
            ..allowing(&server)
        };
        let report = call(&mut slot("scripted", &sandbox).await, &get(&server.url())).await;
        assert!(format!("{:?}", report.end).contains("fine"), "{report:?}");
        assert!(report.elapsed >= Duration::from_secs(30), "{report:?}");
    });
}

#[test]
fn a_response_that_drips_ends_with_the_call() {
    block_on(async {
        let server = Server::start(|_, connection| async move {
            connection
                .write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                .await;
            while connection.write(b"x").await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let sandbox = SandboxConfig {
            call_timeout: Duration::from_millis(700),
            ..allowing(&server)
        };
        let report = call(&mut slot("scripted", &sandbox).await, &get(&server.url())).await;
        assert_eq!(
            report.end,
            CallEnd::TimedOut("call_timeout of 0.7 s exceeded".to_owned())
        );
        assert!(report.dead);
    });
}

/// `scope = "http"`: the wait for permission is on no clock.
#[test]
fn waits_for_permission_are_charged_to_nobody() {
    block_on(async {
        let server = Server::slow(50).await;
        let sandbox = SandboxConfig {
            call_timeout: Duration::from_millis(600),
            ..allowing(&server)
        };
        let services = Arc::new(Services {
            wait_ms: 900,
            ..Services::default()
        });
        let plugin = plugin_with(load(&guest("scripted"), &sandbox), Arc::clone(&services));
        let mut slot = plugin.start_slot(0).await.unwrap();
        let report = call(&mut slot, &get(&server.url())).await;
        assert!(format!("{:?}", report.end).contains("fine"), "{report:?}");
        assert!(report.elapsed < Duration::from_millis(600), "{report:?}");
        assert_eq!(services.requests.load(SeqCst), 1);
    });
}

#[test]
fn breaches_are_seen_on_the_wire_once_a_call() {
    block_on(async {
        static REFUSING: AtomicBool = AtomicBool::new(true);
        let server = Server::start(|request, connection| async move {
            let (status, header) = match request.head.split(' ').nth(1).unwrap() {
                _ if !REFUSING.load(SeqCst) => ("200 OK", ""),
                "/429" => ("429 Too Many Requests", "retry-after: 7\r\n"),
                "/503" => ("503 Service Unavailable", "retry-after: 9\r\n"),
                _ => ("503 Service Unavailable", ""),
            };
            connection.answer(status, header, "").await;
        })
        .await;
        let services = Arc::new(Services::default());
        let plugin = plugin_with(
            load(&guest("scripted"), &allowing(&server)),
            Arc::clone(&services),
        );
        let mut slot = plugin.start_slot(0).await.unwrap();
        let url = server.url();
        for (path, breaches, seconds) in [("/", 0, 0), ("/429", 1, 7), ("/503", 2, 9)] {
            let report = call(&mut slot, &get(&format!("{url}{path}"))).await;
            assert_eq!(services.breaches.load(SeqCst), breaches, "{path}");
            assert_eq!(
                services.retry_after_ms.load(SeqCst),
                seconds * 1000,
                "{path}"
            );
            assert_eq!(report.breached, path != "/", "{path}");
        }
        // Seen by the host and reported by the guest: one breach.
        let both = items(&[r#"{"do":"breach"}"#, &get(&format!("{url}/429"))]);
        assert!(slot.call(&both, info(1)).await.breached);
        assert_eq!(services.breaches.load(SeqCst), 3);

        let blind = SandboxConfig {
            watch_http: false,
            ..allowing(&server)
        };
        let mut slot = plugin_with(load(&guest("scripted"), &blind), Arc::clone(&services))
            .start_slot(0)
            .await
            .unwrap();
        assert!(!call(&mut slot, &get(&format!("{url}/429"))).await.breached);
        assert_eq!(services.breaches.load(SeqCst), 3);
    });
}

#[test]
fn bytes_are_counted_by_the_host() {
    block_on(async {
        let server = Server::start(|_, connection| async move {
            connection.answer("200 OK", "", &"x".repeat(50_000)).await;
        })
        .await;
        let url = server.url();
        let counted = async |count_http_bytes| {
            let services = Arc::new(Services::default());
            let sandbox = SandboxConfig {
                count_http_bytes,
                config: vec![config("api_url", &url, false)],
                ..allowing(&server)
            };
            let mut own = plugin_with(load(&guest("scripted"), &sandbox), Arc::clone(&services))
                .start_slot(0)
                .await
                .unwrap();
            let report = own
                .call(&items(&[r#"{"do":"bytes","n":7}"#, &get(&url)]), info(1))
                .await;
            let mut post = plugin_with(load(&guest("rust"), &sandbox), Arc::clone(&services))
                .start_slot(0)
                .await
                .unwrap();
            let sent = post.call(&items(&[&"y".repeat(20_000)]), info(1)).await;
            (report.bytes, sent.bytes, services.bytes.load(SeqCst))
        };
        let (got, sent, all) = counted(true).await;
        let (got, sent) = (got.unwrap(), sent.unwrap());
        assert!((50_000..51_000).contains(&got), "{got}");
        assert!((70_000..72_000).contains(&sent), "{sent}");
        assert_eq!(all, got + sent, "what the guest counts is ignored");
        let arrived = server
            .requests
            .lock()
            .unwrap()
            .iter()
            .any(|request| request.body.len() > 20_000);
        assert!(arrived, "a long body arrives whole");
        assert_eq!(counted(false).await, (None, None, 7));
    });
}

#[test]
fn a_server_that_is_not_there_is_the_guests_to_report() {
    block_on(async {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let url = format!("http://{closed}");
        let sandbox = SandboxConfig {
            allow_hosts: vec![url.clone()],
            ..SandboxConfig::default()
        };
        let end = call(&mut slot("scripted", &sandbox).await, &get(&url))
            .await
            .end;
        assert!(format!("{end:?}").contains("ConnectionRefused"), "{end:?}");
    });
}
