//! What a program has set on a socket: what its engine has to know of that, and what a connection has of it from its listener.

use std::os::fd::RawFd;
use std::sync::Arc;

use client::Shared;
use client::options::{int, note, translate};
use hostif::{OptionChanges, SocketOption};

use crate::backing;
use crate::stream::Stream;

/// One option as the program set it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    level: i32,
    name: i32,
    value: Vec<u8>,
}

/// What no connection has from its listener (`sk_clone`, `inet_csk_clone_lock`): neither what is told once, nor what is of the
/// listener, nor what the handshake had.
pub const OF_LISTENER: [(i32, i32); 6] = [
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::IPPROTO_IP, libc::IP_OPTIONS),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY),
];

/// Options whose value names memory of the program, or a descriptor: both may be something else when the call has returned.
const OF_THE_CALL: [(i32, i32); 4] = [
    (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF),
];

/// Whether an option's value means something in the program alone, and only while it sets it.
pub fn names_what_is_the_programs(level: i32, name: i32) -> bool {
    OF_THE_CALL.contains(&(level, name))
}

/// What the program has set on a socket, each option once, in order.
#[derive(Default)]
pub struct Log(Shared<Vec<Setting>>);

impl Log {
    /// Writes down a successful setsockopt; without its value where that does not last.
    pub fn record(&self, level: i32, name: i32, value: &[u8]) {
        let value = match names_what_is_the_programs(level, name) {
            true => &[],
            false => value,
        };
        self.0.change(|settings| {
            let mut settings = settings.map(|all| Vec::clone(all)).unwrap_or_default();
            settings.retain(|one| (one.level, one.name) != (level, name));
            settings.push(Setting {
                level,
                name,
                value: value.to_vec(),
            });
            Some(Arc::new(settings))
        });
    }

    /// Forgets options that were taken back.
    pub fn forget(&self, options: &[(i32, i32)]) {
        self.0.change(|settings| {
            let mut settings = settings.map(|all| Vec::clone(all)).unwrap_or_default();
            settings.retain(|one| !options.contains(&(one.level, one.name)));
            Some(Arc::new(settings))
        });
    }

    /// Starts with what a connection has from its listener.
    pub fn adopt(&self, listener: &Log) {
        let settings = listener.0.load();
        let all = settings.iter().flat_map(|settings| settings.iter());
        let inherited = all.filter(|one| !OF_LISTENER.contains(&(one.level, one.name)));
        self.0.store(Some(Arc::new(inherited.cloned().collect())));
    }

    /// Sets everything on another backing socket, as an accepted connection inherits it.
    pub fn replay(&self, fd: RawFd) {
        let settings = self.0.load();
        let all = settings.iter().flat_map(|settings| settings.iter());
        let lasts = |one: &&Setting| {
            !OF_LISTENER.contains(&(one.level, one.name))
                && !names_what_is_the_programs(one.level, one.name)
        };
        for setting in all.filter(lasts) {
            // What cannot be set twice (an option of the listener's state) was not inheritable.
            let _ = backing::set_option(fd, setting.level, setting.name, &setting.value);
        }
    }

    /// Tells the engine every option that was set.
    pub fn apply(&self, stream: &Stream) {
        stream.set_options(&self.changes());
        for setting in self.0.load().iter().flat_map(|settings| settings.iter()) {
            apply(stream, setting.level, setting.name, &setting.value);
        }
    }

    /// What the engine has to know of it.
    pub fn changes(&self) -> OptionChanges {
        let mut changes = OptionChanges::default();
        for setting in self.0.load().iter().flat_map(|settings| settings.iter()) {
            note(&mut changes, setting.level, setting.name, &setting.value);
        }
        changes
    }

    /// Calls `tell` for each option that was set: level, name, value.
    pub fn each(&self, tell: &mut dyn FnMut(i32, i32, &[u8])) {
        for setting in self.0.load().iter().flat_map(|settings| settings.iter()) {
            tell(setting.level, setting.name, &setting.value);
        }
    }

    /// The congestion control that was chosen, if the engine has it.
    pub fn congestion(&self) -> Option<&'static str> {
        hostif::figures::congestion::name(self.changes().congestion?)
    }

    /// Whether an option was set.
    pub fn has(&self, level: i32, name: i32) -> bool {
        let settings = self.0.load();
        let mut set = settings.iter().flat_map(|settings| settings.iter());
        set.any(|one| (one.level, one.name) == (level, name))
    }

    /// Whether an option with a switch for its value is on.
    pub fn is_on(&self, level: i32, name: i32) -> bool {
        let settings = self.0.load();
        let mut set = settings.iter().flat_map(|settings| settings.iter());
        set.find(|one| (one.level, one.name) == (level, name))
            .and_then(|one| int(&one.value))
            .is_some_and(|value| value != 0)
    }

    /// SO_LINGER's time, if it is on.
    pub fn linger_s(&self) -> Option<u32> {
        self.changes().linger_s.flatten()
    }
}

/// Tells the engine of one setting, and the stream of what concerns this process; all others are ignored.
pub fn apply(stream: &Stream, level: i32, name: i32, value: &[u8]) {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) {
        return stream.set_fast_open_keys(value);
    }
    let Some(number) = int(value) else { return };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => stream.set_urgent_in_line(number != 0),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => {
            return stream.set_unsent_limit(number.cast_unsigned());
        }
        _ => {}
    }
    let stamps = [
        libc::SO_TIMESTAMP,
        libc::SO_TIMESTAMPNS,
        libc::SO_TIMESTAMPING,
    ];
    if level == libc::SOL_SOCKET && stamps.contains(&name) {
        // Never taken back: another of them may be on.
        if is_asked(name, number) {
            stream.set_option(SocketOption::ArrivalTimes, 1);
        }
    } else if let Some((option, value)) = translate(level, name, number) {
        stream.set_option(option, value);
    }
}

/// linux/net_tstamp.h.
pub const RX_SOFTWARE: i32 = 1 << 3;
/// linux/net_tstamp.h.
pub const SOFTWARE: i32 = 1 << 4;

/// Whether the value asks for times of arrival.
pub fn is_asked(name: i32, value: i32) -> bool {
    match name {
        libc::SO_TIMESTAMPING => value & (RX_SOFTWARE | SOFTWARE) == RX_SOFTWARE | SOFTWARE,
        _ => value != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_one_command_and_the_last_value_counts() {
        let log = Log::default();
        log.record(libc::IPPROTO_TCP, libc::TCP_NODELAY, &1_i32.to_ne_bytes());
        log.record(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &30_i32.to_ne_bytes());
        log.record(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &60_i32.to_ne_bytes());
        log.record(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32.to_ne_bytes());
        let expected = OptionChanges {
            no_delay: Some(true),
            keep_idle_s: Some(60),
            ..OptionChanges::default()
        };
        assert_eq!(log.changes(), expected);
    }

    #[test]
    fn where_a_filter_was_is_not_remembered() {
        let (log, attach) = (Log::default(), libc::SO_ATTACH_FILTER);
        log.record(libc::SOL_SOCKET, attach, &[1; 16]);
        let mut told = Vec::new();
        log.each(&mut |_, name, value| told.push((name, value.to_vec())));
        assert_eq!(told, [(attach, Vec::new())]);
        assert!(log.has(libc::SOL_SOCKET, attach));
    }

    #[test]
    fn linger_has_a_switch_and_a_time() {
        let linger = |on: i32, seconds: i32| {
            let log = Log::default();
            let value = [on.to_ne_bytes(), seconds.to_ne_bytes()].concat();
            log.record(libc::SOL_SOCKET, libc::SO_LINGER, &value);
            log.changes().linger_s
        };
        assert_eq!(linger(1, 5), Some(Some(5)));
        assert_eq!(linger(1, 0), Some(Some(0)));
        assert_eq!(linger(0, 5), Some(None));
    }

    #[test]
    fn an_accepted_socket_starts_with_its_listeners_options() {
        let (listener, accepted) = (Log::default(), Log::default());
        listener.record(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1_i32.to_ne_bytes());
        accepted.adopt(&listener);
        assert_eq!(accepted.changes().keep_alive, Some(true));
    }
}
