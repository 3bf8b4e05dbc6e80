//! What administrators have set for the kernel's TCP in the network namespace (ip-sysctl, `net.ipv4.tcp_*`), as far as it
//! means something here: it holds for an engine's connections too, as it is when they begin.

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

static SETTINGS: [Setting; 17] = [
    Setting {
        name: "tcp_ecn",
        place: 0,
        default: 2,
        take: |config, value| {
            config.socket_options.ecn = EcnMode::from_number(u8::try_from(value).ok()?)?;
            Some(())
        },
    },
    Setting {
        name: "tcp_fastopen",
        place: 0,
        default: 1,
        take: |config, value| {
            config.fast_open = FastOpenModes::from_bits_truncate(u32::try_from(value).ok()?);
            Some(())
        },
    },
    Setting {
        name: "tcp_rmem",
        place: 1,
        default: 131_072,
        take: |config, value| {
            // What the kernel counts holds its bookkeeping too: half is payload.
            config.receive_offer = u32::try_from(value / 2).ok()?.max(1);
            Some(())
        },
    },
    Setting {
        name: "tcp_rmem",
        place: 2,
        default: tcp::RECEIVE_BUFFER_MAX as u64,
        take: |config, value| {
            config.receive_buffer_max = u32::try_from(value).ok()?;
            Some(())
        },
    },
    Setting {
        name: "tcp_syncookies",
        place: 0,
        default: 1,
        take: |config, value| {
            config.syn_cookies = SynCookies::from_number(u8::try_from(value).ok()?)?;
            Some(())
        },
    },
    Setting {
        name: "tcp_timestamps",
        place: 0,
        default: 1,
        take: |config, value| {
            config.offers.timestamps = value != 0;
            Some(())
        },
    },
    Setting {
        name: "tcp_sack",
        place: 0,
        default: 1,
        take: |config, value| {
            config.offers.sack = value != 0;
            Some(())
        },
    },
    Setting {
        name: "tcp_window_scaling",
        place: 0,
        default: 1,
        take: |config, value| {
            config.offers.window_scaling = value != 0;
            Some(())
        },
    },
    Setting {
        name: "tcp_keepalive_time",
        place: 0,
        default: 7_200,
        take: |config, value| {
            config.socket_options.keepalive_idle = Duration::from_secs(u64::from(seconds(value)?));
            Some(())
        },
    },
    Setting {
        name: "tcp_keepalive_intvl",
        place: 0,
        default: 75,
        take: |config, value| {
            config.socket_options.keepalive_interval_s = seconds(value)?;
            Some(())
        },
    },
    Setting {
        name: "tcp_keepalive_probes",
        place: 0,
        default: 9,
        take: |config, value| {
            config.socket_options.keepalive_count = u8::try_from(value.clamp(1, 127)).ok()?;
            Some(())
        },
    },
    Setting {
        name: "tcp_min_tso_segs",
        place: 0,
        default: 2,
        take: |config, value| {
            config.socket_options.min_train_segments = u8::try_from(value).ok()?.max(1);
            Some(())
        },
    },
    Setting {
        name: "tcp_fin_timeout",
        place: 0,
        default: 60,
        take: |config, value| {
            // 0 is the default there.
            config.socket_options.fin_timeout_s = u16::try_from(value).ok()?.clamp(1, 3_600);
            Some(())
        },
    },
    Setting {
        name: "tcp_syn_retries",
        place: 0,
        default: 6,
        take: |config, value| {
            config.socket_options.retries.syn = count(value)?;
            Some(())
        },
    },
    Setting {
        name: "tcp_synack_retries",
        place: 0,
        default: 5,
        take: |config, value| {
            config.socket_options.retries.syn_ack = count(value)?;
            Some(())
        },
    },
    Setting {
        name: "tcp_retries2",
        place: 0,
        default: 15,
        take: |config, value| {
            config.socket_options.retries.data = count(value)?;
            Some(())
        },
    },
    Setting {
        name: "tcp_orphan_retries",
        place: 0,
        default: 0,
        take: |config, value| {
            // 0 is the default there.
            let orphan = if value == 0 {
                Retries::default().orphan
            } else {
                count(value)?
            };
            config.socket_options.retries.orphan = orphan;
            Some(())
        },
    },
];

/// As long as a program may ask for (`MAX_TCP_KEEPIDLE`).
fn seconds(value: u64) -> Option<u16> {
    let seconds = u16::try_from(value).ok()?;
    (1..=32_767).contains(&seconds).then_some(seconds)
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
pub(crate) struct Sysctls {
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
pub(crate) enum Taken {
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
    pub(crate) fn begin(core: u16, config: &mut Config) -> Self {
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
    pub(crate) fn follow(&mut self, core: u16, config: &mut Config) -> bool {
        let taken = self.look(config);
        tell(core, &taken);
        !taken.is_empty()
    }

    /// Takes over what differs from what it was; at the first look, from a kernel's defaults. What means nothing here is
    /// passed over.
    pub(crate) fn look(&mut self, config: &mut Config) -> Vec<Taken> {
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
