//! What is set up on the host under test before a script runs: its sysctls, and an interface that
//! neither cuts segments late nor leaves checksums to nobody.

use std::{
    fs,
    net::{Ipv6Addr, UdpSocket},
    path::Path,
    time::{Duration, Instant},
};

use super::{Command, sys};

/// How long an address may take to be usable on a busy machine.
const USABLE: Duration = Duration::from_secs(10);

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// `sysctl - NAME VALUE`, `mtu IFACE BYTES`, `quiet IFACE`, `address6 IFACE ADDRESS`, `mac IFACE`, `up IFACE`.
pub(super) fn perform(command: &Command) -> Result<String, i32> {
    let interface = command.socket.as_str();
    match command.name.as_str() {
        "sysctl" => {
            let name = command.argument(0).ok_or(libc::EINVAL)?;
            // Some values are lists, such as those of tcp_rmem.
            let value = command.argument(1).ok_or(libc::EINVAL)?.replace(',', " ");
            return sysctl(name, &value);
        }
        "mtu" => {
            let mtu = command.argument(0).and_then(|text| text.parse().ok());
            sys::set_mtu(interface, mtu.ok_or(libc::EINVAL)?)
        }
        "quiet" => sys::switch_offloads_off(interface),
        "address6" => {
            let address: Option<Ipv6Addr> = command.argument(0).and_then(|text| text.parse().ok());
            let address = address.ok_or(libc::EINVAL)?;
            sys::add_address6(interface, address).and_then(|()| wait_usable(address))
        }
        "mac" => {
            let mac = sys::mac(interface)?;
            return Ok(mac.map(|byte| format!("{byte:02x}")).join(":"));
        }
        _ => Err(libc::EOPNOTSUPP),
    }
    .map(|()| "0".to_owned())
}

/// Waits until a program can bind an address of this host: the kernel takes it into use some time after it was added.
fn wait_usable(address: Ipv6Addr) -> Result<(), i32> {
    let begun = Instant::now();
    loop {
        match UdpSocket::bind((address, 0)) {
            Err(error) if errno(&error) != libc::EADDRNOTAVAIL || begun.elapsed() > USABLE => {
                return Err(errno(&error));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
            Ok(_) => return Ok(()),
        }
    }
}

/// Writes below /proc/sys/net/ipv4, or with `ipv6.` before the name below net/ipv6, dots for slashes.
/// Tells what was there before, after a `=`.
fn sysctl(name: &str, value: &str) -> Result<String, i32> {
    let file = match name.strip_prefix("ipv6.") {
        Some(rest) => Path::new("/proc/sys/net/ipv6").join(rest.replace('.', "/")),
        None => Path::new("/proc/sys/net/ipv4").join(name.replace('.', "/")),
    };
    let before = fs::read_to_string(&file).map_err(|error| errno(&error))?;
    fs::write(&file, value).map_err(|error| errno(&error))?;
    let words: Vec<&str> = before.split_whitespace().collect();
    Ok(format!("={}", words.join(",")))
}
