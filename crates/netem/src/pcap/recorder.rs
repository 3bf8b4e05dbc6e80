//! Records both directions of any driver to a pcapng file.
//!
//! Frames are recorded as the driver sees them: large segments whole, checksums unfinished where
//! they are. Writing blocks the caller now and then: this is for looking, not for speed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::format::{Direction, Writer};
use nic::{Caps, Driver, Presence, RxFrame, TxFrame, forward_driver};

/// Bytes held back at most before they are written.
const BUFFER_BYTES: usize = 1024 * 1024;

/// A driver whose frames are recorded. A failing file never stops the frames.
pub struct Recorder<D> {
    inner: D,
    caps: Caps,
    log: Log,
}

/// The file, until it fails.
struct Log {
    writer: Option<Writer<BufWriter<Box<dyn Write + Send>>>>,
    error: Option<io::Error>,
    recorded: u64,
    unrecorded: u64,
    whole: Vec<u8>,
}

impl Log {
    fn add(&mut self, direction: Direction, bytes: &[u8]) {
        let Some(writer) = &mut self.writer else {
            self.unrecorded += 1;
            return;
        };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match writer.packet((0, direction), now_ns(), bytes, len) {
            Ok(()) => self.recorded += 1,
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.error = Some(error);
        self.unrecorded += 1;
        self.writer = None;
    }

    fn add_sent(&mut self, frame: &TxFrame<'_>) {
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(frame.headers);
        for span in &frame.payload {
            span.append_to(&mut whole);
        }
        self.add(Direction::Outbound, &whole);
        self.whole = whole;
    }
}

/// A clock before 1970 or after 2554 is recorded as 0.
fn now_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
}

impl<D: Driver> Recorder<D> {
    /// Records `inner` to a new file at `path`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(inner: D, path: &Path, interface: &str) -> io::Result<Self> {
        Self::new(inner, Box::new(File::create(path)?), interface)
    }

    /// Records `inner` to `output`; `interface` is the name that the capture shows.
    ///
    /// # Errors
    /// The start of the file cannot be written.
    pub fn new(inner: D, output: Box<dyn Write + Send>, interface: &str) -> io::Result<Self> {
        let output = BufWriter::with_capacity(BUFFER_BYTES, output);
        let writer = Some(Writer::new(output, &[interface])?);
        let whole = Vec::new();
        // The payload is read here, for the file.
        let caps = Caps {
            payload_by_address: false,
            ..inner.caps().clone()
        };
        Ok(Self {
            inner,
            caps,
            log: Log {
                writer,
                error: None,
                recorded: 0,
                unrecorded: 0,
                whole,
            },
        })
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// The file failed, now or before; what was written before that stays.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(error) = self.log.error.take() {
            return Err(error);
        }
        self.log.writer.as_mut().map_or(Ok(()), Writer::flush)
    }

    /// Frames recorded, and frames that passed after the file failed.
    pub fn recorded(&self) -> (u64, u64) {
        (self.log.recorded, self.log.unrecorded)
    }

    /// The recorded driver.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D> Drop for Recorder<D> {
    fn drop(&mut self) {
        // Nobody is left to tell; `flush` is for those who want to know.
        if let Some(writer) = &mut self.log.writer {
            let _ = writer.flush();
        }
    }
}

impl<D: Driver> Driver for Recorder<D> {
    forward_driver!(this => this.inner;
        may_have_frames, flush_tx, wait_fd, prepare_wait, stop_watch, wait_deadline_us, listen_to, poll_local_peer, has_peer_news, counters, mode, complaints);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let log = &mut self.log;
        self.inner.rx_burst(budget, &mut |frame| {
            log.add(Direction::Inbound, frame.bytes);
            sink(frame);
        })
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        let taken = self.inner.tx_burst(frames)?;
        for frame in &frames[..taken] {
            self.log.add_sent(frame);
        }
        Ok(taken)
    }

    fn attend(&mut self) -> Presence {
        let presence = self.inner.attend();
        let caps = self.inner.caps();
        (self.caps.mtu, self.caps.hardware_address) = (caps.mtu, caps.hardware_address);
        presence
    }
}
