//! The kernel's routes as /proc/net shows them: of its main table, and its own addresses as whole ones. Read
//! once per second at most, when somebody asks.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use super::Network;
use crate::shared::Shared;

/// How long a reading of the kernel's tables serves.
const KERNEL_TABLE_AGE: Duration = Duration::from_secs(1);
/// linux/ipv6_route.h: an own address.
const RTF_LOCAL: u32 = 0x8000_0000;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// To where.
    pub network: Network,
    /// By which interface; 0: it stays on this host, or the interface is not known.
    pub interface: u32,
    /// The lower one wins among equally long prefixes.
    pub metric: u32,
}

impl Route {
    /// A route that stays on this host.
    pub fn to(network: Network) -> Route {
        Route {
            network,
            interface: 0,
            metric: 0,
        }
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelRoutes(pub Vec<Route>);

impl KernelRoutes {
    /// Length of the longest prefix that matches.
    pub fn longest(&self, address: IpAddr) -> Option<u8> {
        let lengths = self.matching(address).map(|route| route.network.prefix_len);
        lengths.max()
    }

    /// The interface by which packets to `address` leave; 0: they stay on this host.
    pub fn interface_to(&self, address: IpAddr) -> Option<u32> {
        let rank = |route: &&Route| (u8::MAX - route.network.prefix_len, route.metric);
        let best = self.matching(address).min_by_key(rank);
        best.map(|route| route.interface)
    }

    fn matching(&self, address: IpAddr) -> impl Iterator<Item = &Route> {
        let matches = move |route: &&Route| route.network.contains(address);
        self.0.iter().filter(matches)
    }
}

/// The numbers of interfaces by their names.
#[derive(Default)]
struct Interfaces(Vec<(String, u32)>);

impl Interfaces {
    /// 0: there is none of this name any more.
    fn number(&mut self, name: &str) -> u32 {
        if let Some((_, number)) = self.0.iter().find(|(known, _)| known == name) {
            return *number;
        }
        let asked = socket(AddressFamily::UNIX, SocketType::DGRAM, None)
            .and_then(|any| netdevice::name_to_index(any, name));
        let number = asked.unwrap_or(0);
        self.0.push((name.to_owned(), number));
        number
    }
}

/// The kernel's routes now.
pub fn routes() -> Arc<KernelRoutes> {
    let now = Instant::now();
    // No mutex: it might be locked by another thread when this one forks.
    static CACHE: Shared<(Instant, Arc<KernelRoutes>)> = Shared::empty();
    if let Some(cached) = CACHE.load().as_ref()
        && now.saturating_duration_since(cached.0) < KERNEL_TABLE_AGE
    {
        return Arc::clone(&cached.1);
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut known = Interfaces::default();
    let mut number = |name: &str| known.number(name);
    let mut routes = parse_route_table(&read("/proc/net/route"), &mut number);
    routes.extend(parse_ipv6_routes(
        &read("/proc/net/ipv6_route"),
        &mut number,
    ));
    routes.extend(parse_local_addresses(&read("/proc/net/fib_trie")));
    let routes = Arc::new(KernelRoutes(routes));
    CACHE.store(Some(Arc::new((now, Arc::clone(&routes)))));
    routes
}

/// `/proc/net/route`: a heading, then `iface destination gateway flags … mask …`, addresses in
/// hexadecimal as the machine holds their network-order bytes.
fn parse_route_table(text: &str, number: &mut dyn FnMut(&str) -> u32) -> Vec<Route> {
    let address = |field: &str| {
        u32::from_str_radix(field, 16)
            .ok()
            .map(|bits| Ipv4Addr::from(bits.to_ne_bytes()))
    };
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
            // RTF_UP; a reject route leads nowhere and leaves the destination to the engine.
            if flags & 1 == 0 || flags & 0x200 != 0 {
                return None;
            }
            let mask = address(fields.get(7)?)?.to_bits();
            let prefix_len = u8::try_from(mask.leading_ones()).ok()?;
            Some(Route {
                network: Network {
                    address: address(fields.get(1)?)?.into(),
                    prefix_len,
                },
                interface: number(fields.first()?),
                metric: fields.get(6)?.parse().ok()?,
            })
        })
        .collect()
}

/// `/proc/net/ipv6_route`: destination and its prefix length first, flags last but one, in hexadecimal;
/// own addresses are among them as /128.
fn parse_ipv6_routes(text: &str, number: &mut dyn FnMut(&str) -> u32) -> Vec<Route> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
            if flags & 1 == 0 || flags & 0x200 != 0 {
                return None;
            }
            let bits = u128::from_str_radix(fields.first()?, 16).ok()?;
            let is_own = flags & RTF_LOCAL != 0;
            Some(Route {
                network: Network {
                    address: Ipv6Addr::from_bits(bits).into(),
                    prefix_len: u8::from_str_radix(fields.get(1)?, 16).ok()?,
                },
                interface: if is_own { 0 } else { number(fields.get(9)?) },
                metric: u32::from_str_radix(fields.get(5)?, 16).ok()?,
            })
        })
        .collect()
}

/// `/proc/net/fib_trie`: an address line `|-- 10.0.0.5` followed by `/32 host LOCAL`.
fn parse_local_addresses(text: &str) -> Vec<Route> {
    let mut locals = Vec::new();
    let mut last = None;
    for line in text.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) = last
        {
            let own = Route::to(Network {
                address,
                prefix_len: 32,
            });
            if !locals.contains(&own) {
                locals.push(own);
            }
        }
    }
    locals
}

#[cfg(test)]
mod tests {
    use super::super::tests::network;
    use super::*;

    #[test]
    fn the_kernels_ipv6_routes_are_read() {
        let table = "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n\
                     20010db8000000000000000000000005 80 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000000 00000002 00000000 80200001 eth0\n\
                     00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n";
        let expected = [
            Route {
                network: network("2001:db8::/64"),
                interface: 3,
                metric: 0x100,
            },
            Route::to(network("2001:db8::5/128")),
        ];
        assert_eq!(parse_ipv6_routes(table, &mut |_| 3), expected);
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                     eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        if cfg!(target_endian = "little") {
            let route = |text, metric| Route {
                network: network(text),
                interface: 3,
                metric,
            };
            let expected = [route("0.0.0.0/0", 100), route("192.168.0.0/16", 0)];
            assert_eq!(parse_route_table(table, &mut |_| 3), expected);
        }
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     \
                    |-- 10.0.0.5\n        /32 host LOCAL\n";
        assert_eq!(
            parse_local_addresses(trie),
            [Route::to(network("10.0.0.5/32"))]
        );
    }
}
