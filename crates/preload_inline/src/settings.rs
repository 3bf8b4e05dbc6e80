//! SHUNT_INLINE: how the engine inside the program is started, as `shunt run` writes it:
//! `nic=eth0 address=10.0.0.5/24,2001:db8::5/64 gateway=10.0.0.1 driver=af_xdp mode=generic because=it was asked for`.

use std::net::IpAddr;

use engine::Address;
use nic::OffloadOverride;
use nic::af_xdp::Mode;

/// What it says.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interface.
    pub nic: String,
    /// Addresses to own on it, at least one.
    pub addresses: Vec<Address>,
    /// Routers.
    pub gateways: Vec<IpAddr>,
    /// AF_XDP in this mode, or packet sockets.
    pub xdp: Option<Mode>,
    /// Offloads that stay off.
    pub overrides: OffloadOverride,
    /// Processors may idle deeply.
    pub allow_deep_idle: bool,
    /// Why the engine is inside the program.
    pub because: Option<String>,
}

impl Settings {
    /// Reads it, or says what is wrong.
    pub fn parse(text: &str) -> Result<Settings, String> {
        let (text, because) = match text.split_once(" because=") {
            Some((text, because)) => (text, Some(because.to_owned())),
            None => (text, None),
        };
        let mut settings = Settings {
            nic: String::new(),
            addresses: Vec::new(),
            gateways: Vec::new(),
            xdp: None,
            overrides: OffloadOverride::default(),
            allow_deep_idle: false,
            because,
        };
        for word in text.split_ascii_whitespace() {
            let wrong = || format!("{}: {word:?} is not understood", hostif::INLINE_VARIABLE);
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            match key {
                "nic" => value.clone_into(&mut settings.nic),
                "address" => {
                    let parsed = value.split(',').map(str::parse);
                    settings.addresses = parsed.collect::<Result<_, String>>()?;
                }
                "gateway" => {
                    let parsed = value.split(',').map(|one| one.parse().map_err(|_| wrong()));
                    settings.gateways = parsed.collect::<Result<_, String>>()?;
                }
                "driver" if value == "af_packet" => settings.xdp = None,
                "driver" if value == "af_xdp" => settings.xdp = Some(Mode::default()),
                "mode" => {
                    let named = Mode::ALL.into_iter().find(|mode| mode.name() == value);
                    settings.xdp = Some(named.ok_or_else(wrong)?);
                }
                // As the flags of `shunt engine`.
                "no-tso" => settings.overrides.segmentation = value == "yes",
                "no-gro" => settings.overrides.merging = value == "yes",
                "no-checksum-offload" => settings.overrides.checksums = value == "yes",
                "payload-align" => settings.overrides.align = value.parse().map_err(|_| wrong())?,
                "allow-deep-idle" => settings.allow_deep_idle = value == "yes",
                _ => return Err(wrong()),
            }
        }
        if settings.nic.is_empty() || settings.addresses.is_empty() {
            let variable = hostif::INLINE_VARIABLE;
            return Err(format!("{variable} must name an interface and an address"));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_addresses_and_routers_are_read() {
        let read =
            Settings::parse("nic=eth0 address=10.0.0.5/24,fd00::5/64 gateway=10.0.0.1").unwrap();
        assert_eq!(read.nic, "eth0");
        assert_eq!(read.addresses.len(), 2);
        assert_eq!(read.gateways, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn the_reason_goes_on_to_the_end() {
        let read = Settings::parse("nic=a address=10.0.0.5/24 because=2 processors: none=free");
        let because = read.unwrap().because;
        assert_eq!(because.as_deref(), Some("2 processors: none=free"));
    }

    #[test]
    fn the_driver_and_its_mode_are_read() {
        let read = |rest: &str| Settings::parse(&format!("nic=a address=10.0.0.5/24{rest}"));
        assert_eq!(read("").unwrap().xdp, None);
        assert_eq!(read(" driver=af_packet").unwrap().xdp, None);
        assert_eq!(read(" driver=af_xdp").unwrap().xdp, Some(Mode::Generic));
        let native = read(" driver=af_xdp mode=native").unwrap();
        assert_eq!(native.xdp, Some(Mode::Native));
        assert!(read(" driver=tap").is_err() && read(" driver=af_xdp mode=fast").is_err());
    }

    #[test]
    fn what_is_left_off_is_read() {
        let plain = Settings::parse("nic=eth0 address=10.0.0.5/24").unwrap();
        assert!(plain.overrides.is_empty() && !plain.allow_deep_idle);
        let read =
            Settings::parse("nic=eth0 address=10.0.0.5/24 no-gro=yes allow-deep-idle=yes").unwrap();
        assert!(read.overrides.merging && !read.overrides.segmentation && read.allow_deep_idle);
        let read = |align| {
            Settings::parse(&format!(
                "nic=eth0 address=10.0.0.5/24 payload-align={align}"
            ))
        };
        assert_eq!(read("64").unwrap().overrides.align, 64);
        assert!(read("a").is_err());
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (text, part) in [
            ("nic=eth0", "an address"),
            ("address=10.0.0.5/24", "an interface"),
            ("nic=eth0 address=10.0.0.5", "10.0.0.5"),
            ("nic=eth0 speed=9", "speed=9"),
            ("eth0", "eth0"),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
