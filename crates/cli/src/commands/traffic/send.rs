//! The sending end: one transfer per line of standard input, one line of answer for each.

use std::{
    io::{self, BufRead, Read, Write},
    net::{Shutdown, TcpStream},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{ANSWER_BYTES, Answer, Order, Outcome, PERIOD, content, place};
use crate::sys;

/// Bytes given to one write.
const PIECE_BYTES: usize = PERIOD;

/// Serves orders until standard input ends.
pub fn execute() -> anyhow::Result<ExitCode> {
    let content = content();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let order: Order =
            serde_json::from_str(&line.context("reading an order")?).context("reading an order")?;
        let outcome = transfer(&order, &content);
        writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn transfer(order: &Order, content: &[u8]) -> Outcome {
    let begun = Instant::now();
    let result = attempt(order, content, begun);
    let seconds = begun.elapsed().as_secs_f64();
    let (answer, error) = match result {
        Ok(answer) if answer.right == 1 => (answer, None),
        Ok(answer) => (answer, Some("the bytes that arrived were wrong".to_owned())),
        Err(error) => (Answer::default(), Some(error.to_string())),
    };
    Outcome {
        seconds,
        bytes: answer.bytes,
        later_bytes: answer.later_bytes,
        later_seconds: Duration::from_micros(answer.later_us).as_secs_f64(),
        error,
    }
}

fn attempt(order: &Order, content: &[u8], begun: Instant) -> io::Result<Answer> {
    let patience = Duration::from_secs_f64(order.patience_seconds);
    let mut stream = sys::connect_with_congestion(order.to, &order.congestion)?;
    let left = |stream: &TcpStream| -> io::Result<()> {
        let left = patience.checked_sub(begun.elapsed());
        let left = left.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
        stream.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))
    };
    left(&stream)?;
    let skip_us = Duration::from_secs_f64(order.skip_seconds).as_micros();
    stream.write_all(&u64::try_from(skip_us).unwrap_or(u64::MAX).to_le_bytes())?;
    let end = order.seconds.map(Duration::from_secs_f64);
    let mut sent = 0;
    while sent < order.bytes && end.is_none_or(|end| begun.elapsed() < end) {
        let piece = usize::try_from(order.bytes - sent)
            .unwrap_or(PIECE_BYTES)
            .min(PIECE_BYTES);
        let at = place(sent);
        let len = stream.write(&content[at..at + piece])?;
        sent += len as u64;
        if begun.elapsed() > patience {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    stream.shutdown(Shutdown::Write)?;
    left(&stream)?;
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer)?;
    let answer = Answer::parse(&answer);
    if answer.bytes == sent {
        Ok(answer)
    } else {
        let text = format!("sent {sent} bytes, {} arrived", answer.bytes);
        Err(io::Error::other(text))
    }
}
