//! Tells the addresses of the public internet from all others.
//!
//! Invariant: an address that carries another one inside (IPv4-mapped, 6to4, NAT64) is judged
//! as the one it leads to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address leads to, in its shortest form: an IPv4 address where it carries one.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
    }
}

/// The IPv4 address that an IPv6 one stands for.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match [a, b, c, d, e, f] {
        // ::ffff:0:0/96 mapped, ::ffff:0:0:0/96 translated
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] => v4(g, h),
        // ::/96, once "compatible"; :: and ::1 are their own.
        [0, 0, 0, 0, 0, 0] if address > Ipv6Addr::LOCALHOST => v4(g, h),
        // 64:ff9b::/96, NAT64
        [0x64, 0xff9b, 0, 0, 0, 0] => v4(g, h),
        // 2002::/16, 6to4
        [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}

/// Why an address needs an entry of its own in `allow_hosts`; none for a public one. Expects a
/// [`canonical`] address.
pub(super) fn reserved(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => reserved_v4(v4),
        IpAddr::V6(v6) => reserved_v6(v6),
    }
}

fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    Some(match (a, b, c, d) {
        (0, ..) => "unspecified",
        (127, ..) => "loopback",
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "private",
        // Where clouds answer questions about the machine, credentials included.
        (169, 254, 169, 254 | 253 | 123)
        | (169, 254, 170, 2 | 23)
        | (100, 100, 100, 200)
        | (168, 63, 129, 16)
        | (192, 0, 0, 192) => "metadata",
        (169, 254, ..) => "link-local",
        (100, 64..=127, ..) => "shared (carrier)",
        (192, 0, 0, _)
        | (192, 0, 2, _)
        | (198, 51, 100, _)
        | (203, 0, 113, _)
        | (192, 88, 99, _) => "reserved",
        (198, 18..=19, ..) => "benchmarking",
        (224..=239, ..) => "multicast",
        (240..=255, ..) => "reserved",
        _ => return None,
    })
}

fn reserved_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254 | 0x23] => "metadata",
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => "metadata",
        [0xfc00..=0xfdff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        // 2001::/23 holds Teredo and other protocols' own; 2001:db8::/32 and 3fff::/20 are for documents.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "reserved",
        // A tunnel end's interface identifier that holds an IPv4 address (ISATAP).
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => "tunnel",
        [0x2000..=0x3fff, ..] => return None,
        // Only 2000::/3 is handed out.
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_open() {
        let table = [
            ("8.8.8.8", None),
            ("172.15.255.255", None),
            ("172.32.0.1", None),
            ("100.63.255.255", None),
            ("169.253.1.1", None),
            ("223.255.255.254", None),
            ("2606:4700::1111", None),
            ("2001:4860:4860::8888", None),
            ("::ffff:8.8.8.8", None),
            ("2002:808:808::1", None),
            ("64:ff9b::808:808", None),
            ("0.0.0.0", Some("unspecified")),
            ("0.1.2.3", Some("unspecified")),
            ("127.0.0.1", Some("loopback")),
            ("127.255.255.254", Some("loopback")),
            ("10.0.0.1", Some("private")),
            ("172.16.0.1", Some("private")),
            ("172.31.255.255", Some("private")),
            ("192.168.1.1", Some("private")),
            ("169.254.169.254", Some("metadata")),
            ("169.254.170.2", Some("metadata")),
            ("100.100.100.200", Some("metadata")),
            ("168.63.129.16", Some("metadata")),
            ("169.254.0.1", Some("link-local")),
            ("100.64.0.1", Some("shared (carrier)")),
            ("198.18.0.1", Some("benchmarking")),
            ("192.0.2.1", Some("reserved")),
            ("224.0.0.1", Some("multicast")),
            ("240.0.0.1", Some("reserved")),
            ("255.255.255.255", Some("reserved")),
            ("::", Some("unspecified")),
            ("::1", Some("loopback")),
            ("::127.0.0.1", Some("loopback")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:a9fe:a9fe", Some("metadata")),
            ("::ffff:0:10.0.0.1", Some("private")),
            ("64:ff9b::a00:1", Some("private")),
            ("64:ff9b:1::a00:1", Some("reserved")),
            ("2002:7f00:1::", Some("loopback")),
            ("2001::1", Some("reserved")),
            ("2001:db8::1", Some("reserved")),
            ("fd00:ec2::254", Some("metadata")),
            ("fc00::1", Some("private")),
            ("fe80::1", Some("link-local")),
            ("fec0::1", Some("site-local")),
            ("ff02::1", Some("multicast")),
            ("2606:4700::5efe:a00:1", Some("tunnel")),
            ("100::1", Some("reserved")),
            ("4000::1", Some("reserved")),
        ];
        for (text, expected) in table {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(reserved(canonical(address)), expected, "{text}");
        }
    }
}
