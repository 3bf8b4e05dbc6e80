//! What is taken over of settings, and what is not.

use super::*;
use std::path::PathBuf;

/// A folder with settings, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str, settings: &[(&str, &str)]) -> Self {
        let name = format!("shunt-sysctl-{test}-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0).unwrap();
        for (name, value) in settings {
            folder.set(name, value);
        }
        folder
    }

    fn set(&self, name: &str, value: &str) {
        std::fs::write(self.0.join(name), format!("{value}\n")).unwrap();
    }

    fn followed(&self) -> Sysctls {
        Sysctls::open_in(&self.0, &names().collect::<Vec<_>>())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config() -> Config {
    Config::new("eth0", "tap", Vec::new())
}

fn told(taken: &[Taken]) -> Vec<String> {
    taken.iter().map(Taken::to_string).collect()
}

#[test]
fn what_was_set_is_taken_and_named_and_so_is_a_change() {
    let folder = Folder::new(
        "set",
        &[
            ("tcp_ecn", "1"),
            ("tcp_timestamps", "0"),
            ("tcp_keepalive_time", "600"),
            ("tcp_retries2", "8"),
            ("tcp_sack", "1"),
        ],
    );
    let (mut config, mut sysctls) = (config(), folder.followed());
    assert_eq!(
        told(&sysctls.look(&mut config)),
        [
            "tcp_ecn=1",
            "tcp_timestamps=0",
            "tcp_keepalive_time=600",
            "tcp_retries2=8"
        ]
    );
    let options = config.socket_options;
    assert_eq!(options.ecn, EcnMode::Request);
    assert_eq!(options.keepalive_idle, Duration::from_secs(600));
    assert_eq!(
        options.retries,
        Retries {
            data: 8,
            ..Retries::default()
        }
    );
    assert!(!config.offers.timestamps && config.offers.sack);
    assert!(sysctls.look(&mut config).is_empty());

    folder.set("tcp_timestamps", "1");
    folder.set("tcp_sack", "0");
    assert_eq!(
        told(&sysctls.look(&mut config)),
        ["tcp_timestamps=1", "tcp_sack=0"]
    );
    assert!(config.offers.timestamps && !config.offers.sack);
}

#[test]
fn only_what_is_followed_is_taken() {
    let folder = Folder::new("some", &[("tcp_ecn", "1"), ("tcp_sack", "0")]);
    let mut config = config();
    let mut sysctls = Sysctls::open_in(&folder.0, &["tcp_sack", "tcp_fastopen"]);
    assert_eq!(told(&sysctls.look(&mut config)), ["tcp_sack=0"]);
}

#[test]
fn defaults_and_what_means_nothing_change_nothing() {
    let folder = Folder::new(
        "nothing",
        &[
            ("tcp_ecn", "2"),
            ("tcp_syncookies", "9"),
            ("tcp_keepalive_intvl", "0"),
            ("tcp_keepalive_time", "999999"),
            ("tcp_retries2", "4000"),
            ("tcp_sack", "yes"),
            ("tcp_window_scaling", ""),
        ],
    );
    let mut config = config();
    assert!(folder.followed().look(&mut config).is_empty());
    let untouched = self::config();
    assert_eq!(config.socket_options, untouched.socket_options);
    assert_eq!(config.offers, untouched.offers);
}

#[test]
fn each_of_several_values_is_taken() {
    let folder = Folder::new("several", &[("tcp_rmem", "4096\t540000\t15728640")]);
    let mut config = config();
    assert_eq!(
        told(&folder.followed().look(&mut config)),
        ["tcp_rmem=540000", "tcp_rmem=15728640"]
    );
    assert_eq!(config.receive_offer, 270_000);
    assert_eq!(config.receive_buffer_max, 15_728_640);
}

#[test]
fn the_defaults_named_here_are_those_of_an_engine() {
    let mut config = config();
    // An engine's own default of this one stands for a number.
    for setting in SETTINGS.iter().filter(|one| one.name != "tcp_fin_timeout") {
        let taken = (setting.take)(&mut config, setting.default);
        assert!(taken.is_some(), "{}", setting.name);
    }
    let untouched = self::config();
    assert_eq!(config.socket_options, untouched.socket_options);
    assert_eq!(config.offers, untouched.offers);
    assert_eq!(
        (config.fast_open, config.syn_cookies),
        (untouched.fast_open, untouched.syn_cookies)
    );
    assert_eq!(config.protects_time_wait, untouched.protects_time_wait);
}

#[test]
fn keys_of_fast_open_are_taken_but_not_told() {
    let zeros = "00000000-00000000-00000000-00000000";
    let folder = Folder::new("key", &[("tcp_fastopen_key", zeros)]);
    let (mut config, mut sysctls) = (config(), folder.followed());
    assert!(told(&sysctls.look(&mut config)).is_empty());
    folder.set("tcp_fastopen_key", "1-0-0-0,2-0-0-0");
    assert_eq!(told(&sysctls.look(&mut config)), ["tcp_fastopen_key"]);
    let key = |first| Some(u128::from(first).to_le_bytes());
    assert_eq!(config.fast_open_keys, [key(1_u8), key(2_u8)]);
    assert!(sysctls.look(&mut config).is_empty());
}
