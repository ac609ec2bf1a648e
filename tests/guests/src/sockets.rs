//! Tries to connect a socket of its own to the address in the first item's data, such as `127.0.0.1:80`, and fails with what
//! it learned: `connected`, or the error's name.

use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::network::{ErrorCode, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

batchgate_guest::export!(process);

fn process(items: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    let Some(item) = items.first() else {
        return Ok(0);
    };
    let address: std::net::SocketAddrV4 = item
        .text()?
        .parse()
        .map_err(batchgate_guest::BatchError::fatal)?;
    let learned = match connect(address) {
        Ok(()) => "connected".to_owned(),
        Err(error) => error.name().to_owned(),
    };
    Err(batchgate_guest::BatchError::failed(learned))
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
