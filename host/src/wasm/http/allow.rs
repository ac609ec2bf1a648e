//! Decides where a guest's requests may go: by name before a connection is sought, and by
//! address when one is made.
//!
//! An entry of `allow_hosts` is `[scheme://]host[:port]`:
//!
//! | Entry | Allows |
//! |---|---|
//! | `https://api.example.com` | that scheme, host and port (here 443) |
//! | `api.example.com` | http at port 80 and https at port 443 |
//! | `*.example.org:8443` | all names below `example.org`, at that port |
//! | `api.example.com:*` | any port |
//! | `http://127.0.0.1:8080`, `https://[fd00::1]` | that address |
//! | `10.1.0.0/16`, `10.1.0.0/16:443` | addresses of the network, at any port or that one |
//!
//! Invariant: names and addresses are allowed apart. A name opens no address that is not public:
//! `localhost` opens loopback, and otherwise a second entry must name the address or its network.
//! An address or network opens no name.

use super::address::{canonical, reserved};
use super::entry::Entry;
use super::target::{Target, TargetHost};
use std::net::{IpAddr, SocketAddr};
use thiserror::Error;

/// Where requests may go.
#[derive(Debug, Clone, Default)]
pub struct AllowList {
    entries: Vec<Entry>,
}

/// An entry that cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("allow_hosts: {entry:?}: {problem}")]
pub struct AllowError {
    entry: String,
    problem: &'static str,
}

/// Why a request may not go where it wants, and what would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Denied {
    #[error("the plugin may not reach {target}; add \"{target}\" to allow_hosts to allow it")]
    Host { target: Target },
    #[error(
        "the plugin may not reach {target}: it is at {}, a {kind} address; \
         add \"{at}\" to allow_hosts to allow it", at.host
    )]
    Address {
        target: Target,
        /// The same by its address.
        at: Target,
        kind: &'static str,
    },
}

/// Why a socket may not reach an address, and what would allow it.
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "the plugin may not reach {0} with a socket of its own; add \"{0}\" to allow_hosts to allow it"
)]
pub(super) struct DeniedSocket(SocketAddr);

impl AllowList {
    /// Reads the entries.
    pub fn parse(entries: &[String]) -> Result<Self, AllowError> {
        let entries = entries.iter().map(|entry| {
            Entry::parse(entry.trim()).map_err(|problem| AllowError {
                entry: entry.clone(),
                problem,
            })
        });
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// Whether a request may go to a target, as far as its name tells. Where that is an address it
    /// still has to pass [`AllowList::check_address`], as every address does.
    pub(super) fn check_host(&self, target: &Target) -> Result<(), Denied> {
        let allowed = self.entries.iter().any(|entry| entry.allows(target));
        if allowed {
            Ok(())
        } else {
            Err(Denied::Host {
                target: target.clone(),
            })
        }
    }

    /// Whether a target that [`AllowList::check_host`] allows may be reached at an address.
    pub(super) fn check_address(&self, target: &Target, address: IpAddr) -> Result<(), Denied> {
        let address = canonical(address);
        let Some(kind) = reserved(address) else {
            return Ok(());
        };
        let opened = self
            .entries
            .iter()
            .any(|entry| entry.opens(target, address));
        if opened {
            return Ok(());
        }
        let at = Target {
            host: TargetHost::Address(address),
            ..target.clone()
        };
        Err(Denied::Address {
            target: target.clone(),
            at,
            kind,
        })
    }

    /// Whether a socket of the guest's own may reach an address. A socket has no name, so only entries that
    /// are addresses or networks count.
    pub(super) fn check_socket(&self, address: SocketAddr) -> Result<(), DeniedSocket> {
        let ip = canonical(address.ip());
        let opened = self
            .entries
            .iter()
            .any(|entry| entry.opens_socket(ip, address.port()));
        if opened {
            Ok(())
        } else {
            Err(DeniedSocket(SocketAddr::new(ip, address.port())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AllowList {
        let entries: Vec<_> = entries.iter().map(|&entry| entry.to_owned()).collect();
        AllowList::parse(&entries).unwrap()
    }

    fn target(uri: &str) -> Target {
        Target::of(&uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn hosts() {
        let table = [
            (
                "https://api.example.com",
                "https://api.example.com/v1",
                true,
            ),
            (
                "https://api.example.com",
                "https://api.example.com:443/",
                true,
            ),
            (
                "https://API.Example.com/",
                "https://api.example.COM./",
                true,
            ),
            ("https://api.example.com", "http://api.example.com/", false),
            (
                "https://api.example.com",
                "https://api.example.com:8443/",
                false,
            ),
            ("https://api.example.com", "https://example.com/", false),
            (
                "https://api.example.com",
                "https://api.example.com.evil.net/",
                false,
            ),
            ("api.example.com", "http://api.example.com/", true),
            ("api.example.com", "https://api.example.com/", true),
            ("api.example.com", "http://api.example.com:443/", false),
            ("api.example.com:*", "http://api.example.com:9999/", true),
            ("*.example.org:8443", "https://a.b.example.org:8443/", true),
            ("*.example.org:8443", "https://a.example.org/", false),
            ("*.example.org", "https://example.org/", false),
            ("*.example.org", "https://evilexample.org/", false),
            ("10.1.0.0/16", "http://10.1.255.255:8080/", true),
            ("10.1.0.0/16", "http://10.2.0.0/", false),
            ("10.1.0.0/16:443", "https://10.1.2.3/", true),
            ("10.1.0.0/16:443", "http://10.1.2.3/", false),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", true),
            (
                "http://127.0.0.1:8080",
                "http://[::ffff:127.0.0.1]:8080/",
                true,
            ),
            ("http://127.0.0.1:8080", "http://localhost:8080/", false),
            ("http://localhost:8080", "http://127.0.0.1:8080/", false),
            ("https://[fd00::1]", "https://[fd00:0::1]/", true),
            ("fd00::/8", "http://[fd12::1]:1/", true),
            ("0.0.0.0/0", "http://[::1]/", false),
            ("0.0.0.0/0", "http://example.com/", false),
        ];
        for (entry, uri, allowed) in table {
            assert_eq!(
                list(&[entry]).check_host(&target(uri)).is_ok(),
                allowed,
                "{entry} {uri}"
            );
        }
        assert!(
            list(&[])
                .check_host(&target("http://example.com/"))
                .is_err()
        );
    }

    #[test]
    fn addresses() {
        let table: [(&[&str], &str, &str, bool); 12] = [
            (
                &["https://api.example.com"],
                "https://api.example.com/",
                "93.184.216.34",
                true,
            ),
            (
                &["https://api.example.com"],
                "https://api.example.com/",
                "10.0.0.1",
                false,
            ),
            (
                &["https://api.example.com"],
                "https://api.example.com/",
                "::ffff:169.254.169.254",
                false,
            ),
            (
                &["https://api.example.com", "10.0.0.0/8"],
                "https://api.example.com/",
                "10.0.0.1",
                true,
            ),
            (
                &["https://api.example.com", "10.0.0.0/8:80"],
                "https://api.example.com/",
                "10.0.0.1",
                false,
            ),
            (
                &["https://api.example.com", "https://10.0.0.1"],
                "https://api.example.com/",
                "::ffff:10.0.0.1",
                true,
            ),
            (
                &["http://localhost:8080"],
                "http://localhost:8080/",
                "127.0.0.1",
                true,
            ),
            (
                &["http://localhost:8080"],
                "http://localhost:8080/",
                "::1",
                true,
            ),
            (
                &["http://localhost:8080"],
                "http://localhost:8080/",
                "10.0.0.1",
                false,
            ),
            (
                &["http://localhost:80", "http://a.com"],
                "http://a.com/",
                "127.0.0.1",
                false,
            ),
            (
                &["http://127.0.0.1:8080"],
                "http://127.0.0.1:8080/",
                "127.0.0.1",
                true,
            ),
            (
                &["http://127.0.0.1:8080"],
                "http://127.0.0.1:8080/",
                "127.0.0.2",
                false,
            ),
        ];
        for (entries, uri, address, allowed) in table {
            let address = address.parse().unwrap();
            let checked = list(entries).check_address(&target(uri), address);
            assert_eq!(checked.is_ok(), allowed, "{entries:?} {uri} {address}");
        }
    }

    #[test]
    fn a_denial_names_the_entry_that_would_allow_it() {
        for uri in [
            "http://127.0.0.1:81/",
            "https://example.com/",
            "http://[::1]:8080/",
            "http://a.b/",
        ] {
            let target = target(uri);
            let Err(Denied::Host { target: denied }) = list(&[]).check_host(&target) else {
                panic!("{uri}")
            };
            let entry = denied.to_string();
            assert!(list(&[&entry]).check_host(&target).is_ok(), "{entry}");
        }
        let target = target("https://example.com:8443/");
        let name = "https://example.com:8443";
        let denied = list(&[name])
            .check_address(&target, "10.1.2.3".parse().unwrap())
            .unwrap_err();
        assert_eq!(
            denied.to_string(),
            "the plugin may not reach https://example.com:8443: it is at 10.1.2.3, a private address; \
             add \"https://10.1.2.3:8443\" to allow_hosts to allow it"
        );
        let opened = list(&[name, "https://10.1.2.3:8443"]);
        assert!(
            opened
                .check_address(&target, "10.1.2.3".parse().unwrap())
                .is_ok()
        );
    }

    #[test]
    fn bad_entries_say_why() {
        let table = [
            ("", "its host must be"),
            ("*", "its host must be"),
            ("*.", "its host must be"),
            ("a..b", "its host must be"),
            ("ftp://a.com", "its scheme must be"),
            ("https://a.com/path", "names a path"),
            ("10.1.0.0/33", "its prefix is longer"),
            ("10.1.0.1/16", "bits beyond the prefix"),
            ("10.1.0.0/x", "its host must be"),
            (
                "127.1",
                "is no name that can be looked up; write an address",
            ),
            ("http://2130706433", "is no name that can be looked up"),
            ("0x7f.0.0.1:80", "is no name that can be looked up"),
            ("0177.0.0.1", "is no name that can be looked up"),
            ("a.com:0", "its port must be"),
            ("a.com:65536", "its port must be"),
            ("a.com:http", "its port must be"),
            ("[::1", "has a [ without its ]"),
            ("[::1]x", "has text after its ]"),
            ("https://u@a.com", "must hold no user name"),
            ("bücher.de", "must be ASCII"),
        ];
        for (entry, problem) in table {
            let error = AllowList::parse(&[entry.to_owned()])
                .unwrap_err()
                .to_string();
            assert!(error.contains(problem), "{error}");
            assert!(
                error.starts_with(&format!("allow_hosts: {entry:?}: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn sockets_reach_the_addresses_named_and_no_others() {
        let list = list(&["10.0.0.0/8:5432", "127.0.0.1", "https://api.example.com"]);
        for (address, denied) in [
            ("8.8.8.8:53", Some("8.8.8.8:53")),
            ("10.1.1.1:5432", None),
            ("[::ffff:10.1.1.1]:5432", None),
            ("10.1.1.1:22", Some("10.1.1.1:22")),
            ("127.0.0.1:9", None),
            ("[::1]:9", Some("[::1]:9")),
        ] {
            let checked = list.check_socket(address.parse().unwrap());
            assert_eq!(checked.is_err(), denied.is_some(), "{address}");
            if let (Err(error), Some(entry)) = (checked, denied) {
                assert!(
                    error
                        .to_string()
                        .contains(&format!("add {entry:?} to allow_hosts"))
                );
                assert!(
                    self::list(&[entry])
                        .check_socket(address.parse().unwrap())
                        .is_ok()
                );
            }
        }
    }
}
