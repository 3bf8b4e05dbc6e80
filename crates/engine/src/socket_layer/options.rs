//! Socket options: what a program sets on a socket, and what its connections inherit (tcp(7), ip(7)).
//!
//! The kernel has judged the values on the backing socket; they are bounded here all the same.

use super::SocketLayer;
use hostif::{FastOpenKeys, OptionChanges, SocketOption};
use rustix::io::Errno;
use tcp::{Duration, Instant, SocketOptions};

/// Longest deferring of an accept that is counted in SYN-ACK timeouts.
const DEFER_RETRIES_MAX: u8 = 16;
/// First timeout of a SYN-ACK, doubled each time up to the largest, in seconds.
const FIRST_TIMEOUT_S: u64 = 1;
const LAST_TIMEOUT_S: u64 = 120;

impl SocketLayer {
    pub(crate) fn set_options(&mut self, now: Instant, row: u32, changes: &OptionChanges) {
        self.sockets.change(row, |record| {
            let options = &mut record.options;
            options.nodelay = changes.no_delay.unwrap_or(options.nodelay);
            options.keepalive = changes.keep_alive.unwrap_or(options.keepalive);
            // Within Linux's MAX_TCP_KEEPIDLE, _KEEPINTVL, _KEEPCNT: 0 would be a timer that never rests.
            if let Some(seconds) = changes.keep_idle_s {
                options.keepalive_idle = Duration::from_secs(u64::from(seconds.clamp(1, 32_767)));
            }
            if let Some(seconds) = changes.keep_interval_s {
                options.keepalive_interval_s =
                    u16::try_from(seconds.clamp(1, 32_767)).unwrap_or(u16::MAX);
            }
            if let Some(count) = changes.keep_count {
                options.keepalive_count = u8::try_from(count.clamp(1, 127)).unwrap_or(127);
            }
            if let Some(ms) = changes.user_timeout_ms {
                options.user_timeout = Duration::from_ms(u64::from(ms));
            }
            options.receive_limit = changes
                .receive_buffer_bytes
                .unwrap_or(options.receive_limit);
            super::congestion::take(options, changes);
            if let Some(linger) = changes.linger_s {
                record.linger = linger.is_some();
                record.linger_s = linger.unwrap_or(0);
            }
        });
        self.sockets.publish_congestion(row);
        if let Some(bytes) = changes.send_buffer_bytes {
            self.sockets.change(row, |record| record.send_limit = bytes);
            self.sockets.publish_capacity(row);
            self.sockets.wake_writer(row);
        }
        self.apply_options(now, row);
        if let (Some(true), Some(connection)) =
            (changes.no_delay, self.sockets.row(row).connection())
        {
            let _ = self.stack.push(now, connection, &mut self.sockets);
        }
        self.place_window(row);
    }

    /// How far a connection has sent is told from now on as it sends, and what it has sent before here.
    fn publish_sent(&mut self, row: u32) {
        let connection = self.sockets.row(row).connection();
        if let Some(Ok(sent)) = connection.map(|id| self.stack.sent(id)) {
            self.sockets.note_sent(row, sent);
        }
    }

    /// One of the rarer options.
    pub(crate) fn set_option(
        &mut self,
        now: Instant,
        row: u32,
        option: SocketOption,
        value: u64,
    ) -> Result<u64, Errno> {
        let byte = u8::try_from(value).unwrap_or(u8::MAX);
        match option {
            SocketOption::QuickAck => {
                if let Some(connection) = self.sockets.row(row).connection() {
                    let _ =
                        self.stack
                            .set_quick_ack(now, connection, value != 0, &mut self.sockets);
                }
            }
            SocketOption::FastOpen => {
                let most = u16::try_from(value).unwrap_or(u16::MAX);
                self.sockets.change(row, |record| record.fast_open = most);
                self.apply_fast_open(row)?;
            }
            SocketOption::ArrivalTimes => {
                self.sockets
                    .change(row, |record| record.tells_arrival = value != 0);
            }
            SocketOption::Stamp => {
                let (end, wants) = hostif::stamp::unpack(value);
                self.stamps
                    .ask(&self.stack, &mut self.sockets, row, end, wants);
            }
            SocketOption::SaveSyn => {
                self.sockets
                    .change(row, |record| record.save_syn = value != 0);
            }
            SocketOption::TypeOfService | SocketOption::TimeToLive => {
                self.sockets.change(row, |record| match option {
                    SocketOption::TypeOfService => record.tos = byte,
                    _ => record.ttl = byte,
                });
                let record = *self.sockets.row(row);
                if let Some(connection) = record.connection() {
                    let _ = self.stack.set_ip_options(connection, record.ip());
                }
            }
            _ => {
                self.sockets.change(row, |record| {
                    set_tcp_option(&mut record.options, option, value)
                });
                self.apply_options(now, row);
                if option == SocketOption::NotSentLowWater {
                    self.publish_sent(row);
                }
            }
        }
        Ok(0)
    }

    /// `TCP_FASTOPEN_KEY`.
    pub(crate) fn set_fast_open_keys(
        &mut self,
        row: u32,
        keys: &FastOpenKeys,
    ) -> Result<u64, Errno> {
        self.sockets.companion(row).fast_open_keys = Some(Box::new(*keys));
        self.apply_fast_open(row)?;
        Ok(0)
    }

    /// Tells a listener how it may use Fast Open; another socket may become one.
    pub(crate) fn apply_fast_open(&mut self, row: u32) -> Result<(), Errno> {
        let Some(listener) = self.sockets.row(row).listener() else {
            return Ok(());
        };
        let most = u32::from(self.sockets.row(row).fast_open);
        self.stack
            .set_fast_open(listener, most)
            .map_err(crate::errno::of_stack)?;
        let Some(keys) = &self.sockets.companion(row).fast_open_keys else {
            return Ok(());
        };
        let both = [keys.primary, keys.backup.unwrap_or_default()];
        let count = 1 + usize::from(keys.backup.is_some());
        self.stack
            .set_fast_open_keys(listener, &both[..count])
            .map_err(crate::errno::of_stack)
    }

    fn apply_options(&mut self, now: Instant, row: u32) {
        let record = *self.sockets.row(row);
        if let Some(connection) = record.connection() {
            let _ = self
                .stack
                .set_options(now, connection, &record.options, &mut self.sockets);
        }
    }
}

fn set_tcp_option(options: &mut SocketOptions, option: SocketOption, value: u64) {
    let byte = u8::try_from(value).unwrap_or(u8::MAX);
    let half = u16::try_from(value).unwrap_or(u16::MAX);
    let word = u32::try_from(value).unwrap_or(u32::MAX);
    match option {
        SocketOption::Cork => options.cork = value != 0,
        SocketOption::MaxSegment => options.max_segment = half,
        SocketOption::NotSentLowWater => options.notsent_low_water = word,
        SocketOption::FinTimeout => options.fin_timeout_s = half,
        // Linux MAX_TCP_SYNCNT.
        SocketOption::SynCount => options.syn_retries = byte.min(127),
        SocketOption::WindowClamp => options.window_clamp = word,
        SocketOption::DeferAccept => options.defer_accept = retries_within(value),
        _ => {}
    }
}

/// How many SYN-ACK timeouts fit into so many seconds (Linux `secs_to_retrans`).
fn retries_within(seconds: u64) -> u8 {
    let (mut retries, mut timeout, mut period) = (0, FIRST_TIMEOUT_S, FIRST_TIMEOUT_S);
    if seconds == 0 {
        return 0;
    }
    retries += 1;
    while seconds > period && retries < DEFER_RETRIES_MAX {
        retries += 1;
        timeout = (2 * timeout).min(LAST_TIMEOUT_S);
        period += timeout;
    }
    retries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_timeouts_as_linux_counts_them() {
        // secs_to_retrans of Linux: 1, 3, 7, 15, 31, 63, 127, 247 seconds are reached by so many.
        let told: Vec<u8> = [0, 1, 2, 3, 4, 7, 8, 30, 127, 128, u64::MAX]
            .into_iter()
            .map(retries_within)
            .collect();
        assert_eq!(told, [0, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16]);
    }
}
