//! Tries to connect a socket of its own to the address in the first item's data, such as `127.0.0.1:80`, or looks up the
//! name that it is, and fails with what it learned: `connected`, the addresses, or the error's name.

use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{
    ErrorCode, IpAddress, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress,
};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

batchgate_guest::export!(process);

fn process(items: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    let Some(item) = items.first() else {
        return Ok(0);
    };
    let text = item.text()?;
    let learned = match text.parse() {
        Ok(address) => connect(address).map(|()| "connected".to_owned()),
        Err(_) => look_up(text),
    };
    let learned = learned.unwrap_or_else(|error| error.name().to_owned());
    Err(batchgate_guest::BatchError::failed(learned))
}

fn look_up(name: &str) -> Result<String, ErrorCode> {
    let found = resolve_addresses(&instance_network(), name)?;
    let mut addresses = Vec::new();
    loop {
        match found.resolve_next_address() {
            Ok(Some(IpAddress::Ipv4(address))) => addresses.push(format!("{address:?}")),
            Ok(Some(IpAddress::Ipv6(address))) => addresses.push(format!("{address:?}")),
            Ok(None) => return Ok(addresses.join(" ")),
            Err(ErrorCode::WouldBlock) => found.subscribe().block(),
            Err(error) => return Err(error),
        }
    }
}

fn connect(address: std::net::SocketAddrV4) -> Result<(), ErrorCode> {
    let socket = create_tcp_socket(IpAddressFamily::Ipv4)?;
    let [a, b, c, d] = address.ip().octets();
    let remote = Ipv4SocketAddress {
        port: address.port(),
        address: (a, b, c, d),
    };
    socket.start_connect(&instance_network(), IpSocketAddress::Ipv4(remote))?;
    loop {
        match socket.finish_connect() {
            Ok(_) => return Ok(()),
            Err(ErrorCode::WouldBlock) => socket.subscribe().block(),
            Err(error) => return Err(error),
        }
    }
}
