//! Why a device of DPDK cannot be opened, with the next step.

use std::io;

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text names no device.
    #[error(
        "{device:?} is no device of DPDK: give a PCI address such as 0000:03:00.0 (`dpdk-devbind.py --status` lists them) or a virtual device such as net_tap0,iface=shunt0"
    )]
    NotADevice {
        /// The text.
        device: String,
    },
    /// DPDK itself did not start.
    #[error(
        "DPDK does not start with `{line}`: {reason}; {step}. DPDK's own words are above, more with --dpdk-args=--log-level=debug"
    )]
    Start {
        /// Its command line.
        line: String,
        /// Its error.
        reason: io::Error,
        /// What may help.
        step: &'static str,
    },
    /// DPDK runs already, with other options.
    #[error("DPDK runs in this process with the options of its first device; it starts once")]
    OtherOptions,
    /// There is no such device, no driver for it, or it may not be opened.
    #[error("DPDK cannot open {device:?}: {reason}; {step}")]
    Device {
        /// The device.
        device: String,
        /// DPDK's error.
        reason: io::Error,
        /// What may help.
        step: String,
    },
    /// The device has too few queues.
    #[error(
        "{device:?} has {receiving} receive and {sending} transmit queues: give --cores {} at most",
        receiving.min(sending)
    )]
    TooFewQueues {
        /// The device.
        device: String,
        /// Queues that frames arrive in.
        receiving: u16,
        /// Queues to send from.
        sending: u16,
    },
    /// No memory for mbufs.
    #[error(
        "no memory for {count} mbufs of {bytes} bytes ({reason}): give more huge pages, or with --no-huge more memory by --dpdk-args='-m MIB'"
    )]
    Memory {
        /// How many.
        count: u32,
        /// Bytes of each.
        bytes: u32,
        /// DPDK's error.
        reason: io::Error,
    },
    /// Another call failed.
    #[error("{call} of {device:?}: {reason}")]
    System {
        /// What was being done.
        call: &'static str,
        /// The device.
        device: String,
        /// DPDK's error.
        reason: io::Error,
    },
}

impl OpenError {
    pub(super) fn start(arguments: &[String], reason: io::Error) -> Self {
        let step = match reason.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                "it lacks a permission: run as root, or give its user /dev/vfio and the huge pages"
            }
            Some(libc::ENOMEM | libc::EAGAIN) => {
                "memory is missing: `echo 512 > /proc/sys/vm/nr_hugepages`, or --dpdk-args='--no-huge -m 256'"
            }
            Some(libc::EINVAL) => "it refuses an option: look at --dpdk-args",
            _ => "docs/dpdk.md lists what it needs",
        };
        Self::Start {
            line: arguments.join(" "),
            reason,
            step,
        }
    }

    pub(super) fn device(device: &super::config::Device, reason: io::Error) -> Self {
        // A driver that does not start returns -1, which reads as EPERM whatever was wrong.
        let step = if device.is_virtual {
            let driver = device.driver();
            let package = driver.replace('_', "-");
            format!(
                "its options may be wrong, a permission may be missing (virtual devices over the kernel's need CAP_NET_ADMIN and CAP_NET_RAW), or the driver {driver} is not installed (Debian: librte-{package}23, or librte-{package}-23)"
            )
        } else {
            "bind it to vfio-pci (`dpdk-devbind.py --bind=vfio-pci ADDRESS`), run as root, and see that its driver is installed (Debian: apt-cache search librte-net)".to_owned()
        };
        Self::Device {
            device: device.arguments.clone(),
            reason,
            step,
        }
    }
}
