//! Many sockets in one call: what all of them did is told to an engine that sleeps with one ring.

use std::io;

use client::Session;

use crate::engine;
use crate::half::{ReceiveHalf, SendHalf};

/// Bytes for one of several streams.
pub struct SendItem<'a> {
    /// Where to.
    pub half: &'a mut SendHalf,
    /// What.
    pub bytes: &'a [u8],
    /// How many of them were sent, as of [`SendHalf::try_send`].
    pub result: io::Result<usize>,
}

impl<'a> SendItem<'a> {
    /// Before the call.
    pub fn new(half: &'a mut SendHalf, bytes: &'a [u8]) -> SendItem<'a> {
        SendItem {
            half,
            bytes,
            result: Ok(0),
        }
    }
}

/// Room for the bytes of one of several streams.
pub struct ReceiveItem<'a> {
    /// Where from.
    pub half: &'a mut ReceiveHalf,
    /// Where to.
    pub bytes: &'a mut [u8],
    /// How many were received, as of [`ReceiveHalf::try_receive`].
    pub result: io::Result<usize>,
}

impl<'a> ReceiveItem<'a> {
    /// Before the call.
    pub fn new(half: &'a mut ReceiveHalf, bytes: &'a mut [u8]) -> ReceiveItem<'a> {
        ReceiveItem {
            half,
            bytes,
            result: Ok(0),
        }
    }
}

/// Sends on many streams without waiting; how many of the calls did something, or found the end. Each item has its own
/// result.
pub fn send_many(items: &mut [SendItem<'_>]) -> usize {
    for item in &mut *items {
        item.result = item.half.try_send_later(item.bytes);
    }
    let sockets = items
        .iter()
        .map(|item| -> &client::SocketCore { &item.half.core().socket });
    engine::each_of(sockets, Session::ring);
    items.iter().filter(|item| item.result.is_ok()).count()
}

/// As [`send_many`], for what has arrived.
pub fn receive_many(items: &mut [ReceiveItem<'_>]) -> usize {
    for item in &mut *items {
        item.result = item.half.try_receive_later(item.bytes);
    }
    let sockets = items
        .iter()
        .map(|item| -> &client::SocketCore { &item.half.core().socket });
    engine::each_of(sockets, Session::ring);
    items.iter().filter(|item| item.result.is_ok()).count()
}
