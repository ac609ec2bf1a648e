//! One entry of `allow_hosts`: how it is written, and what it covers.

use super::address::canonical;
use super::target::{Scheme, Target, TargetHost};
use std::net::IpAddr;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// None for both.
    scheme: Option<Scheme>,
    host: Host,
    port: Port,
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

impl Entry {
    /// Reads an entry. The error is what is wrong with it.
    pub(super) fn parse(entry: &str) -> Result<Self, &'static str> {
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

    /// Whether it covers a target as that is named.
    pub(super) fn allows(&self, target: &Target) -> bool {
        self.allows_port(target.scheme, target.port) && self.host.allows(&target.host)
    }

    /// Whether it opens an address that is not public for a target.
    pub(super) fn opens(&self, target: &Target, address: IpAddr) -> bool {
        self.allows_port(target.scheme, target.port) && self.host.opens(address, &target.host)
    }

    /// Whether it opens an address for sockets.
    pub(super) fn opens_socket(&self, address: IpAddr, port: u16) -> bool {
        self.port.allows_any(port) && self.host.contains(address)
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
        if !below && name.split('.').all(is_number) {
            return Err(
                "is no name that can be looked up; write an address as four numbers, such as 127.0.0.1",
            );
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

/// Whether a part of a name is a number, as some read the parts of an address: `127`, `0x7f`.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
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
