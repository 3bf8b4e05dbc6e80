//! Which device, and with which of DPDK's options: text in, text out. Read first: "EAL parameters" in DPDK's
//! guides. Nothing is opened here.

use super::error::OpenError;

/// How to open a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `net_tap0,iface=shunt0` and other virtual devices, or a PCI address with its device's options.
    pub device: String,
    /// Further options for DPDK. The first device of a process sets them.
    pub options: Vec<String>,
    /// How the device is to spread frames over its queues, if it can; otherwise as it likes.
    pub spread: Option<Spread>,
}

/// How a device spreads frames over its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Of its Toeplitz hash; more bytes than any device takes.
    pub key: Vec<u8>,
    /// The queue for each value of the hash's lower bits, a power of two of them.
    pub table: Vec<u16>,
}

impl Config {
    /// That device, without further options.
    #[must_use]
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            options: Vec::new(),
            spread: None,
        }
    }
}

/// A device as DPDK names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// The port's name.
    pub name: String,
    /// Name and options.
    pub arguments: String,
    /// Not on the PCI bus.
    pub is_virtual: bool,
}

impl Device {
    /// # Errors
    /// [`OpenError::NotADevice`].
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let (name, options) = text.split_once(',').unwrap_or((text, ""));
        let is_virtual = ["net_", "virtio_user"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        let name = if is_virtual {
            Some(name.to_owned())
        } else {
            pci_address(name)
        };
        let name = name.ok_or_else(|| OpenError::NotADevice {
            device: text.to_owned(),
        })?;
        let arguments = match options {
            "" => name.clone(),
            options => format!("{name},{options}"),
        };
        Ok(Self {
            name,
            arguments,
            is_virtual,
        })
    }

    /// The name of its driver, for virtual ones: without the number.
    pub fn driver(&self) -> &str {
        self.name.trim_end_matches(|end: char| end.is_ascii_digit())
    }
}

/// `[DOMAIN:]BUS:DEVICE.FUNCTION` with its domain, as ports are named.
fn pci_address(text: &str) -> Option<String> {
    let with_domain = if text.matches(':').count() == 1 {
        format!("0000:{text}")
    } else {
        text.to_owned()
    };
    let (place, function) = with_domain.split_once('.')?;
    let parts: Vec<&str> = place.split(':').collect();
    let is_hex = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let [domain, bus, device] = parts.as_slice() else {
        return None;
    };
    let is_address =
        is_hex(domain, 8) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1);
    is_address.then(|| with_domain.to_ascii_lowercase())
}

/// What the machine offers to DPDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// Some huge page is free.
    pub has_huge_pages: bool,
    /// Processors that we may use.
    pub processors: Vec<usize>,
}

/// MiB without huge pages: the pools of one queue take about 25, DPDK's own tables some more.
const BASE_MIB: u32 = 128;
const QUEUE_MIB: u32 = 48;

/// The command line that DPDK gets. What `config` sets is not set again.
pub(super) fn eal_arguments(
    config: &Config,
    device: &Device,
    queues: u16,
    machine: &Machine,
) -> Vec<String> {
    let has = |names: &[&str]| {
        config.options.iter().any(|option| {
            names.iter().any(|name| {
                let is_short = !name.starts_with("--");
                option == name
                    || is_short && option.starts_with(name) && !option.starts_with("--")
                    || option.starts_with(&format!("{name}="))
            })
        })
    };
    let mut arguments = vec!["shunt".to_owned()];
    let mut add = |text: String| arguments.push(text);
    let is_without_huge_pages = !machine.has_huge_pages || has(&["--no-huge"]);
    // No files in /var/run/dpdk and /dev/hugepages, no thread that answers at a socket there. --in-memory says
    // both, and is refused beside --no-huge.
    let quiet = if is_without_huge_pages {
        "--no-shconf"
    } else {
        "--in-memory"
    };
    add(quiet.to_owned());
    add("--no-telemetry".to_owned());
    if !has(&["-l", "-c", "-s", "-S", "--lcores", "--main-lcore"]) {
        // One lcore, our caller, bound to no processor: the engine starts and places its own threads.
        let list: Vec<String> = machine.processors.iter().map(usize::to_string).collect();
        add(format!("--lcores=0@({})", list.join(",")));
    }
    if !has(&["--log-level"]) {
        add("--log-level=warning".to_owned());
    }
    if device.is_virtual {
        if !has(&["--no-pci", "-a", "--allow", "-b", "--block"]) {
            add("--no-pci".to_owned());
        }
    } else {
        add(format!("--allow={}", device.arguments));
    }
    if !machine.has_huge_pages && !has(&["--no-huge"]) {
        add("--no-huge".to_owned());
    }
    if is_without_huge_pages && !has(&["-m", "--socket-mem"]) {
        add("-m".to_owned());
        add((BASE_MIB + QUEUE_MIB * u32::from(queues)).to_string());
    }
    arguments.extend(config.options.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, String, bool)> {
        let device = Device::parse(text).ok()?;
        Some((device.name, device.arguments, device.is_virtual))
    }

    #[test]
    fn devices_are_virtual_ones_or_pci_addresses() {
        let some = |name: &str, arguments: &str, is_virtual| {
            Some((name.to_owned(), arguments.to_owned(), is_virtual))
        };
        for (text, expected) in [
            ("net_ring0", some("net_ring0", "net_ring0", true)),
            (
                "net_tap0,iface=x,mac=fixed",
                some("net_tap0", "net_tap0,iface=x,mac=fixed", true),
            ),
            ("0000:03:00.0", some("0000:03:00.0", "0000:03:00.0", false)),
            ("03:00.1", some("0000:03:00.1", "0000:03:00.1", false)),
            (
                "A1:00.0,mprq_en=1",
                some("0000:a1:00.0", "0000:a1:00.0,mprq_en=1", false),
            ),
            ("eth0", None),
            ("", None),
            ("03:00", None),
            ("3:0:0:0.0", None),
            ("xx:00.0", None),
            ("03:00.10", None),
            (":.", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
        assert_eq!(
            Device::parse("net_af_xdp12").unwrap().driver(),
            "net_af_xdp"
        );
    }

    fn line(device: &str, options: &str, queues: u16, has_huge_pages: bool) -> String {
        let config = Config {
            device: device.to_owned(),
            options: options.split_whitespace().map(str::to_owned).collect(),
            spread: None,
        };
        let machine = Machine {
            has_huge_pages,
            processors: vec![0, 3],
        };
        let device = Device::parse(device).unwrap();
        eal_arguments(&config, &device, queues, &machine)[1..].join(" ")
    }

    #[test]
    fn without_huge_pages_memory_is_asked_for_by_the_number_of_queues() {
        assert_eq!(
            line("net_ring0", "", 2, false),
            "--no-shconf --no-telemetry --lcores=0@(0,3) --log-level=warning --no-pci --no-huge -m 224"
        );
    }

    #[test]
    fn a_pci_device_is_the_only_one_that_is_touched() {
        assert_eq!(
            line("03:00.0,x=1", "", 1, true),
            "--in-memory --no-telemetry --lcores=0@(0,3) --log-level=warning --allow=0000:03:00.0,x=1"
        );
    }

    #[test]
    fn what_the_user_sets_is_not_set_again() {
        assert_eq!(
            line(
                "net_ring0",
                "--lcores 3 -m512 --log-level=8 --no-huge",
                1,
                true
            ),
            "--no-shconf --no-telemetry --no-pci --lcores 3 -m512 --log-level=8 --no-huge"
        );
        assert_eq!(
            line("net_bonding0", "-a 03:00.0 -l2 -m 64", 1, false),
            "--no-shconf --no-telemetry --log-level=warning --no-huge -a 03:00.0 -l2 -m 64"
        );
    }
}
