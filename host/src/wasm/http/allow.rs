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
//! Invariant: names and addresses are allowed apart. A name opens no address that is not public: `localhost` opens
//! loopback, and otherwise a second entry must name the address or its network. An address or
//! network opens no name.

use super::address::{canonical, reserved};
use std::fmt;
use std::net::IpAddr;
use thiserror::Error;

/// Where requests may go.
#[derive(Debug, Clone, Default)]
pub struct AllowList {
    entries: Vec<Allow>,
}

/// An entry that cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("allow_hosts: {entry:?}: {problem}")]
pub struct AllowError {
    entry: String,
    problem: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allow {
    /// None for both.
    scheme: Option<Scheme>,
    host: Host,
    port: Port,
}

/// The schemes that the host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    /// The scheme's own.
    Default,
    Any,
    One(u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    /// All names that end in this, which begins with a dot.
    Below(String),
    Network {
        address: IpAddr,
        bits: u8,
    },
}

/// Where one request is to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    pub(super) host: TargetHost,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TargetHost {
    /// In lower case, without a dot at the end.
    Name(String),
    Address(IpAddr),
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

impl AllowList {
    /// Reads the entries.
    pub fn parse(entries: &[String]) -> Result<Self, AllowError> {
        let entries = entries.iter().map(|entry| {
            Allow::parse(entry.trim()).map_err(|problem| AllowError {
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
        let allowed = self.entries.iter().any(|entry| {
            entry.allows_port(target.scheme, target.port) && entry.host.allows(&target.host)
        });
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
        let opened = self.entries.iter().any(|entry| {
            entry.allows_port(target.scheme, target.port) && entry.host.opens(address, &target.host)
        });
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

    /// Whether a socket of the guest's own may reach an address.
    pub(crate) fn allows_socket(&self, address: IpAddr, port: u16) -> bool {
        let address = canonical(address);
        reserved(address).is_none()
            || self
                .entries
                .iter()
                .any(|entry| entry.port.allows_any(port) && entry.host.contains(address))
    }
}

impl Allow {
    fn parse(entry: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = match entry.split_once("://") {
            Some((scheme, rest)) => (
                Some(Scheme::parse(scheme).ok_or("its scheme must be http or https")?),
                rest,
            ),
            None => (None, entry),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err("must hold no user name");
        }
        let (host, port) = split_port(rest)?;
        let network = host.contains('/');
        let host = Host::parse(host)?;
        let port = match port {
            None if network => Port::Any,
            None => Port::Default,
            Some("*") => Port::Any,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => Port::One(port),
                _ => return Err("its port must be a number from 1 to 65535, or * for any"),
            },
        };
        Ok(Self { scheme, host, port })
    }

    fn allows_port(&self, scheme: Scheme, port: u16) -> bool {
        self.scheme.is_none_or(|own| own == scheme)
            && match self.port {
                Port::Default => port == scheme.port(),
                Port::Any => true,
                Port::One(own) => own == port,
            }
    }
}

impl Port {
    /// For sockets, which have no scheme: an entry without a port stands for its host alone.
    fn allows_any(self, port: u16) -> bool {
        match self {
            Port::Default | Port::Any => true,
            Port::One(own) => own == port,
        }
    }
}

/// Splits `host:port`, where the host may be `[IPv6]` or a bare IPv6 network.
fn split_port(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("has a [ without its ]")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("has text after its ]; only a port can stand there"),
        };
    }
    match text.rsplit_once(':') {
        // More than one colon: an IPv6 address or network without brackets, which has no port.
        Some((host, _)) if host.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let expected =
            "its host must be a name, *.NAME, an address or a network such as 10.1.0.0/16";
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| {
                "names a path; write the scheme, host and port alone, or a network such as 10.1.0.0/16"
            })?;
            let bits: u8 = bits.parse().map_err(|_| expected)?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            if bits > most {
                return Err("its prefix is longer than the address");
            }
            if masked(address, bits) != value(address) {
                return Err(
                    "its address has bits beyond the prefix; write the network's first address",
                );
            }
            return Ok(Self::Network { address, bits });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            let address = canonical(address);
            let bits = if address.is_ipv4() { 32 } else { 128 };
            return Ok(Self::Network { address, bits });
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let valid = !name.is_empty()
            && name.split('.').all(|label| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            });
        if !valid {
            return Err(if name.is_ascii() {
                expected
            } else {
                "must be ASCII; write the name's xn-- form"
            });
        }
        Ok(if below {
            Self::Below(format!(".{name}"))
        } else {
            Self::Name(name)
        })
    }

    fn allows(&self, host: &TargetHost) -> bool {
        match (self, host) {
            (Self::Name(own), TargetHost::Name(name)) => own == name,
            (Self::Below(own), TargetHost::Name(name)) => {
                name.len() > own.len() && name.ends_with(own)
            }
            (_, TargetHost::Address(address)) => self.contains(canonical(*address)),
            (Self::Network { .. }, TargetHost::Name(_)) => false,
        }
    }

    /// Whether the entry opens an address that is not public for a host.
    fn opens(&self, address: IpAddr, host: &TargetHost) -> bool {
        let localhost = |own: &String| own == "localhost" && address.is_loopback();
        match self {
            Self::Name(own) => localhost(own) && self.allows(host),
            Self::Below(_) => false,
            Self::Network { .. } => self.contains(address),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Network { address: own, bits } => {
                own.is_ipv4() == address.is_ipv4() && masked(address, *bits) == masked(*own, *bits)
            }
            Self::Name(_) | Self::Below(_) => false,
        }
    }
}

/// An address as a number, its first bit the highest of 128.
fn value(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn masked(address: IpAddr, bits: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    value(address) & mask
}

impl Scheme {
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }

    pub(super) fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl Target {
    /// Where a request's URI leads. None if that is nowhere we could go.
    pub(super) fn of(uri: &http::Uri) -> Option<Self> {
        let scheme = Scheme::parse(uri.scheme_str()?)?;
        let authority = uri.authority()?;
        // Whatever stands before an @ is not the host, and has misled many a reader.
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let host = match bare.parse::<IpAddr>() {
            Ok(address) => TargetHost::Address(address),
            Err(_) => {
                let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
                if name.is_empty() {
                    return None;
                }
                TargetHost::Name(name)
            }
        };
        // A port that is no port number is an error; `Authority::port` takes it for absent.
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" => scheme.port(),
            rest => rest
                .strip_prefix(':')?
                .parse()
                .ok()
                .filter(|&port| port > 0)?,
        };
        Some(Self { scheme, host, port })
    }
}

impl Target {
    /// The target alone, as a connector is asked for it.
    pub(super) fn uri(&self) -> http::Uri {
        let authority = format!("{}:{}", self.host, self.port);
        http::Uri::builder()
            .scheme(self.scheme.as_str())
            .authority(authority)
            .path_and_query("/")
            .build()
            .expect("a target was a valid URI before")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.host)?;
        if self.port != self.scheme.port() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

impl fmt::Display for TargetHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
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
    fn a_target_that_could_mislead_is_none() {
        for uri in [
            "http://good.com@evil.com/",
            "http://a.com:0/",
            "http://a.com:/",
            "http://a.com:65536/",
            "ftp://a.com/",
            "/path",
        ] {
            let parsed: Result<http::Uri, _> = uri.parse();
            assert!(
                parsed.ok().and_then(|uri| Target::of(&uri)).is_none(),
                "{uri}"
            );
        }
        // No octal, hexadecimal or whole-number addresses: these are names, which no address entry allows.
        for uri in [
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
        ] {
            assert!(matches!(target(uri).host, TargetHost::Name(_)), "{uri}");
        }
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
    fn sockets_reach_public_addresses_and_those_named() {
        let list = list(&["10.0.0.0/8:5432", "127.0.0.1"]);
        for (address, port, allowed) in [
            ("8.8.8.8", 53, true),
            ("10.1.1.1", 5432, true),
            ("10.1.1.1", 22, false),
            ("127.0.0.1", 9, true),
            ("::1", 9, false),
        ] {
            assert_eq!(
                list.allows_socket(address.parse().unwrap(), port),
                allowed,
                "{address}"
            );
        }
    }
}
