//! The probes of the machine as a whole. Each tries the thing itself.

use std::{
    fs::{self, OpenOptions},
    io,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Finding, State, busy};
use crate::sys;

/// AF_XDP is newer than some libraries' lists, see linux/socket.h.
const AF_XDP: u16 = 44;

/// What each lack is: its name and how bad it is, what it prevents, and what to do about it.
const LACKS: &str = "
user-namespaces    | missing | the lab without root | sysctl user.max_user_namespaces=10000; Debian: kernel.unprivileged_userns_clone=1; Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0; container: a seccomp profile that permits unshare(2)
af-packet          | missing | the default driver | CAP_NET_RAW; kernel with CONFIG_PACKET
af-xdp             | missing | the driver af_xdp (af_packet serves instead) | CAP_NET_RAW; kernel with CONFIG_XDP_SOCKETS
bpf                | missing | sharing an address with the kernel; AF_XDP | CAP_BPF and CAP_NET_ADMIN (or root); or give the engine an address of its own
tun                | missing | the tap driver | modprobe tun; in a container: --device /dev/net/tun
cpu-dma-latency    | limited | fast wake-ups of sleeping programs (only spinning is fast then) | run the engine as root, or give its user write access by a udev rule
dpdk               | limited | --driver dpdk: network cards that are taken from the kernel | apt-get install libdpdk-dev pkg-config, then cargo build --release --package cli --features dpdk
huge-pages         | limited | DPDK; the fastest disk buffers | sysctl vm.nr_hugepages=512
locked-memory      | limited | large frame pools of AF_XDP | ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit
congestion-control | limited | fair comparisons: bbr is slow on virtual cables | for a comparison the same control on both sides: sysctl net.ipv4.tcp_congestion_control=cubic (the lab sets its own)
forwarding         | limited | an engine with addresses of its own on af_packet without BPF: the kernel forwards what arrives for them too, and sends redirects; what is only forwarded stays with the kernel | nothing with root (BPF keeps such packets from the kernel); unless it is meant to be a router: sysctl net.ipv4.ip_forward=0
cores              | limited | an engine that spins on a core of its own | give the machine two processors or more
";

/// What was found, where all is well or where something lacks.
type Found = Result<String, String>;

/// Every probe, in the order in which the report shows them.
pub fn all() -> Vec<Finding> {
    let probes: [fn() -> Found; 12] = [
        user_namespaces,
        || tried(raw_socket(AddressFamily::PACKET), "socket can be created"),
        || {
            tried(
                raw_socket(AddressFamily::from_raw(AF_XDP)),
                "socket can be created",
            )
        },
        || tried(sys::try_bpf(), "maps can be created"),
        || {
            opened(
                OpenOptions::new().read(true).write(true),
                "/dev/net/tun",
                "/dev/net/tun can be opened",
            )
        },
        // Opening the file asks for nothing yet: a request is only made by writing a value.
        || {
            let good = "can be held: sleepers wake in about a tenth of the time";
            opened(OpenOptions::new().write(true), "/dev/cpu_dma_latency", good)
        },
        dpdk,
        huge_pages,
        locked_memory,
        congestion_controls,
        forwarding,
        cores,
    ];
    let mut findings = capabilities();
    for ([name, state, prevents, set], probe) in output::columns(LACKS).zip(probes) {
        let state = match state {
            "missing" => State::Missing,
            _ => State::Limited,
        };
        findings.push(match probe() {
            Ok(found) => Finding::ok(name, found),
            Err(found) if found == NO_HUGE_PAGES => {
                Finding::lack(name, state, found, prevents, "kernel with CONFIG_HUGETLBFS")
            }
            Err(found) => Finding::lack(name, state, found, prevents, set),
        });
    }
    findings.push(busy::quiet());
    findings
}

/// Kernel release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

fn capabilities() -> Vec<Finding> {
    const WANTED: [(&str, u32, &str); 4] = [
        (
            "CAP_NET_RAW",
            13,
            "an engine on an interface of this machine (AF_PACKET, AF_XDP)",
        ),
        (
            "CAP_NET_ADMIN",
            12,
            "sharing the kernel's addresses; making TAP interfaces; changing offloads",
        ),
        (
            "CAP_BPF",
            39,
            "steering flows to the engine by BPF; AF_XDP with several flows",
        ),
        ("CAP_SYS_ADMIN", 21, "labs outside a user namespace"),
    ];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0);
    // A mapped root has every capability, but only over what its namespace owns.
    let whole_machine = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    let in_effect = if whole_machine {
        "in effect"
    } else {
        "in effect, within this user namespace only"
    };
    WANTED
        .iter()
        .map(|&(name, bit, prevents)| {
            if effective >> bit & 1 == 1 {
                return Finding::ok(name, in_effect);
            }
            let flag = name.to_lowercase();
            let set = format!("run as root, or: setcap {flag}+ep $(command -v shunt); in a container: --cap-add {}", &name[4..]);
            Finding::lack(name, State::Missing, "not in effect", prevents, set)
        })
        .collect()
}

fn tried<T>(attempt: io::Result<T>, good: &str) -> Found {
    attempt
        .map(|_| good.to_owned())
        .map_err(|error| error.to_string())
}

fn opened(how: &OpenOptions, path: &str, good: &str) -> Found {
    let attempt = how.open(path);
    tried(attempt, good).map_err(|error| format!("{path}: {error}"))
}

fn raw_socket(family: AddressFamily) -> io::Result<()> {
    rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

fn user_namespaces() -> Found {
    match lab::user_namespaces_usable() {
        Ok(()) => Ok("can be created".to_owned()),
        Err(error) => Err(format!("cannot be created: {error}")),
    }
}

/// Whether this binary has the driver; whether DPDK itself starts is seen when an engine does.
fn dpdk() -> Found {
    match cfg!(feature = "dpdk") {
        true => Ok("built in: --driver dpdk, see docs/dpdk.md".to_owned()),
        false => Err("this binary was built without it".to_owned()),
    }
}

const NO_HUGE_PAGES: &str = "no pages of 2 MiB on this kernel";

fn huge_pages() -> Found {
    let read = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        let text = fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    match (read("nr_hugepages"), read("free_hugepages")) {
        (Some(total), Some(free)) if free > 0 => {
            Ok(format!("{free} of {total} pages of 2 MiB free"))
        }
        (Some(total), _) => Err(format!("{total} pages of 2 MiB reserved, none free")),
        (None, _) => Err(NO_HUGE_PAGES.to_owned()),
    }
}

fn locked_memory() -> Found {
    const ENOUGH_BYTES: u64 = 64 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    match limit {
        None => Ok("unlimited".to_owned()),
        Some(bytes) if bytes >= ENOUGH_BYTES => Ok(format!("{} MiB", bytes >> 20)),
        Some(bytes) if rustix::process::geteuid().is_root() => {
            Ok(format!("{} MiB, and root may exceed it", bytes >> 20))
        }
        Some(bytes) => Err(format!("{} KiB", bytes >> 10)),
    }
}

fn congestion_controls() -> Found {
    let read = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{name}");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    let [current, allowed, available] = [
        "congestion_control",
        "allowed_congestion_control",
        "available_congestion_control",
    ]
    .map(read);
    let found =
        format!("kernel uses {current}; allowed to everyone: {allowed}; available: {available}");
    match current == "bbr" {
        true => Err(found),
        false => Ok(found),
    }
}

fn forwarding() -> Found {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
    match setting.is_ok_and(|text| text.trim() == "1") {
        true => Err("this machine forwards IPv4".to_owned()),
        false => Ok("off".to_owned()),
    }
}

fn cores() -> Found {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => Err("1".to_owned()),
        cores => Ok(cores.to_string()),
    }
}
