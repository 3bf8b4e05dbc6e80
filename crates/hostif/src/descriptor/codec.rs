//! Descriptors to words and back.
//!
//! Word 0: kind (8 bits) · a small argument (8) · two address families (8 each) · token (32).
//! Word 1: socket. The rest depends on the kind.

mod options;
mod words;

use super::{
    Command, Completion, Consumed, DatagramOptions, Descriptor, FastOpenKeys, FileSource, LaneNews,
    Malformed, MembershipChange, Op, OptionChanges, Query, ShutdownHow, SocketOption, Words,
    WriteMode, Written, address_bytes, high, join, low,
};
use crate::id::SocketId;
use crate::stamp;
use core::net::SocketAddr;
use options::{option_words, set_option, set_options};
use words::{address, address_words, connect_ends, connect_words, halves, port, whole};

const BIND: u8 = 1;
const LISTEN: u8 = 2;
const CONNECT: u8 = 3;
const ACCEPT: u8 = 4;
const SHUTDOWN: u8 = 5;
const CLOSE: u8 = 6;
const SET_OPTIONS: u8 = 7;
const CLOSE_BACKING: u8 = 8;
const DISCONNECT: u8 = 48;
const SET_DATAGRAM_OPTIONS: u8 = 49;
const SET_OPTION: u8 = 9;
const QUERY: u8 = 10;
const MEMBERSHIP: u8 = 50;
const TOO_LONG: u8 = 51;
const CONNECT_FAST: u8 = 11;
const SET_FAST_OPEN_KEYS: u8 = 12;
const TELL_LANE: u8 = 13;
const CONNECT_HEARD: u8 = 14;
const CONNECT_FOR_COOKIE: u8 = 15;
const WRITTEN: u8 = 16;
const CONSUMED: u8 = 17;
const DONE: u8 = 32;
const ACCEPTED: u8 = 33;
const EVENT: u8 = 34;
/// In the small argument of WRITTEN: the bytes are in a file.
const FROM_FILE: u8 = 1;
/// In the small argument of WRITTEN: more follows.
const MORE: u8 = 2;
/// In the small argument of WRITTEN: the last byte is urgent.
const URGENT: u8 = 4;
/// Neither goes with the other.
const END_OF_RECORD: u8 = MORE | URGENT;
/// In the small argument of WRITTEN and CONSUMED: the program copied nothing.
const IN_PLACE: u8 = 8;

struct Word0 {
    kind: u8,
    small: u8,
    families: [u8; 2],
    token: u32,
}

impl Word0 {
    fn plain(kind: u8, token: u32) -> Word0 {
        Word0 {
            kind,
            small: 0,
            families: [0; 2],
            token,
        }
    }

    fn encode(&self) -> u64 {
        join(
            u32::from_le_bytes([self.kind, self.small, self.families[0], self.families[1]]),
            self.token,
        )
    }

    fn decode(word: u64) -> Word0 {
        let [kind, small, first, second] = low(word).to_le_bytes();
        Word0 {
            kind,
            small,
            families: [first, second],
            token: high(word),
        }
    }
}

fn shutdown_how(small: u8) -> Result<ShutdownHow, Malformed> {
    match small {
        1 => Ok(ShutdownHow::Read),
        2 => Ok(ShutdownHow::Write),
        3 => Ok(ShutdownHow::Both),
        _ => Err(Malformed),
    }
}

fn socket(word: u64) -> Result<SocketId, Malformed> {
    SocketId::from_bits(word).ok_or(Malformed)
}

fn end_words(kind: u8, token: u32, id: u64, end: SocketAddr) -> Words {
    let (family, [a, b]) = address_words(end);
    let word = Word0 {
        families: [family, 0],
        ..Word0::plain(kind, token)
    };
    [word.encode(), id, a, b, u64::from(end.port()), 0, 0]
}

fn end(first: &Word0, words: &Words) -> Result<SocketAddr, Malformed> {
    let number = u32::try_from(words[4]).map_err(|_| Malformed)?;
    address(first.families[0], [words[2], words[3]], port(number)?)
}

fn membership_words(op: Op, id: u64, token: u32) -> Words {
    let Op::Membership {
        change,
        group,
        source,
        interface,
    } = op
    else {
        unreachable!("invariant: called for memberships only");
    };
    let (family, group) = address_bytes(group);
    let (source_family, source) = source.map_or((0, [0; 16]), address_bytes);
    let ([a, b], [c, d]) = (halves(group), halves(source));
    let word = Word0 {
        small: change.code(),
        families: [family, source_family],
        ..Word0::plain(MEMBERSHIP, token)
    };
    [word.encode(), id, a, b, c, d, u64::from(interface)]
}

fn membership(first: &Word0, words: &Words) -> Result<Op, Malformed> {
    let [family, source_family] = first.families;
    Ok(Op::Membership {
        change: MembershipChange::from_code(first.small).ok_or(Malformed)?,
        group: address(family, [words[2], words[3]], 0)?.ip(),
        source: match source_family {
            0 => None,
            family => Some(address(family, [words[4], words[5]], 0)?.ip()),
        },
        interface: u32::try_from(words[6]).map_err(|_| Malformed)?,
    })
}

impl Descriptor for Command {
    fn encode(&self) -> Words {
        let id = self.socket.map_or(0, SocketId::to_bits);
        let plain = |kind| Word0::plain(kind, self.token).encode();
        let connect =
            |kind, remote, local| connect_words(Word0::plain(kind, self.token), id, remote, local);
        match self.op {
            Op::Bind { local } => end_words(BIND, self.token, id, local),
            Op::TooLong { destination } => end_words(TOO_LONG, self.token, id, destination),
            Op::Listen { backlog } => [plain(LISTEN), id, u64::from(backlog), 0, 0, 0, 0],
            Op::Connect { remote, local } => connect(CONNECT, remote, local),
            Op::ConnectHeard { remote, local } => connect(CONNECT_HEARD, remote, local),
            Op::ConnectFast { remote, local } => connect(CONNECT_FAST, remote, local),
            Op::ConnectForCookie { remote, local } => connect(CONNECT_FOR_COOKIE, remote, local),
            Op::SetFastOpenKeys(keys) => {
                let [a, b] = halves(keys.primary);
                let [c, d] = halves(keys.backup.unwrap_or_default());
                let word = Word0 {
                    small: u8::from(keys.backup.is_some()),
                    ..Word0::plain(SET_FAST_OPEN_KEYS, self.token)
                };
                [word.encode(), id, a, b, c, d, 0]
            }
            Op::Accept { handle } => [plain(ACCEPT), id, u64::from(handle), 0, 0, 0, 0],
            Op::Shutdown { how, written } => {
                let small = match how {
                    ShutdownHow::Read => 1,
                    ShutdownHow::Write => 2,
                    ShutdownHow::Both => 3,
                };
                let word = Word0 {
                    small,
                    ..Word0::plain(SHUTDOWN, self.token)
                };
                [word.encode(), id, written, 0, 0, 0, 0]
            }
            Op::Close { written, consumed } => [plain(CLOSE), id, written, consumed, 0, 0, 0],
            Op::SetOptions { .. } | Op::SetOption { .. } => option_words(self.op, id, self.token),
            Op::Disconnect => [plain(DISCONNECT), id, 0, 0, 0, 0, 0],
            Op::Membership { .. } => membership_words(self.op, id, self.token),
            Op::SetDatagramOptions(options) => {
                let [a, b, c, d] = options.encode();
                [plain(SET_DATAGRAM_OPTIONS), id, a, b, c, d, 0]
            }
            Op::Query { what } => {
                let word = Word0 {
                    small: what.code(),
                    ..Word0::plain(QUERY, self.token)
                };
                [word.encode(), id, 0, 0, 0, 0, 0]
            }
            Op::TellLane(news) => {
                let word = Word0 {
                    small: news.code(),
                    ..Word0::plain(TELL_LANE, self.token)
                };
                [word.encode(), id, 0, 0, 0, 0, 0]
            }
            Op::CloseBacking { handle } => {
                [plain(CLOSE_BACKING), id, u64::from(handle), 0, 0, 0, 0]
            }
        }
    }

    fn decode(words: &Words) -> Result<Command, Malformed> {
        let first = Word0::decode(words[0]);
        let number = |word: u64| u32::try_from(word).map_err(|_| Malformed);
        let op = match first.kind {
            BIND => Op::Bind {
                local: end(&first, words)?,
            },
            TOO_LONG => Op::TooLong {
                destination: end(&first, words)?,
            },
            LISTEN => Op::Listen {
                backlog: number(words[2])?,
            },
            kind @ (CONNECT | CONNECT_HEARD | CONNECT_FAST | CONNECT_FOR_COOKIE) => {
                let (remote, local) = connect_ends(&first, words)?;
                match kind {
                    CONNECT => Op::Connect { remote, local },
                    CONNECT_HEARD => Op::ConnectHeard { remote, local },
                    CONNECT_FOR_COOKIE => Op::ConnectForCookie { remote, local },
                    _ => Op::ConnectFast { remote, local },
                }
            }
            SET_FAST_OPEN_KEYS => Op::SetFastOpenKeys(FastOpenKeys {
                primary: whole([words[2], words[3]]),
                backup: match first.small {
                    0 => None,
                    1 => Some(whole([words[4], words[5]])),
                    _ => return Err(Malformed),
                },
            }),
            ACCEPT => Op::Accept {
                handle: number(words[2])?,
            },
            SHUTDOWN => Op::Shutdown {
                how: shutdown_how(first.small)?,
                written: words[2],
            },
            CLOSE => Op::Close {
                written: words[2],
                consumed: words[3],
            },
            SET_OPTIONS => set_options(words)?,
            DISCONNECT => Op::Disconnect,
            MEMBERSHIP => membership(&first, words)?,
            SET_DATAGRAM_OPTIONS => Op::SetDatagramOptions(DatagramOptions::decode([
                words[2], words[3], words[4], words[5],
            ])?),
            SET_OPTION => set_option(&first, words)?,
            QUERY => Op::Query {
                what: Query::from_code(first.small).ok_or(Malformed)?,
            },
            TELL_LANE => Op::TellLane(LaneNews::from_code(first.small).ok_or(Malformed)?),
            CLOSE_BACKING => Op::CloseBacking {
                handle: number(words[2])?,
            },
            _ => return Err(Malformed),
        };
        let id = match op {
            Op::CloseBacking { .. } => None,
            _ => Some(socket(words[1])?),
        };
        Ok(Command {
            token: first.token,
            socket: id,
            op,
        })
    }
}

fn position_words(kind: u8, id: SocketId, end: u64) -> Words {
    [
        Word0::plain(kind, 0).encode(),
        id.to_bits(),
        end,
        0,
        0,
        0,
        0,
    ]
}

fn position(kind: u8, words: &Words) -> Result<(SocketId, u64), Malformed> {
    if Word0::decode(words[0]).kind != kind {
        return Err(Malformed);
    }
    Ok((socket(words[1])?, words[2]))
}

impl Descriptor for Written {
    fn encode(&self) -> Words {
        let mut words = position_words(WRITTEN, self.socket, self.end);
        words[3] = self.start;
        let mut small = match self.mode {
            WriteMode::Plain => 0,
            WriteMode::More => MORE,
            WriteMode::Urgent => URGENT,
            WriteMode::EndOfRecord => END_OF_RECORD,
        };
        if let Some(source) = self.source {
            small |= FROM_FILE;
            words[4] = u64::from(source.handle);
            words[5] = source.offset;
        }
        words[6] = u64::from(self.stamps);
        if self.in_place {
            small |= IN_PLACE;
        }
        words[0] = Word0 {
            small,
            ..Word0::plain(WRITTEN, 0)
        }
        .encode();
        words
    }

    fn decode(words: &Words) -> Result<Written, Malformed> {
        let (socket, end) = position(WRITTEN, words)?;
        let start = words[3];
        let len = end.checked_sub(start).ok_or(Malformed)?;
        let small = Word0::decode(words[0]).small;
        let source = if small & FROM_FILE == 0 {
            None
        } else {
            Some(source([words[4], words[5]], len)?)
        };
        let mode = match small & !(FROM_FILE | IN_PLACE) {
            0 => WriteMode::Plain,
            MORE => WriteMode::More,
            URGENT => WriteMode::Urgent,
            END_OF_RECORD => WriteMode::EndOfRecord,
            _ => return Err(Malformed),
        };
        Ok(Written {
            socket,
            start,
            end,
            source,
            mode,
            in_place: small & IN_PLACE != 0,
            stamps: stamp::decode(words[6])?,
        })
    }
}

/// The words of a source of `len` bytes; off_t has 63 bits.
fn source([handle, offset]: [u64; 2], len: u64) -> Result<FileSource, Malformed> {
    let end = offset.checked_add(len).ok_or(Malformed)?;
    i64::try_from(end).map_err(|_| Malformed)?;
    Ok(FileSource {
        handle: u32::try_from(handle).map_err(|_| Malformed)?,
        offset,
    })
}

impl Descriptor for Consumed {
    fn encode(&self) -> Words {
        let mut words = position_words(CONSUMED, self.socket, self.end);
        words[0] = Word0 {
            small: if self.in_place { IN_PLACE } else { 0 },
            ..Word0::plain(CONSUMED, 0)
        }
        .encode();
        words
    }

    fn decode(words: &Words) -> Result<Consumed, Malformed> {
        let (socket, end) = position(CONSUMED, words)?;
        let in_place = match Word0::decode(words[0]).small {
            0 => false,
            IN_PLACE => true,
            _ => return Err(Malformed),
        };
        Ok(Consumed {
            socket,
            end,
            in_place,
        })
    }
}

impl Descriptor for Completion {
    fn encode(&self) -> Words {
        match *self {
            Completion::Done {
                token,
                errno,
                value,
            } => [
                Word0::plain(DONE, token).encode(),
                u64::from(errno),
                value,
                0,
                0,
                0,
                0,
            ],
            Completion::Accepted {
                token,
                socket,
                region,
                header,
                peer,
            } => {
                let (family, [a, b]) = address_words(peer);
                let word = Word0 {
                    families: [family, 0],
                    ..Word0::plain(ACCEPTED, token)
                };
                let place = join(region, header);
                [
                    word.encode(),
                    socket.to_bits(),
                    place,
                    a,
                    b,
                    u64::from(peer.port()),
                    0,
                ]
            }
            Completion::Event { socket } => [
                Word0::plain(EVENT, 0).encode(),
                socket.to_bits(),
                0,
                0,
                0,
                0,
                0,
            ],
        }
    }

    fn decode(words: &Words) -> Result<Completion, Malformed> {
        let first = Word0::decode(words[0]);
        match first.kind {
            DONE => Ok(Completion::Done {
                token: first.token,
                errno: u16::try_from(words[1]).map_err(|_| Malformed)?,
                value: words[2],
            }),
            ACCEPTED => Ok(Completion::Accepted {
                token: first.token,
                socket: socket(words[1])?,
                region: low(words[2]),
                header: high(words[2]),
                peer: address(
                    first.families[0],
                    [words[3], words[4]],
                    u16::try_from(words[5]).map_err(|_| Malformed)?,
                )?,
            }),
            EVENT => Ok(Completion::Event {
                socket: socket(words[1])?,
            }),
            _ => Err(Malformed),
        }
    }
}
