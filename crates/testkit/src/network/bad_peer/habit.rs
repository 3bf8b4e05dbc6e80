//! What peers do that they should not, or need not.

/// One misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// None: the model itself is sound.
    None,
    /// Acknowledges each segment in ten pieces (Savage et al. 1999, ACK division).
    DividesAcks,
    /// Sends every acknowledgment five times (duplicate ACK spoofing).
    RepeatsAcks,
    /// Acknowledges what was never sent (optimistic ACKs beyond SND.NXT, RFC 9293 §3.10.7.4).
    AcksUnsent,
    /// Acknowledges what was acknowledged long ago, or never in this life.
    AcksOld,
    /// Acknowledges every fiftieth segment, or late.
    StretchesAcks,
    /// Does not speak SACK.
    NoSack,
    /// Does not speak time stamps.
    NoTimestamps,
    /// Speaks no option at all: segments of 536 bytes (RFC 9293 §3.7.1).
    NoOptions,
    /// Takes segments of 64 bytes only.
    TinySegments,
    /// Throws away what it has selectively acknowledged.
    Reneges,
    /// Selectively acknowledges what was not sent, backwards and inside out.
    LiesInSack,
    /// Takes the window back that it gave (RFC 9293 §3.8.6).
    ShrinksWindow,
    /// Opens its window ten bytes at a time.
    SillyWindow,
    /// Closes its window for good after some bytes.
    NeverOpens,
    /// Sends its SYN-ACK again and again, with other options.
    RepeatsSynAck,
    /// Sends data beyond the window.
    BeyondWindow,
    /// Sends resets with any sequence number (RFC 5961 §3).
    ResetStorm,
    /// Sends SYNs into the connection (RFC 5961 §4).
    SynStorm,
    /// Sends segments with time stamps of the past (PAWS, RFC 7323 §5).
    OldTimestamps,
    /// Returns time stamps that nobody sent.
    StrangeEcho,
    /// Marks data as urgent at random.
    Urgent,
    /// Sends its data again with other borders.
    Overlaps,
    /// Sends data after its FIN.
    DataAfterEnd,
}

impl Habit {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::None,
        Self::DividesAcks,
        Self::RepeatsAcks,
        Self::AcksUnsent,
        Self::AcksOld,
        Self::StretchesAcks,
        Self::NoSack,
        Self::NoTimestamps,
        Self::NoOptions,
        Self::TinySegments,
        Self::Reneges,
        Self::LiesInSack,
        Self::ShrinksWindow,
        Self::SillyWindow,
        Self::NeverOpens,
        Self::RepeatsSynAck,
        Self::BeyondWindow,
        Self::ResetStorm,
        Self::SynStorm,
        Self::OldTimestamps,
        Self::StrangeEcho,
        Self::Urgent,
        Self::Overlaps,
        Self::DataAfterEnd,
    ];

    pub(super) fn has_timestamps(self) -> bool {
        !matches!(self, Self::NoTimestamps | Self::NoOptions)
    }

    pub(super) fn has_sack(self) -> bool {
        !matches!(self, Self::NoSack | Self::NoOptions)
    }

    pub(super) fn mss(self) -> Option<u16> {
        match self {
            Self::NoOptions => None,
            Self::TinySegments => Some(64),
            _ => Some(1_460),
        }
    }
}
