//! The card behind an interface, taken from the kernel for DPDK and given back: by the files of sysfs that
//! `Documentation/driver-api/vfio.rst` and `Documentation/ABI/testing/sysfs-bus-pci` of the kernel describe.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use netlink::ethtool::DriverInfo;

/// The driver that gives a card to a process.
const VFIO: &str = "vfio-pci";

/// A card on the PCI bus, and its driver there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub address: String,
    driver: String,
}

impl Card {
    /// The card behind an interface that has this driver; `None`: it is on no PCI bus.
    pub fn behind(info: Option<DriverInfo>) -> Option<Self> {
        let DriverInfo { name, bus, .. } = info.filter(|info| info.bus.contains(':'))?;
        Some(Self {
            address: bus,
            // Of a virtio device the bus has another driver than the interface.
            driver: if name == "virtio_net" {
                "virtio-pci".to_owned()
            } else {
                name
            },
        })
    }

    /// Takes it from the kernel.
    pub fn take(&self) -> anyhow::Result<()> {
        if !self.driver_file(VFIO, "bind").exists() {
            bail!("this kernel has no {VFIO}: `modprobe {VFIO}`");
        }
        let taken = self.exchange(VFIO, &self.driver);
        if taken.is_err() {
            // What there is to say was said just now.
            let _ = self.give_back();
        }
        taken
    }

    /// Gives it back to its driver: the interface is there again, without addresses.
    pub fn give_back(&self) -> anyhow::Result<()> {
        let released = write(&self.driver_file(VFIO, "unbind"), &self.address);
        write(&self.file("driver_override"), "\n")?;
        let bound = write(&self.driver_file(&self.driver, "bind"), &self.address);
        if self.is_of(&self.driver) {
            return Ok(());
        }
        released?;
        bound
    }

    /// What [`Card::give_back`] writes to.
    pub fn files(&self) -> Vec<PathBuf> {
        vec![
            self.driver_file(VFIO, "unbind"),
            self.file("driver_override"),
            self.driver_file(&self.driver, "bind"),
        ]
    }

    fn exchange(&self, to: &str, from: &str) -> anyhow::Result<()> {
        write(&self.file("driver_override"), to)?;
        write(&self.driver_file(from, "unbind"), &self.address)?;
        write(&self.driver_file(to, "bind"), &self.address)?;
        if !self.is_of(to) {
            bail!("{} does not go to {to}", self.address);
        }
        Ok(())
    }

    fn is_of(&self, driver: &str) -> bool {
        self.driver_file(driver, &self.address).exists()
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new("/sys/bus/pci/devices")
            .join(&self.address)
            .join(name)
    }

    fn driver_file(&self, driver: &str, name: &str) -> PathBuf {
        Path::new("/sys/bus/pci/drivers").join(driver).join(name)
    }
}

/// Without making or truncating it, which Landlock would not let.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

/// What an engine says that was given an interface in place of a card.
pub fn refusal(nic: &str, card: Option<&Card>) -> String {
    let Some(Card { address, .. }) = card else {
        return format!(
            "--nic {nic}: an interface of the kernel, behind which is no card; --driver dpdk takes a card by its PCI address, or a virtual device such as net_af_packet0,iface={nic}"
        );
    };
    format!(
        "--nic {nic}: an interface of the kernel, which has its card, {address}. Take it away? {nic} is then gone with its addresses, and so is this host for whoever reaches it by them; when the engine has ended the kernel has the card again, and {nic} without addresses. Say yes with --take-card"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str, bus: &str) -> Option<Card> {
        Card::behind(Some(DriverInfo {
            name: name.to_owned(),
            firmware: String::new(),
            bus: bus.to_owned(),
        }))
    }

    #[test]
    fn a_card_is_what_is_on_the_pci_bus() {
        let igb = card("igb", "0000:01:00.0").unwrap();
        assert_eq!(igb.driver, "igb");
        assert_eq!(
            card("virtio_net", "0000:04:00.0").unwrap().driver,
            "virtio-pci"
        );
        assert_eq!(card("veth", ""), None);
        assert_eq!(Card::behind(None), None);
        assert!(refusal("eth0", Some(&igb)).contains("--take-card"));
        assert!(refusal("eth9", None).contains("net_af_packet0,iface=eth9"));
    }

    #[test]
    fn a_card_that_is_not_there_is_not_taken() {
        let gone = card("igb", "ffff:ff:1f.7").unwrap();
        assert!(gone.take().is_err());
        assert!(gone.give_back().is_err());
    }
}
