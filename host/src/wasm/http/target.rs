//! Where one request is to go, read from its URI.
//!
//! Invariant: what this module takes for the host, the port and the scheme is what is connected
//! to. A URI that could be read in two ways is none.

use std::fmt;
use std::net::IpAddr;

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

/// The schemes that the host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(super) fn parse(text: &str) -> Option<Self> {
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
            assert!(
                matches!(
                    Target::of(&uri.parse().unwrap()).unwrap().host,
                    TargetHost::Name(_)
                ),
                "{uri}"
            );
        }
    }
}
