//! What /proc tells of a process and its sockets, see proc(5).

use std::{
    collections::HashMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
use switch::reason::KernelsView;

use crate::engines::namespace::Namespace;

/// Set by `shunt run` for what it starts.
const BINARY_VARIABLE: &str = "SHUNT_BINARY";

/// A process that exists and may be looked at.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    environment: Vec<String>,
}

/// A descriptor that is a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Its number.
    pub fd: u32,
    /// The socket's inode.
    pub inode: u64,
}

impl Process {
    /// Reads what a process was started with.
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/environ");
        let environment = fs::read(&path)
            .with_context(|| format!("{path}: is there such a process, and is it yours?"))?;
        let variables = environment.split(|&byte| byte == 0);
        Ok(Self {
            pid,
            environment: variables
                .map(|one| String::from_utf8_lossy(one).into_owned())
                .collect(),
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let values = self
            .environment
            .iter()
            .filter_map(|one| one.split_once('='));
        let mut named = values.filter(|(key, value)| *key == name && !value.is_empty());
        named.next().map(|(_, value)| value)
    }

    /// Its network namespace where that is not this command's own.
    pub fn namespace(&self) -> anyhow::Result<Option<Namespace>> {
        Namespace::of(self.pid)
    }

    /// Whether the library is in it.
    pub fn is_preloaded(&self) -> bool {
        let maps = fs::read_to_string(self.file("maps")).unwrap_or_default();
        maps.lines().any(|line| line.contains("libshunt"))
    }

    /// Whether a process of `shunt run` serves its system calls: it was told of engines, has no library, and runs under
    /// a filter of them, see seccomp(2).
    pub fn is_supervised(&self) -> bool {
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        // 2: SECCOMP_MODE_FILTER.
        let is_filtered = status.lines().any(|line| line == "Seccomp:\t2");
        is_filtered && !self.is_preloaded() && self.variable(hostif::ENGINE_VARIABLE).is_some()
    }

    /// Whether `shunt run` has started it, or what it comes from.
    pub fn was_led_to(&self) -> bool {
        self.variable(BINARY_VARIABLE).is_some()
    }

    /// Whether `shunt run` has started it, or what it comes from, for the engine of that name, and its sockets are the
    /// kernel's all the same: it gained privileges, or was given another environment.
    pub fn is_outside(&self, engine: &str) -> bool {
        let names = self.variable(hostif::ENGINE_VARIABLE).into_iter();
        let mut engines = names.flat_map(|names| names.split(hostif::ENGINE_SEPARATOR));
        self.was_led_to()
            && engines.any(|name| name == engine)
            && self.policy() != "kernel-only"
            && !self.is_preloaded()
            && !self.is_supervised()
    }

    /// Whether the library or a supervisor carries its calls.
    pub fn is_served(&self) -> bool {
        self.is_preloaded() || self.is_supervised()
    }

    /// Whether a socket is one of unix(7).
    pub fn is_unix(&self, inode: u64) -> bool {
        let text = fs::read_to_string(self.file("net/unix")).unwrap_or_default();
        let inode = inode.to_string();
        let mut lines = text.lines().skip(1);
        lines.any(|line| line.split_ascii_whitespace().nth(6) == Some(&inode))
    }

    /// `SHUNT_POLICY`.
    pub fn policy(&self) -> &str {
        self.variable("SHUNT_POLICY").unwrap_or("auto")
    }

    /// Whether its environment says which engines it was told to use.
    pub fn names_engines(&self) -> bool {
        self.variable(hostif::ENGINE_VARIABLE).is_some()
    }

    /// The engines that it was told to use; none where neither the library nor a supervisor serves it.
    pub fn engine_names(&self) -> Vec<String> {
        if !self.is_served() {
            return Vec::new();
        }
        let named = self.variable(hostif::ENGINE_VARIABLE);
        let names = named.unwrap_or(hostif::DEFAULT_ENGINE_NAME);
        let names = names.split(hostif::ENGINE_SEPARATOR);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Its descriptors that are sockets, by number.
    pub fn sockets(&self) -> anyhow::Result<Vec<Open>> {
        let socket = |(fd, target): &(u32, String)| {
            let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
            let inode = inode.parse().ok()?;
            Some(Open { fd: *fd, inode })
        };
        Ok(self.descriptors()?.iter().filter_map(socket).collect())
    }

    /// By the inode of an end of a socket pair that a supervisor has put in the place of a socket: the inode of that one.
    pub fn replaced(&self) -> HashMap<u64, u64> {
        let text = fs::read_to_string(self.file("net/unix")).unwrap_or_default();
        text.lines().filter_map(pair).collect()
    }

    /// Its descriptors that are rings of io_uring(7), by number.
    pub fn rings(&self) -> anyhow::Result<Vec<u32>> {
        let all = self.descriptors()?.into_iter();
        let rings = all.filter(|(_, target)| target == "anon_inode:[io_uring]");
        Ok(rings.map(|(fd, _)| fd).collect())
    }

    /// Its descriptors, by number, and what each stands for.
    fn descriptors(&self) -> anyhow::Result<Vec<(u32, String)>> {
        let folder = self.file("fd");
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        let descriptor = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let fd = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            Some((fd, target.to_str()?.to_owned()))
        };
        let mut found: Vec<_> = entries.filter_map(descriptor).collect();
        found.sort();
        Ok(found)
    }

    /// What the kernel's tables say of a socket; None where it is neither TCP nor UDP, or was never bound.
    pub fn kernels_view(&self, inode: u64) -> Option<KernelsView> {
        ["tcp", "tcp6", "udp", "udp6"]
            .into_iter()
            .find_map(|table| {
                let text = fs::read_to_string(self.file(&format!("net/{table}"))).ok()?;
                let protocol = if table.starts_with("tcp") {
                    "tcp"
                } else {
                    "udp"
                };
                text.lines()
                    .skip(1)
                    .find_map(|line| parse(line, protocol, inode))
            })
    }
}

/// A line of /proc/net/unix, if it is one of a socket pair with the name of what it replaces.
fn pair(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(6);
    let (inode, name) = (fields.next()?, fields.next()?);
    let replaced = name.strip_prefix(hostif::PAIR_PREFIX)?;
    Some((inode.parse().ok()?, replaced.parse().ok()?))
}

/// A line of /proc/net/tcp and its kin.
#[derive(Debug, Clone, Copy)]
pub struct TableRow {
    /// Its own address.
    pub local: SocketAddr,
    /// Its peer's; port 0: none.
    pub remote: SocketAddr,
    /// TCP that listens.
    pub is_listening: bool,
    /// Names the socket in /proc/PID/fd.
    pub inode: u64,
}

/// Reads one; the heading is none.
pub fn table_row(line: &str) -> Option<TableRow> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    // TCP_LISTEN of linux/tcp_states.h.
    let is_listening = fields.next()? == "0A";
    Some(TableRow {
        local,
        remote,
        is_listening,
        inode: fields.nth(5)?.parse().ok()?,
    })
}

/// What such a line says, if it is that inode's.
fn parse(line: &str, protocol: &'static str, inode: u64) -> Option<KernelsView> {
    let row = table_row(line).filter(|row| row.inode == inode)?;
    Some(KernelsView {
        protocol,
        local: row.local,
        remote: Some(row.remote).filter(|remote| remote.port() != 0),
    })
}

/// `0100007F:1F90`: words of the address in the processor's order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(words.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip: IpAddr = match words.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let line = "   0: 0B004D0A:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0";
        let view = parse(line, "tcp", 4711).unwrap();
        assert_eq!(view.local, "10.77.0.11:6379".parse().unwrap());
        assert_eq!(view.remote, None);
        assert_eq!(parse(line, "tcp", 4712), None);
        let v6 = address("0000000000000000FFFF00000100007F:0050").unwrap();
        assert_eq!(v6, "127.0.0.1:80".parse().unwrap());
    }

    #[test]
    fn a_pair_is_named_by_the_socket_that_it_replaces() {
        let line = "0000000000000000: 00000003 00000000 00000000 0001 03 8215 @shunt/pair/77";
        assert_eq!(pair(line), Some((8215, 77)));
        for other in [
            line.replace("@shunt/pair/77", "@shunt/pair/x"),
            line[..60].to_owned(),
        ] {
            assert_eq!(pair(&other), None, "{other}");
        }
    }

    #[test]
    fn a_process_knows_its_own_sockets() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let process = Process::open(std::process::id()).unwrap();
        assert_eq!(process.namespace().unwrap(), None);
        let views: Vec<KernelsView> = process
            .sockets()
            .unwrap()
            .iter()
            .filter_map(|open| process.kernels_view(open.inode))
            .collect();
        let ours = socket.local_addr().unwrap();
        assert!(
            views
                .iter()
                .any(|view| view.local == ours && view.protocol == "tcp")
        );
    }

    #[test]
    fn damaged_lines_are_nobodys() {
        for text in [
            "",
            "zz:1",
            "0100007F",
            "0100007F:",
            "01:50",
            "\u{20ac}\u{20ac}\u{20ac}:50",
        ] {
            assert_eq!(address(text), None, "{text:?}");
        }
    }
}
