//! What the kernel's stack costs over loopback, in one thread: a send there does the sender's and the
//! receiver's protocol work, so send and receive together are one direction's whole cost.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Instant,
};

use anyhow::Context;
use rustix::{
    net::{AddressFamily, SocketType, socket},
    time::{ClockId, clock_gettime},
};
use sim::plan::Value;

use super::value;

/// Rounds of one batch.
const ROUNDS: u32 = 5000;
const SMALL: usize = 64;
const LARGE: usize = 16 * 1024;

/// The kernel's costs by name.
pub fn measure(batches: u8) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let (mut near, mut far) = pair()?;
    let (mut sends, mut receives, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut connections, mut wakes) = (Vec::new(), Vec::new());
    // The first batch warms caches and the congestion window.
    one_way(&mut near, &mut far, SMALL)?;
    for _ in 0..batches {
        let (send, receive) = one_way(&mut near, &mut far, SMALL)?;
        let (large_send, large_receive) = one_way(&mut near, &mut far, LARGE)?;
        let more = large_send + large_receive - send - receive;
        // Two copies: the sender's and the receiver's.
        bytes.push((more / (LARGE - SMALL) as f64 / 2.0).max(0.0));
        sends.push(send);
        receives.push(receive);
        connections.push(sockets()?);
        wakes.push(wake(send + receive)?);
    }
    Ok(vec![
        (
            "send_ns",
            value(
                &sends,
                "TCP over loopback, one thread, 64 B: send, with the peer's softirq",
            )?,
        ),
        (
            "receive_ns",
            value(&receives, "TCP over loopback, one thread, 64 B: receive")?,
        ),
        (
            "byte_ns",
            value(&bytes, "the same with 16 KiB, per byte and copy")?,
        ),
        ("connection_ns", value(&connections, "socket and close")?),
        (
            "wake_ns",
            value(
                &wakes,
                "processor time of a sleeping ping-pong less its calls, per wake-up",
            )?,
        ),
    ])
}

/// Two ends of a connection over loopback.
pub fn pair() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listening on loopback")?;
    let address = listener.local_addr().context("listening on loopback")?;
    let near = TcpStream::connect(address).context("connecting over loopback")?;
    let (far, _) = listener.accept().context("accepting over loopback")?;
    for end in [&near, &far] {
        end.set_nodelay(true).context("TCP_NODELAY")?;
    }
    Ok((near, far))
}

/// Nanoseconds of a send and of a receive of this size.
fn one_way(near: &mut TcpStream, far: &mut TcpStream, size: usize) -> anyhow::Result<(f64, f64)> {
    let mut buffer = vec![0; size];
    let (mut send, mut receive) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        near.write_all(&buffer).context("sending over loopback")?;
        let sent = Instant::now();
        far.read_exact(&mut buffer)
            .context("receiving over loopback")?;
        send += (sent - start).as_secs_f64();
        receive += sent.elapsed().as_secs_f64();
    }
    let per_round = 1e9 / f64::from(ROUNDS);
    Ok((send * per_round, receive * per_round))
}

/// Nanoseconds of creating and closing a socket.
fn sockets() -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        drop(socket(AddressFamily::INET, SocketType::STREAM, None).context("socket")?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS))
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Nanoseconds of processor time of one wake-up: a ping-pong of two threads that sleep, less its calls.
fn wake(calls_ns: f64) -> anyhow::Result<f64> {
    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || {
        let mut byte = [0; SMALL];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut byte = [0; SMALL];
    let start = processor_seconds();
    for _ in 0..ROUNDS {
        near.write_all(&byte).context("sending over loopback")?;
        near.read_exact(&mut byte)
            .context("receiving over loopback")?;
    }
    let round_ns = (processor_seconds() - start) * 1e9 / f64::from(ROUNDS);
    drop(near);
    let _ = echo.join();
    Ok(((round_ns - 2.0 * calls_ns) / 2.0).max(0.0))
}
