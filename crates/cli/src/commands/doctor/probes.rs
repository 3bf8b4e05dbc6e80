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

/// Every probe, in the order in which the report shows them.
pub fn all() -> Vec<Finding> {
    let mut findings = capabilities();
    findings.extend([
        user_namespaces(),
        packet_socket(),
        xdp_socket(),
        bpf(),
        tun(),
        idle_latency(),
        dpdk(),
        huge_pages(),
        locked_memory(),
        congestion_controls(),
        forwarding(),
        cores(),
        busy::quiet(),
    ]);
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

fn user_namespaces() -> Finding {
    match lab::user_namespaces_usable() {
        Ok(()) => Finding::ok("user-namespaces", "can be created"),
        Err(error) => Finding::lack(
            "user-namespaces",
            State::Missing,
            format!("cannot be created: {error}"),
            "the lab without root",
            "sysctl user.max_user_namespaces=10000; Debian: kernel.unprivileged_userns_clone=1; Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0; container: a seccomp profile that permits unshare(2)",
        ),
    }
}

fn packet_socket() -> Finding {
    match raw_socket(AddressFamily::PACKET) {
        Ok(()) => Finding::ok("af-packet", "socket can be created"),
        Err(error) => Finding::lack(
            "af-packet",
            State::Missing,
            error.to_string(),
            "the default driver",
            "CAP_NET_RAW; kernel with CONFIG_PACKET",
        ),
    }
}

fn xdp_socket() -> Finding {
    match raw_socket(AddressFamily::from_raw(AF_XDP)) {
        Ok(()) => Finding::ok("af-xdp", "socket can be created"),
        Err(error) => Finding::lack(
            "af-xdp",
            State::Missing,
            error.to_string(),
            "the driver af_xdp (af_packet serves instead)",
            "CAP_NET_RAW; kernel with CONFIG_XDP_SOCKETS",
        ),
    }
}

fn raw_socket(family: AddressFamily) -> io::Result<()> {
    rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

fn bpf() -> Finding {
    match sys::try_bpf() {
        Ok(()) => Finding::ok("bpf", "maps can be created"),
        Err(error) => Finding::lack(
            "bpf",
            State::Missing,
            error.to_string(),
            "sharing an address with the kernel; AF_XDP",
            "CAP_BPF and CAP_NET_ADMIN (or root); or give the engine an address of its own",
        ),
    }
}

fn tun() -> Finding {
    match OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        Ok(_) => Finding::ok("tun", "/dev/net/tun can be opened"),
        Err(error) => Finding::lack(
            "tun",
            State::Missing,
            format!("/dev/net/tun: {error}"),
            "the tap driver",
            "modprobe tun; in a container: --device /dev/net/tun",
        ),
    }
}

/// Opening the file asks for nothing yet: a request is only made by writing a value.
fn idle_latency() -> Finding {
    match OpenOptions::new().write(true).open("/dev/cpu_dma_latency") {
        Ok(_) => Finding::ok(
            "cpu-dma-latency",
            "can be held: sleepers wake in about a tenth of the time",
        ),
        Err(error) => Finding::lack(
            "cpu-dma-latency",
            State::Limited,
            format!("/dev/cpu_dma_latency: {error}"),
            "fast wake-ups of sleeping programs (only spinning is fast then)",
            "run the engine as root, or give its user write access by a udev rule",
        ),
    }
}

/// Whether this binary has the driver; whether DPDK itself starts is seen when an engine does.
fn dpdk() -> Finding {
    if cfg!(feature = "dpdk") {
        return Finding::ok("dpdk", "built in: --driver dpdk, see docs/dpdk.md");
    }
    Finding::lack(
        "dpdk",
        State::Limited,
        "this binary was built without it",
        "--driver dpdk: network cards that are taken from the kernel",
        "apt-get install libdpdk-dev pkg-config, then cargo build --release --package cli --features dpdk",
    )
}

fn huge_pages() -> Finding {
    let read = |name: &str| {
        fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    match (read("nr_hugepages"), read("free_hugepages")) {
        (Some(total), Some(free)) if free > 0 => Finding::ok(
            "huge-pages",
            format!("{free} of {total} pages of 2 MiB free"),
        ),
        (Some(total), _) => Finding::lack(
            "huge-pages",
            State::Limited,
            format!("{total} pages of 2 MiB reserved, none free"),
            "DPDK; the fastest disk buffers",
            "sysctl vm.nr_hugepages=512",
        ),
        (None, _) => Finding::lack(
            "huge-pages",
            State::Limited,
            "no pages of 2 MiB on this kernel",
            "DPDK; the fastest disk buffers",
            "kernel with CONFIG_HUGETLBFS",
        ),
    }
}

fn locked_memory() -> Finding {
    const ENOUGH_BYTES: u64 = 64 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    match limit {
        None => Finding::ok("locked-memory", "unlimited"),
        Some(bytes) if bytes >= ENOUGH_BYTES => {
            Finding::ok("locked-memory", format!("{} MiB", bytes >> 20))
        }
        Some(bytes) if rustix::process::geteuid().is_root() => Finding::ok(
            "locked-memory",
            format!("{} MiB, and root may exceed it", bytes >> 20),
        ),
        Some(bytes) => Finding::lack(
            "locked-memory",
            State::Limited,
            format!("{} KiB", bytes >> 10),
            "large frame pools of AF_XDP",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
        ),
    }
}

fn congestion_controls() -> Finding {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let (current, allowed, available) = (
        read("tcp_congestion_control"),
        read("tcp_allowed_congestion_control"),
        read("tcp_available_congestion_control"),
    );
    let found =
        format!("kernel uses {current}; allowed to everyone: {allowed}; available: {available}");
    if current == "bbr" {
        return Finding::lack(
            "congestion-control",
            State::Limited,
            found,
            "fair comparisons: bbr is slow on virtual cables",
            "for a comparison the same control on both sides: sysctl net.ipv4.tcp_congestion_control=cubic (the lab sets its own)",
        );
    }
    Finding::ok("congestion-control", found)
}

fn forwarding() -> Finding {
    let on =
        fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1");
    if on {
        return Finding::lack(
            "forwarding",
            State::Limited,
            "this machine forwards IPv4",
            "an engine with addresses of its own on af_packet without BPF: the kernel forwards what arrives for them too, and sends redirects; what is only forwarded stays with the kernel",
            "nothing with root (BPF keeps such packets from the kernel); unless it is meant to be a router: sysctl net.ipv4.ip_forward=0",
        );
    }
    Finding::ok("forwarding", "off")
}

fn cores() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores >= 2 {
        return Finding::ok("cores", format!("{cores}"));
    }
    Finding::lack(
        "cores",
        State::Limited,
        "1",
        "an engine that spins on a core of its own",
        "give the machine two processors or more",
    )
}
