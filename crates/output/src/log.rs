//! What a running engine says on its standard error, written by a thread of its own: whoever logs never waits for a
//! reader, a disk or a terminal, and what cannot be written ends nothing.
//!
//! Lines wait in a bounded queue. One that finds no room, or cannot be written, is counted, and once lines are
//! written again one of them says how many were lost; `shunt status` has the number too.

use std::{
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

/// Lines that wait at most.
const QUEUE_LINES: usize = 1024;

/// A longer line is cut: with the bound above, the memory that the queue can take.
const LINE_BYTES: usize = 4096;

/// How long the end of the process waits for lines that are still to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

static LOG: OnceLock<Log> = OnceLock::new();

/// Makes a line of a sentence for people, where the log is not for people.
pub type Form = fn(&str) -> String;

/// The queue's end of whoever has something to say.
struct Log {
    lines: SyncSender<String>,
    form: Option<Form>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// In the queue or just being written.
    waiting: AtomicU64,
    /// Found no room, or could not be written.
    lost: Arc<AtomicU64>,
}

/// From now on this process says everything through the queue, sentences for people in that form. Only the first call
/// counts. The thread that writes begins with `prepare`.
pub fn start(form: Option<Form>, prepare: fn()) -> anyhow::Result<()> {
    let (log, queue) = Log::new(form);
    let counts = Arc::clone(&log.counts);
    if LOG.set(log).is_ok() {
        let mut torn = false;
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                prepare();
                write_lines(&queue, &counts, form, |text| write_out(text, &mut torn));
            })
            .context("starting the thread that writes the log")?;
    }
    Ok(())
}

/// The number of lines that were lost, as it grows.
pub fn lost_lines() -> Arc<AtomicU64> {
    let log = LOG.get();
    log.map_or_else(Arc::default, |log| Arc::clone(&log.counts.lost))
}

/// Queues a sentence for people, with its end. Says whether there is a queue: this process is an engine.
pub fn try_line(text: &str) -> bool {
    let log = LOG.get();
    log.inspect(|log| log.push(&formed(log.form, text)))
        .is_some()
}

fn formed(form: Option<Form>, text: &str) -> String {
    form.map_or_else(
        || text.to_owned(),
        |form| format!("{}\n", form(text.trim_end())),
    )
}

/// Waits until what was said is written, a moment at most: standard error may be a pipe that nobody reads.
pub fn flush() {
    let Some(log) = LOG.get() else { return };
    let deadline = Instant::now() + LAST_WORDS;
    while log.counts.waiting.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// For `tracing_subscriber`, which writes each event in one call.
#[derive(Debug, Clone, Copy)]
pub struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(log) = LOG.get() {
            log.push(&String::from_utf8_lossy(bytes));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn new(form: Option<Form>) -> (Self, Receiver<String>) {
        let (lines, queue) = sync_channel(QUEUE_LINES);
        let counts = Arc::default();
        let log = Self {
            lines,
            form,
            counts,
        };
        (log, queue)
    }

    fn push(&self, text: &str) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if self.lines.try_send(cut(text)).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            self.counts.waiting.fetch_sub(1, Ordering::Release);
        }
    }
}

/// At most [`LINE_BYTES`] of a line, with an end.
fn cut(text: &str) -> String {
    if text.len() <= LINE_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LINE_BYTES);
    format!("{}…\n", &text[..end])
}

/// Writes what comes out of the queue until nobody is left to fill it.
fn write_lines(
    queue: &Receiver<String>,
    counts: &Counts,
    form: Option<Form>,
    mut write: impl FnMut(&str) -> io::Result<()>,
) {
    let mut told = 0;
    for line in queue {
        let lost = counts.lost.load(Ordering::Relaxed);
        let gap = lost - told;
        let word = || formed(form, &format!("shunt: {gap} lines of this log were lost\n"));
        if gap > 0 && write(&word()).is_ok() {
            told = lost;
        }
        if write(&line).is_err() {
            counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        counts.waiting.fetch_sub(1, Ordering::Release);
    }
}

/// Writes all of a text to standard error, however long that takes. `torn`: the last line was not written to its end.
fn write_out(text: &str, torn: &mut bool) -> io::Result<()> {
    let whole = format!("\n{text}");
    let mut rest = if *torn { &whole } else { text }.as_bytes();
    let length = rest.len();
    while !rest.is_empty() {
        let stderr = rustix::stdio::stderr();
        match rustix::io::write(stderr, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            // Whoever gave it to us does not wait for it; this thread may.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
            }
            Err(error) => {
                *torn |= rest.len() < length;
                return Err(error.into());
            }
        }
    }
    *torn = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_room_are_counted_and_said_once_there_is_room() {
        let (log, queue) = Log::new(None);
        let counts = Arc::clone(&log.counts);
        for number in 0..QUEUE_LINES + 7 {
            log.push(&format!("line {number}\n"));
        }
        assert_eq!(counts.lost.load(Ordering::Relaxed), 7);
        drop(log);
        let mut written = Vec::new();
        write_lines(&queue, &counts, None, |text| {
            written.push(text.to_owned());
            Ok(())
        });
        assert_eq!(written[0], "shunt: 7 lines of this log were lost\n");
        assert_eq!(written[1], "line 0\n");
        assert_eq!(written.len(), QUEUE_LINES + 1);
        assert_eq!(counts.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost_and_said_when_others_can() {
        let (log, queue) = Log::new(None);
        let counts = Arc::clone(&log.counts);
        for number in 0..3 {
            log.push(&format!("line {number}\n"));
        }
        drop(log);
        let (mut calls, mut written) = (0, Vec::new());
        write_lines(&queue, &counts, None, |text| {
            calls += 1;
            // The first line, then the word that it was lost together with the second.
            if calls <= 3 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            written.push(text.to_owned());
            Ok(())
        });
        assert_eq!(
            written,
            ["shunt: 2 lines of this log were lost\n", "line 2\n"]
        );
        assert_eq!(counts.lost.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn sentences_take_the_form_of_the_log() {
        assert_eq!(formed(None, "a\n"), "a\n");
        assert_eq!(formed(Some(|text| format!("<{text}>")), "a\n"), "<a>\n");
    }

    #[test]
    fn a_long_line_is_cut_where_a_character_ends() {
        let line = "ä".repeat(LINE_BYTES);
        let cut = cut(&line);
        assert!(cut.len() <= LINE_BYTES + 4 && cut.ends_with("ä…\n"));
    }
}
