//! Why a socket is on the stack that it is on, in words for `shunt explain`: what was decided (`bind`, `connect`, `listen`), as
//! far as it can be seen from outside.

use core::net::SocketAddr;

/// A TCP or UDP socket as the kernel sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelsView {
    /// As ss(8) names it.
    pub protocol: &'static str,
    /// Its own address; port 0: not bound.
    pub local: SocketAddr,
    /// Its peer's.
    pub remote: Option<SocketAddr>,
}

/// What is known of a socket that is with the kernel.
pub struct Facts<'a> {
    /// The library is in the process.
    pub is_preloaded: bool,
    /// `shunt run` has started the process, or one of its ancestors.
    pub was_led_to: bool,
    /// A process of `shunt run` serves its system calls.
    pub is_supervised: bool,
    /// As `shunt run --policy` was told.
    pub policy: &'a str,
    /// An engine answers at the name that the process has.
    pub engine_answers: bool,
    /// The engine's addresses.
    pub own: &'a [String],
    /// What the kernel's tables say; None: neither TCP nor UDP, or never bound.
    pub kernels: Option<&'a KernelsView>,
}

/// What a ring of io_uring(7) means, and what would change it.
pub const RING: (&str, &str) = (
    "what the program asks for through this ring passes Shunt by: calls on sockets there reach the kernel, and fail or wait for ever on those that an engine has",
    "`shunt run --supervise always` answers that there is no io_uring, and programs take other calls",
);

/// Why a socket is with the engine.
pub fn of_engine(local: Option<&str>, state: Option<&str>) -> String {
    match (local, state) {
        (Some(local), Some("LISTEN")) => {
            format!("it listens on {local}, an address of the engine, or on all")
        }
        (Some(local), Some("UNCONN")) => {
            format!("it is bound to {local}, an address of the engine, or to all")
        }
        (Some(local), _) => format!("its own address {local} is the engine's"),
        (None, _) => "the engine serves it".to_owned(),
    }
}

/// Why a socket of a process with several engines is with this one.
pub fn of_one_of_many(engine: &str, local: Option<&str>, hears_all: bool) -> String {
    match local {
        _ if hears_all => "it hears on all addresses, of the kernel and the engines".to_owned(),
        Some(local) => format!(
            "its own address {local} is that of {engine}, to which the way to its peer leads or the program has bound it"
        ),
        None => format!("{engine} serves it"),
    }
}

impl Facts<'_> {
    /// The reason, and what would change it.
    pub fn explain(&self) -> (String, Option<&'static str>) {
        if self.is_supervised && self.kernels.is_none() {
            let why = "the program is supervised, and this is no TCP or UDP socket, neither bound nor connected yet, or an end of a pair whose connection no engine has any more";
            let change = "a TCP or UDP socket is placed when it is bound, connected or first used";
            return (why.to_owned(), Some(change));
        }
        let is_served = self.is_preloaded || self.is_supervised;
        if !is_served && self.was_led_to {
            let why = "`shunt run` led to the process, but the library is not in it: it gained privileges, or its environment lost LD_PRELOAD";
            let change = "let it have LD_PRELOAD, run it as the user it changes to, or start all with `shunt run --supervise only`";
            return (why.to_owned(), Some(change));
        }
        if !is_served {
            let why = "the process was not started by `shunt run`".to_owned();
            return (why, Some("start it with `shunt run -- CMD`"));
        }
        if self.policy == "kernel-only" {
            let why = "--policy kernel-only keeps every socket with the kernel".to_owned();
            return (why, Some("leave that flag out"));
        }
        if !self.engine_answers {
            let why = "no engine answers at the name that the process was given".to_owned();
            return (
                why,
                Some("start it with `shunt engine`, then the program again"),
            );
        }
        let Some(view) = self.kernels else {
            let why = "it is no TCP or UDP socket, or neither bound nor connected yet".to_owned();
            let change = "a TCP or UDP socket is placed when it is bound, connected or first used";
            return (why, Some(change));
        };
        if view.remote.is_some_and(|remote| remote.ip().is_loopback()) {
            let why = "it speaks over the kernel's loopback".to_owned();
            return (
                why,
                Some("start both ends with `shunt run --loopback`: TCP then stays on the engine"),
            );
        }
        if let Some(remote) = view.remote {
            let why = format!(
                "its way to {} leads over an interface of the kernel",
                remote.ip()
            );
            return (why, Some("connect to where a route of the engine leads"));
        }
        let ip = view.local.ip();
        if ip.is_unspecified() || self.own.iter().any(|own| *own == ip.to_string()) {
            let why = format!(
                "it was bound to {} and the engine has not taken it",
                view.local
            );
            let change = "`shunt engine --protocols` may leave its protocol out; a bound UDP socket is taken with its first datagram";
            return (why, Some(change));
        }
        let why = format!("it is bound to {ip}, an address of the kernel");
        (why, Some("bind it to an address of the engine, or to all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Facts<'static> = Facts {
        is_preloaded: true,
        was_led_to: true,
        is_supervised: false,
        policy: "auto",
        engine_answers: true,
        own: &[],
        kernels: None,
    };

    fn view(local: &str, remote: Option<&str>) -> KernelsView {
        KernelsView {
            protocol: "tcp",
            local: local.parse().unwrap(),
            remote: remote.map(|remote| remote.parse().unwrap()),
        }
    }

    #[test]
    fn the_first_obstacle_is_named() {
        let bound = view("10.0.0.2:80", None);
        let connected = view("10.0.0.2:5000", Some("10.0.0.9:80"));
        let local = view("127.0.0.1:5000", Some("127.0.0.1:80"));
        let cases = [
            (
                Facts {
                    is_preloaded: false,
                    was_led_to: false,
                    ..BASE
                },
                "not started by",
            ),
            (
                Facts {
                    is_preloaded: false,
                    ..BASE
                },
                "lost LD_PRELOAD",
            ),
            (
                Facts {
                    policy: "kernel-only",
                    ..BASE
                },
                "kernel-only",
            ),
            (
                Facts {
                    engine_answers: false,
                    ..BASE
                },
                "no engine answers",
            ),
            (BASE, "no TCP or UDP socket"),
            (
                Facts {
                    kernels: Some(&bound),
                    ..BASE
                },
                "10.0.0.2, an address of the kernel",
            ),
            (
                Facts {
                    kernels: Some(&connected),
                    ..BASE
                },
                "way to 10.0.0.9",
            ),
            (
                Facts {
                    kernels: Some(&local),
                    ..BASE
                },
                "the kernel's loopback",
            ),
        ];
        for (facts, part) in cases {
            let (why, change) = facts.explain();
            assert!(why.contains(part), "{why}");
            assert!(change.is_some());
        }
    }
}
