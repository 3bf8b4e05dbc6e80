//! What administrators have set for the kernel's TCP in the network namespace (ip-sysctl, `net.ipv4.tcp_*` and the range of ports),
//! as far as it means something to an engine: it holds for an engine's connections too, as it is when they begin.

mod key;

use core::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use stack::{FastOpenModes, SynCookies};
use tcp::{Duration, EcnMode, Retries};

use crate::config::Config;
use key::FastOpenKey;

/// Where they are.
const FOLDER: &str = "/proc/sys/net/ipv4";

/// One of them.
#[derive(Debug)]
struct Setting {
    name: &'static str,
    /// Which of several values.
    place: usize,
    /// What a kernel has that nobody has told anything.
    default: u64,
    /// Takes a value over; `None`: it means nothing here.
    take: fn(&mut Config, u64) -> Option<()>,
}

const fn setting(
    name: &'static str,
    place: usize,
    default: u64,
    take: fn(&mut Config, u64) -> Option<()>,
) -> Setting {
    Setting {
        name,
        place,
        default,
        take,
    }
}

static SETTINGS: [Setting; 20] = [
    setting("tcp_ecn", 0, 2, |config, value| {
        config.socket_options.ecn = EcnMode::from_number(u8::try_from(value).ok()?)?;
        Some(())
    }),
    setting("tcp_fastopen", 0, 1, |config, value| {
        config.fast_open = FastOpenModes::from_bits_truncate(u32::try_from(value).ok()?);
        Some(())
    }),
    setting("ip_local_port_range", 0, 32_768, |config, value| {
        config.limits.ephemeral_ports.0 = port(value)?;
        Some(())
    }),
    setting("ip_local_port_range", 1, 60_999, |config, value| {
        config.limits.ephemeral_ports.1 = port(value)?;
        Some(())
    }),
    setting("tcp_rmem", 1, 131_072, |config, value| {
        // What the kernel counts holds its bookkeeping too: half is payload.
        config.receive_offer = u32::try_from(value / 2).ok()?.max(1);
        Some(())
    }),
    setting(
        "tcp_rmem",
        2,
        tcp::RECEIVE_BUFFER_MAX as u64,
        |config, value| {
            config.receive_buffer_max = u32::try_from(value).ok()?;
            Some(())
        },
    ),
    setting("tcp_syncookies", 0, 1, |config, value| {
        config.syn_cookies = SynCookies::from_number(u8::try_from(value).ok()?)?;
        Some(())
    }),
    setting("tcp_rfc1337", 0, 0, |config, value| {
        config.protects_time_wait = value != 0;
        Some(())
    }),
    setting("tcp_timestamps", 0, 1, |config, value| {
        config.offers.timestamps = value != 0;
        Some(())
    }),
    setting("tcp_sack", 0, 1, |config, value| {
        config.offers.sack = value != 0;
        Some(())
    }),
    setting("tcp_window_scaling", 0, 1, |config, value| {
        config.offers.window_scaling = value != 0;
        Some(())
    }),
    setting("tcp_keepalive_time", 0, 7_200, |config, value| {
        config.socket_options.keepalive_idle = Duration::from_secs(u64::from(seconds(value)?));
        Some(())
    }),
    setting("tcp_keepalive_intvl", 0, 75, |config, value| {
        config.socket_options.keepalive_interval_s = seconds(value)?;
        Some(())
    }),
    setting("tcp_keepalive_probes", 0, 9, |config, value| {
        config.socket_options.keepalive_count = u8::try_from(value.clamp(1, 127)).ok()?;
        Some(())
    }),
    setting("tcp_min_tso_segs", 0, 2, |config, value| {
        config.socket_options.min_train_segments = u8::try_from(value).ok()?.max(1);
        Some(())
    }),
    setting("tcp_fin_timeout", 0, 60, |config, value| {
        // 0 is the default there.
        config.socket_options.fin_timeout_s = u16::try_from(value).ok()?.clamp(1, 3_600);
        Some(())
    }),
    setting("tcp_syn_retries", 0, 6, |config, value| {
        config.socket_options.retries.syn = count(value)?;
        Some(())
    }),
    setting("tcp_synack_retries", 0, 5, |config, value| {
        config.socket_options.retries.syn_ack = count(value)?;
        Some(())
    }),
    setting("tcp_retries2", 0, 15, |config, value| {
        config.socket_options.retries.data = count(value)?;
        Some(())
    }),
    setting("tcp_orphan_retries", 0, 0, |config, value| {
        // 0 is the default there.
        let orphan = if value == 0 {
            Retries::default().orphan
        } else {
            count(value)?
        };
        config.socket_options.retries.orphan = orphan;
        Some(())
    }),
];

/// As long as a program may ask for (`MAX_TCP_KEEPIDLE`).
fn seconds(value: u64) -> Option<u16> {
    let seconds = u16::try_from(value).ok()?;
    (1..=32_767).contains(&seconds).then_some(seconds)
}

fn port(value: u64) -> Option<u16> {
    u16::try_from(value).ok().filter(|port| *port != 0)
}

/// As many as the kernel's own take.
fn count(value: u64) -> Option<u8> {
    u8::try_from(value).ok()
}

/// The names of all that can be followed.
pub fn names() -> impl Iterator<Item = &'static str> {
    let numbers = SETTINGS.iter().map(|setting| setting.name);
    numbers.chain([key::NAME])
}

/// Settings of this network namespace that an engine follows, and what they were when it last looked.
#[derive(Debug, Default)]
pub struct Sysctls {
    followed: Vec<Followed>,
    fast_open_key: FastOpenKey,
}

#[derive(Debug)]
struct Followed {
    setting: &'static Setting,
    file: File,
    last: u64,
}

/// A setting that has another value than before.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// A number.
    Number { name: &'static str, value: u64 },
    /// `tcp_fastopen_key`, which is nobody else's business.
    FastOpenKey,
}

impl fmt::Display for Taken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { name, value } => write!(out, "{name}={value}"),
            Self::FastOpenKey => out.write_str(key::NAME),
        }
    }
}

impl Sysctls {
    /// Those that a core shall follow; takes them over.
    pub fn begin(core: u16, config: &mut Config) -> Self {
        let mut sysctls = Self::open_in(Path::new(FOLDER), &config.sysctls);
        tell(core, &sysctls.look(config));
        sysctls
    }

    /// Those of `names` that there are.
    fn open_in(folder: &Path, names: &[&str]) -> Self {
        let wanted = SETTINGS.iter().filter(|one| names.contains(&one.name));
        let followed = wanted.filter_map(|setting| {
            Some(Followed {
                setting,
                file: File::open(folder.join(setting.name)).ok()?,
                last: setting.default,
            })
        });
        let fast_open_key = match names.contains(&key::NAME) {
            true => FastOpenKey::open_in(folder),
            false => FastOpenKey::default(),
        };
        Self {
            followed: followed.collect(),
            fast_open_key,
        }
    }

    /// Takes over what differs from what it was, and says what that is. Whether there was anything.
    pub fn follow(&mut self, core: u16, config: &mut Config) -> bool {
        let taken = self.look(config);
        tell(core, &taken);
        !taken.is_empty()
    }

    /// Takes over what differs from what it was; at the first look, from a kernel's defaults. What means nothing here is
    /// passed over.
    fn look(&mut self, config: &mut Config) -> Vec<Taken> {
        let mut taken = Vec::new();
        for Followed {
            setting,
            file,
            last,
        } in &mut self.followed
        {
            let Some(value) = value_in(file, setting.place).filter(|value| value != last) else {
                continue;
            };
            *last = value;
            if (setting.take)(config, value).is_some() {
                let name = setting.name;
                taken.push(Taken::Number { name, value });
            }
        }
        if self.fast_open_key.look(&mut config.fast_open_keys) {
            taken.push(Taken::FastOpenKey);
        }
        taken
    }
}

/// One of the values of a setting.
fn value_in(file: &File, place: usize) -> Option<u64> {
    let mut text = [0; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    let text = core::str::from_utf8(text.get(..len)?).ok()?;
    text.split_whitespace().nth(place)?.parse().ok()
}

/// Says what was taken over, once for all cores.
fn tell(core: u16, taken: &[Taken]) {
    if core == 0 && !taken.is_empty() {
        let taken: Vec<_> = taken.iter().map(Taken::to_string).collect();
        tracing::info!("as the kernel's net.ipv4: {}", taken.join(", "));
    }
}

#[cfg(test)]
mod tests;
