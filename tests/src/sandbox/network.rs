//! Where requests may go, and what is said of those that may not.

use super::server::Server;
use super::*;
use batchgate::wasm::http::Resolver;
use batchgate_policy::outcome::CallEnd;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Mutex;

/// Answers each look-up of a name with the next of its lists.
#[derive(Debug)]
struct Scripted(Mutex<Vec<Vec<IpAddr>>>);

impl Scripted {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let addresses = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(
            answers.iter().rev().map(addresses).collect(),
        )))
    }
}

impl Resolver for Scripted {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        let next = self.0.lock().unwrap().pop();
        Box::pin(async { next.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// What the `scripted` guest learns from getting a URL.
async fn get(slot: &mut impl Slot, url: &str) -> String {
    let script = serde_json::json!({"do": "get", "url": url}).to_string();
    match call(slot, &script).await.end {
        CallEnd::Failed { message, .. } => message,
        end => panic!("{url}: {end:?}"),
    }
}

fn allowing(hosts: &[&str]) -> SandboxConfig {
    SandboxConfig {
        allow_hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..SandboxConfig::default()
    }
}

#[test]
fn only_what_is_named_is_reached() {
    block_on(async {
        let server = Server::slow(0).await;
        let port = server.address.port();
        let url = server.url();
        let denied = "is denied";

        let mut bare = slot("scripted", &SandboxConfig::default()).await;
        assert!(get(&mut bare, &url).await.contains(denied));
        let mut given = slot("scripted", &allowing(&[&url])).await;
        assert!(get(&mut given, &url).await.contains("fine"));
        for other in [
            format!("http://localhost:{port}/"),
            format!("http://127.0.0.2:{port}/"),
            format!("https://127.0.0.1:{port}/"),
            "http://127.0.0.1/".to_owned(),
            "http://[::1]/".to_owned(),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            format!("http://2130706433:{port}/"),
            format!("http://0x7f000001:{port}/"),
        ] {
            let learned = get(&mut given, &other).await;
            assert!(learned.contains(denied), "{other}: {learned}");
        }
        // The same address in another form is the same address.
        assert!(
            get(&mut given, &format!("http://[::ffff:127.0.0.1]:{port}/"))
                .await
                .contains("fine")
        );
        // What comes before an @ is not the host.
        let misleading = get(
            &mut given,
            &format!("http://127.0.0.1:{port}@evil.example/"),
        )
        .await;
        assert!(!misleading.contains("fine"), "{misleading}");
        assert_eq!(server.heads().len(), 2);
    });
}

#[test]
fn a_name_opens_no_address_that_is_not_public() {
    block_on(async {
        let server = Server::slow(0).await;
        let port = server.address.port();
        let url = format!("http://api.example.com:{port}/");
        let name = format!("http://api.example.com:{port}");
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
            "2001:db8::1",
        ] {
            let sandbox = SandboxConfig {
                resolver: Scripted::new(&[&[address]]),
                ..allowing(&[&name])
            };
            let learned = get(&mut slot("scripted", &sandbox).await, &url).await;
            assert!(learned.contains("is denied"), "{address}: {learned}");
        }
        assert_eq!(server.heads().len(), 0);

        // With an entry for the address, the name is enough.
        let both = allowing(&[&name, "127.0.0.0/8"]);
        let sandbox = SandboxConfig {
            resolver: Scripted::new(&[&["127.0.0.1"]]),
            ..both
        };
        assert!(
            get(&mut slot("scripted", &sandbox).await, &url)
                .await
                .contains("fine")
        );
        assert!(
            server.heads()[0].contains(&format!("api.example.com:{port}")),
            "{:?}",
            server.heads()
        );
    });
}

/// A name that leads to an address that is allowed, and then to one that is not: each connection
/// is checked, and one that is open stays what it was.
#[test]
fn a_name_is_checked_each_time_it_is_looked_up() {
    block_on(async {
        let server = Server::start(|_, connection| async move {
            connection
                .answer("200 OK", "connection: close\r\n", "fine")
                .await;
        })
        .await;
        let port = server.address.port();
        let url = format!("http://rebind.example.com:{port}/");
        let resolver = Scripted::new(&[
            &["127.0.0.1"],
            &["127.0.0.2"],
            &["127.0.0.2", "127.0.0.1"],
            &[],
        ]);
        let hosts = [
            format!("http://rebind.example.com:{port}"),
            "127.0.0.1/32".to_owned(),
        ];
        let sandbox = SandboxConfig {
            resolver,
            allow_hosts: hosts.to_vec(),
            ..SandboxConfig::default()
        };
        let mut slot = slot("scripted", &sandbox).await;
        assert!(get(&mut slot, &url).await.contains("fine"));
        assert!(get(&mut slot, &url).await.contains("is denied"));
        assert!(
            get(&mut slot, &url).await.contains("fine"),
            "the next address of the answer is allowed"
        );
        assert!(get(&mut slot, &url).await.contains("no response"));
        assert!(get(&mut slot, &url).await.contains("no response"));
        assert_eq!(server.heads().len(), 2);
    });
}

#[test]
fn redirects_are_the_guests_to_follow() {
    block_on(async {
        let server = Server::start(|_, connection| async move {
            connection
                .answer("302 Found", "location: http://169.254.169.254/\r\n", "")
                .await;
        })
        .await;
        let mut slot = slot("scripted", &allowing(&[&server.url()])).await;
        assert!(get(&mut slot, &server.url()).await.contains("302"));
        assert_eq!(server.heads().len(), 1);
    });
}

#[test]
fn sockets_need_their_own_switch_and_an_address_that_is_open() {
    block_on(async {
        let server = Server::slow(0).await;
        let address = server.address.to_string();
        let mut bare = slot("sockets", &allowing(&[&server.url()])).await;
        let tried = async |slot: &mut _| match call(slot, &address).await.end {
            CallEnd::Failed { message, .. } => message,
            end => panic!("{end:?}"),
        };
        assert_eq!(tried(&mut bare).await, "access-denied");
        let mut closed = slot(
            "sockets",
            &SandboxConfig {
                sockets: true,
                ..SandboxConfig::default()
            },
        )
        .await;
        assert_eq!(tried(&mut closed).await, "access-denied");
        let port = server.address.port();
        for (host, learned) in [
            // A name says nothing of a socket, which has none.
            (format!("http://localhost:{port}"), "access-denied"),
            (format!("127.0.0.1:{}", port ^ 1), "access-denied"),
            (server.url(), "connected"),
            ("127.0.0.0/8".to_owned(), "connected"),
        ] {
            let open = SandboxConfig {
                sockets: true,
                ..allowing(&[&host])
            };
            assert_eq!(
                tried(&mut slot("sockets", &open).await).await,
                learned,
                "{host}"
            );
        }
    });
}

/// Names that sockets ask for go the way of those that requests ask for, and so wait for their turn with them.
#[test]
fn sockets_look_names_up_as_requests_do() {
    block_on(async {
        for guest in ["sockets", "wasi03"] {
            let learned = async |sandbox: &SandboxConfig, name: &str| {
                let report = call(&mut slot(guest, sandbox).await, name).await;
                match report.end {
                    CallEnd::Failed { message, .. } => message.to_lowercase().replace('-', ""),
                    end => panic!("{guest}: {name}: {end:?}"),
                }
            };
            let closed = SandboxConfig::default();
            let refused = learned(&closed, "api.example.com").await;
            assert!(
                refused.contains("permanentresolverfailure") || refused.contains("accessdenied"),
                "{guest}: {refused}"
            );
            let open = SandboxConfig {
                sockets: true,
                resolver: Scripted::new(&[&["192.0.2.7", "2001:db8::7"]]),
                ..SandboxConfig::default()
            };
            let found = learned(&open, "api.example.com").await;
            assert!(
                found.contains("192, 0, 2, 7") && found.contains("8193, 3512, 0"),
                "{guest}: {found}"
            );
            for (name, expected) in [
                ("api.example.com", "nameunresolvable"),
                ("no name", "invalidargument"),
                ("", "invalidargument"),
                ("192.0.2.9", "192, 0, 2, 9"),
                ("::1", "0, 1)"),
                ("[::1]", "0, 1)"),
            ] {
                let found = learned(&open, name).await;
                assert!(found.contains(expected), "{guest}: {name}: {found}");
            }
        }
    });
}
