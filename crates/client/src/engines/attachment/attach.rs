//! Attaching to an engine: control channel, handshake, region, doorbells.

use std::time::Duration;

use hostif::control::{self, Invalid, Reply, Request};
use hostif::region::RegionError;
use hostif::{
    CORES_MAX, DEFAULT_ENGINE_NAME, ENGINE_SEPARATOR, ENGINE_VARIABLE, ENGINES_MAX, MAX_VERSION,
    MIN_VERSION, Moderation, NOTIFY_VARIABLE, Region, Steering,
};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::control::{Control, ControlError};
use crate::private::PrivateFd;

/// Why there is no engine to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Nobody listens under that name.
    #[error("no engine listens on {name}: {errno}")]
    Absent {
        /// The name that was tried.
        name: String,
        /// What connect said.
        errno: Errno,
    },
    /// The engine refused, for instance because no version is spoken by both.
    #[error("the engine refused: {0}")]
    Refused(String),
    /// It answered something that this version does not understand.
    #[error("the engine answered with a {0}")]
    Invalid(#[from] Invalid),
    /// It answered something else than a welcome, or one without what belongs to it.
    #[error("the engine answered out of turn")]
    OutOfTurn,
    /// The channel broke.
    #[error("the control channel failed: {0}")]
    Channel(Errno),
    /// The region could not be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl From<ControlError> for AttachError {
    fn from(error: ControlError) -> AttachError {
        match error {
            ControlError::Request(errno) | ControlError::Channel(errno) => {
                AttachError::Channel(errno)
            }
            ControlError::Invalid(invalid) => AttachError::Invalid(invalid),
        }
    }
}

/// The engine that the environment names first, or the default one.
#[must_use]
pub fn engine_name() -> String {
    engine_names().swap_remove(0)
}

/// The engines that the environment names, in the order of their priority, no more than
/// [`ENGINES_MAX`]; the default one where it names none.
#[must_use]
pub fn engine_names() -> Vec<String> {
    let text = hostif::environment::text(ENGINE_VARIABLE).unwrap_or_default();
    let mut names = Vec::new();
    for name in text.split(ENGINE_SEPARATOR) {
        if !name.is_empty() && names.len() < ENGINES_MAX && names.iter().all(|one| one != name) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        names.push(DEFAULT_ENGINE_NAME.to_owned());
    }
    names
}

/// How often this process wants to be told of news, where the environment says so.
fn notify_policy() -> Option<Moderation> {
    Moderation::parse(&hostif::environment::text(NOTIFY_VARIABLE)?)
}

/// Opens a control channel to the engine of that name.
fn dial(name: &str) -> Result<PrivateFd, AttachError> {
    // Who measures misses the stamps, and says so; the program is served all the same.
    let _ = hostif::stages::begin("library");
    match control::connect(name) {
        Ok(fd) => Ok(PrivateFd::new(fd)),
        Err(errno) => Err(AttachError::Absent {
            name: name.to_owned(),
            errno,
        }),
    }
}

/// How often a channel is asked for whose engine ends before it has noted it.
const ATTEMPTS: u32 = 3;

/// Attaches to another core of an engine. A channel on which its process has ended before the core took it up is of no use to the
/// engine that goes on: another one is asked for.
pub fn attach_to_core(main: &Control, core: u16) -> Result<(Attachment, Steering), AttachError> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match dial_core(main, core).and_then(greet) {
            Err(AttachError::Channel(_)) if left > 0 && !main.is_hung_up() => {}
            greeted => return greeted,
        }
    }
}

/// Asks an engine for a channel to another of its cores.
fn dial_core(main: &Control, core: u16) -> Result<PrivateFd, AttachError> {
    match main.request(&Request::Join { core }, &[])? {
        (Reply::Joined, descriptors) => {
            let channel = descriptors.into_iter().next();
            channel.map(PrivateFd::new).ok_or(AttachError::OutOfTurn)
        }
        (Reply::Refused { text, .. }, _) => Err(AttachError::Refused(text)),
        _ => Err(AttachError::OutOfTurn),
    }
}

/// An engine that does not answer a program that has nothing to do with it yet for so long is as good as absent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Attaches to the engine of that name; see [`greet`]. One that goes on for another does not know whom that had just accepted.
pub fn meet(name: &str) -> Result<(Attachment, Steering), AttachError> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match greet_within(Some(PATIENCE), dial(name)?) {
            Err(AttachError::Channel(Errno::CONNRESET | Errno::PIPE)) if left > 0 => {}
            met => return met,
        }
    }
}

/// Says hello on a channel that the engine has got already, and maps what comes back; also tells how the engine spreads
/// connections.
pub fn greet(channel: PrivateFd) -> Result<(Attachment, Steering), AttachError> {
    greet_within(None, channel)
}

fn greet_within(
    patience: Option<Duration>,
    channel: PrivateFd,
) -> Result<(Attachment, Steering), AttachError> {
    let channel = Control::new(channel);
    let pid = rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned();
    let hello = Request::Hello {
        min_version: MIN_VERSION,
        max_version: MAX_VERSION,
        pid,
    };
    let (reply, descriptors) = channel.lock().request_within(patience, &hello, &[])?;
    let welcome = match reply {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused { text, .. } => return Err(AttachError::Refused(text)),
        _ => return Err(AttachError::OutOfTurn),
    };
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(AttachError::OutOfTurn);
    let file = PrivateFd::new(next()?);
    let program_bell = PrivateFd::new(next()?);
    let engine_bell = PrivateFd::new(next()?);
    let region = Region::map(file)?;
    let plausible = (1..=hostif::sync::lock::MAX_SESSION).contains(&welcome.session)
        && region.id() == welcome.region
        && (1..=CORES_MAX).contains(&welcome.steering.cores)
        && welcome.core < welcome.steering.cores;
    if !plausible {
        return Err(AttachError::OutOfTurn);
    }
    if let Some(policy) = notify_policy() {
        let request = Request::Moderate(policy);
        match channel.lock().request_within(patience, &request, &[])? {
            (Reply::Moderated, _) => {}
            (Reply::Refused { text, .. }, _) => return Err(AttachError::Refused(text)),
            _ => return Err(AttachError::OutOfTurn),
        }
    }
    let attachment = Attachment::new(
        channel,
        welcome.core,
        welcome.session,
        region,
        program_bell,
        engine_bell,
    );
    Ok((attachment, welcome.steering))
}
