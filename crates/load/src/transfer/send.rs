//! The sending end: one transfer per line of standard input, one line of answer for each.

use std::{
    io::{self, BufRead, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{ANSWER_BYTES, Answer, Hello, Order, Outcome, PERIOD, Span, content, place};
use crate::sys;

/// Bytes given to one write.
const PIECE_BYTES: usize = PERIOD;

/// Serves orders until standard input ends.
pub fn execute() -> anyhow::Result<()> {
    let content = content();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let order: Order =
            serde_json::from_str(&line.context("reading an order")?).context("reading an order")?;
        let outcome = transfer(&order, &content);
        writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
        out.flush()?;
    }
    Ok(())
}

fn transfer(order: &Order, content: &[u8]) -> Outcome {
    let begun = Instant::now();
    let result = attempt(order, content, begun);
    let seconds = begun.elapsed().as_secs_f64();
    let (bytes, error) = match result {
        Ok(Answer { bytes, right: true }) => (bytes, None),
        Ok(_) => (0, Some("the bytes that arrived were wrong".to_owned())),
        Err(error) => (0, Some(error.to_string())),
    };
    Outcome {
        seconds,
        bytes,
        error,
    }
}

fn attempt(order: &Order, content: &[u8], begun: Instant) -> io::Result<Answer> {
    let end = begun + Duration::from_secs_f64(order.patience_seconds);
    let mut stream = sys::connect_with_congestion(order.to, &order.congestion)?;
    let answer = match order.span {
        None => whole(&mut stream, order.bytes, content, end),
        Some(span) => for_a_time(&mut stream, span, content, end),
    };
    if order.span.is_some() || answer.is_err() {
        // What is left of this flow must not share the line with the next one.
        sys::abort_on_close(&stream)?;
    }
    answer
}

/// Sends a number of bytes and waits until the receiver has all of them.
fn whole(stream: &mut TcpStream, bytes: u64, content: &[u8], end: Instant) -> io::Result<Answer> {
    stream.set_write_timeout(Some(left(end)?))?;
    stream.write_all(&Hello::default().emit())?;
    let mut sent = 0;
    while sent < bytes {
        sent += write_piece(stream, content, sent, bytes - sent)?;
        left(end)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let answer = read_answer(stream, end)?;
    if answer.bytes == bytes {
        Ok(answer)
    } else {
        let text = format!("sent {bytes} bytes, {} arrived", answer.bytes);
        Err(io::Error::other(text))
    }
}

/// Sends until the receiver has counted for long enough.
fn for_a_time(
    stream: &mut TcpStream,
    span: Span,
    content: &[u8],
    end: Instant,
) -> io::Result<Answer> {
    let us = |seconds: f64| {
        u64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap_or(u64::MAX)
    };
    let hello = Hello {
        skip_us: us(span.skip_seconds),
        span_us: us(span.seconds),
    };
    stream.write_all(&hello.emit())?;
    // A full send buffer must not hold us past the end.
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    let stop = Instant::now() + Duration::from_secs_f64(span.skip_seconds + span.seconds);
    let mut sent = 0;
    while Instant::now() < stop {
        match write_piece(stream, content, sent, u64::MAX) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    read_answer(stream, end)
}

fn write_piece(stream: &mut TcpStream, content: &[u8], sent: u64, most: u64) -> io::Result<u64> {
    let piece = usize::try_from(most)
        .unwrap_or(PIECE_BYTES)
        .min(PIECE_BYTES);
    let at = place(sent);
    Ok(stream.write(&content[at..at + piece])? as u64)
}

fn read_answer(stream: &mut TcpStream, end: Instant) -> io::Result<Answer> {
    stream.set_read_timeout(Some(left(end)?))?;
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer)?;
    Ok(Answer::parse(answer))
}

/// Time left, never so little that a time-out would mean none.
fn left(end: Instant) -> io::Result<Duration> {
    end.checked_duration_since(Instant::now())
        .map(|left| left.max(Duration::from_millis(1)))
        .ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))
}
