//! Capabilities, and the attributes of a process that say who may look into it: capabilities(7), prctl(2).

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// A capability that a process keeps, if it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// CAP_NET_RAW: a packet or AF_XDP socket, made again when the interface comes back.
    RawSockets,
    /// CAP_NET_ADMIN: attaching to the interface when it comes back, its flags and offloads, reading the firewall's rules.
    NetworkAdministration,
    /// CAP_BPF: maps and programs that are made again when the interface comes back.
    Bpf,
    /// CAP_IPC_LOCK: memory of an AF_XDP socket that is made again, beyond RLIMIT_MEMLOCK.
    LockedMemory,
}

impl Need {
    const fn set(self) -> CapabilitySet {
        match self {
            Self::RawSockets => CapabilitySet::NET_RAW,
            Self::NetworkAdministration => CapabilitySet::NET_ADMIN,
            Self::Bpf => CapabilitySet::BPF,
            Self::LockedMemory => CapabilitySet::IPC_LOCK,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::RawSockets => "cap_net_raw",
            Self::NetworkAdministration => "cap_net_admin",
            Self::Bpf => "cap_bpf",
            Self::LockedMemory => "cap_ipc_lock",
        }
    }
}

fn said(errno: Errno) -> String {
    errno.to_string()
}

/// Keeps these of the capabilities that this thread has, and drops all others, also from the bounding set where it may.
pub fn keep(needs: &[Need]) -> Result<Vec<&'static str>, String> {
    let had = capabilities(None).map_err(said)?;
    let wanted = needs
        .iter()
        .fold(CapabilitySet::empty(), |all, need| all | need.set());
    let kept = had.permitted & wanted;
    // Without ambient ones there is nothing to clear, on an old kernel nothing to ask.
    let _ = clear_ambient_capability_set();
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // Past the last capability EINVAL, without CAP_SETPCAP EPERM: no_new_privs holds then.
        if !kept.contains(one) && remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    let left = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, left).map_err(said)?;
    let names = needs.iter().filter(|need| kept.contains(need.set()));
    Ok(names.map(|need| need.name()).collect())
}

/// From now on nothing that this thread executes gets rights by set-uid bits or a file's capabilities.
pub fn forgo_new_privileges() -> Result<(), String> {
    set_no_new_privs(true).map_err(said)
}

/// No core dumps of users' data; `/proc` of this process is root's, and ptrace(2), process_vm_readv(2) and pidfd_getfd(2) of it
/// take CAP_SYS_PTRACE.
pub fn be_undumpable() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(said)
}
