//! A process's session with an engine: attach once, then open sockets.
//!
//! A session lives as long as the process; its attachment changes in a forked child (see `fork`). What it does is in the
//! files of its folder.

mod backing;
mod command;
mod death;
mod fork;
mod holders;
mod opening;
pub(crate) mod pool;
mod reap;
pub(crate) mod registry;
mod steering;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use hostif::control::{Addresses, QueryKind, Reply, Request};
use hostif::{ChannelRegion, Region, SocketId, Steering};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::attachment::attach::{AttachError, attach_to_core, meet};
use crate::engines::attachment::attachments::Attachments;
use crate::engines::attachment::control::ControlError;
use crate::engines::budget::{self, Budget};
use crate::engines::changes;
use crate::engines::inline_engine;
use crate::engines::session::pool::Pool;
use crate::engines::session::registry::{Observer, Registry};
use crate::lock::lock;
use crate::private::PrivateFd;
use crate::sys::StaticSlot;

/// A socket that an engine has made or shown, its name and where its header lies.
pub(crate) struct Opened {
    /// The engine's name for it.
    pub id: SocketId,
    /// Where its header lies.
    pub region: Region,
    /// The index of the header there, which is not checked yet.
    pub header: u32,
}

/// See the file's head.
pub struct Session {
    name: String,
    current: StaticSlot<Attachments>,
    /// No engine has ever answered under that name.
    absent: AtomicBool,
    /// In a forked child: the control channels that the engine's cores know as its own, the first core's first; used up
    /// by the first attach.
    pub(crate) inherited_channels: Mutex<Vec<PrivateFd>>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) pool: Mutex<Pool>,
    pub(crate) spin: Duration,
    /// Where spinning polls an engine inside this process, or memory that another program writes.
    pub(crate) poll_budget: Budget,
    /// Held for reading while a socket comes into being, for writing across a fork: the child's session
    /// shall hold no socket that the child does not know.
    pub(crate) opening: RwLock<()>,
}

impl Session {
    /// Attaches this process to the engine of that name (see [`crate::engine_name`]). The session is
    /// never dropped, as its sockets may be in use until the process ends.
    pub fn attach(name: &str) -> Result<&'static Session, AttachError> {
        let attachment = meet(name)?;
        let session = Session::leaked(name, false);
        session.adopt(attachment);
        Ok(session)
    }

    /// A session with an engine that is not there: as if it had been lost, until [`Session::attach_again`] finds it.
    #[must_use]
    pub fn absent(name: &str) -> &'static Session {
        Session::leaked(name, true)
    }

    fn leaked(name: &str, absent: bool) -> &'static Session {
        Box::leak(Box::new(Session {
            name: name.to_owned(),
            current: StaticSlot::empty(),
            absent: AtomicBool::new(absent),
            inherited_channels: Mutex::default(),
            registry: Mutex::default(),
            pool: Mutex::default(),
            spin: budget::spin(),
            poll_budget: budget::poll(),
            opening: RwLock::new(()),
        }))
    }

    /// Uses an attachment to the first core, and from now on those to other cores that follow.
    pub(crate) fn adopt(&self, (main, steering): (Attachment, Steering)) -> &'static Attachments {
        let main = self.keep(main);
        let all: &'static Attachments = Box::leak(Box::new(Attachments::new(main, steering)));
        self.current.set(Some(all));
        all
    }

    /// Attachments live for ever: sockets may be in use until the process ends.
    pub(crate) fn keep(&self, attachment: Attachment) -> &'static Attachment {
        lock(&self.registry).add_region(attachment.region.clone());
        Box::leak(Box::new(attachment))
    }

    /// In a forked child: the parent's attachments are not ours.
    pub(crate) fn detach(&self) {
        self.current.set(None);
    }

    /// The attachments, if there are any.
    pub(crate) fn attached(&self) -> Option<&'static Attachments> {
        self.current.current()
    }

    /// The attachments; a forked child makes its own when it first needs them.
    pub(crate) fn attachments(&self) -> Result<&'static Attachments, Errno> {
        match self.current.current() {
            Some(all) => Ok(all),
            None if self.is_absent() => Err(Errno::NETDOWN),
            None => self.attach_child(),
        }
    }

    /// The attachment to a core, made when it is first needed.
    pub(crate) fn attachment(&self, core: u16) -> Result<&'static Attachment, Errno> {
        let all = self.attachments()?;
        match all.to_core(core) {
            Some(attachment) => Ok(attachment),
            None => self.attach_to_core(all, core),
        }
    }

    fn attach_to_core(
        &self,
        all: &'static Attachments,
        core: u16,
    ) -> Result<&'static Attachment, Errno> {
        let _turn = lock(&self.inherited_channels);
        if let Some(attachment) = all.to_core(core) {
            return Ok(attachment);
        }
        match attach_to_core(&all.main.control, core) {
            Ok((attachment, _)) if attachment.core == core => {
                let attachment = self.keep(attachment);
                all.add(attachment);
                Ok(attachment)
            }
            Ok(_) => Err(Errno::PROTO),
            Err(_) if all.main.control.is_hung_up() => Err(Errno::CONNRESET),
            Err(error) => {
                crate::say::say(&format!("no way to core {core} of the engine: {error}"));
                Err(Errno::NFILE)
            }
        }
    }

    /// The name of the engine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the engine is gone, or never was there. New sockets attach to its successor.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        match self.attached() {
            Some(all) => all.is_dead(),
            None => self.is_absent(),
        }
    }

    /// Whether no engine has ever answered under that name.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.absent.load(Ordering::Acquire)
    }

    /// Attaches again after the engine was lost, or was not there; the sockets of a lost one stay reset.
    pub fn attach_again(&self) -> Result<(), AttachError> {
        let _turn = lock(&self.inherited_channels);
        if !self.is_dead() {
            return Ok(());
        }
        let attachment = meet(&self.name)?;
        self.lose_all();
        lock(&self.pool).start_anew();
        lock(&self.registry).forget_memory();
        let before = self.attached();
        self.adopt(attachment);
        self.absent.store(false, Ordering::Release);
        changes::note_change();
        // They sleep on the bells of the one that is gone.
        if let Some(before) = before {
            before.leaders.wake_all();
        }
        Ok(())
    }

    /// Asks an engine core and unwraps a refusal.
    pub(crate) fn request(
        &self,
        core: u16,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        let attachment = self.living(core)?;
        let answered = match inline_engine::ask(attachment.session, request, descriptors) {
            Some(answered) => answered.map_err(ControlError::Request),
            None => attachment.control.request(request, descriptors),
        };
        match answered {
            Ok((Reply::Refused { errno, .. }, _)) => {
                Err(Errno::from_raw_os_error(i32::from(errno.max(1))))
            }
            Ok(answer) => Ok(answer),
            Err(ControlError::Request(errno)) => Err(match errno {
                Errno::TOOMANYREFS => Errno::MFILE,
                Errno::NOMEM => Errno::NOBUFS,
                errno => errno,
            }),
            Err(ControlError::Channel(errno)) => {
                self.on_engine_lost(attachment, &format!("the control channel failed: {errno}"));
                Err(Errno::CONNRESET)
            }
            Err(ControlError::Invalid(invalid)) => {
                self.on_engine_lost(attachment, &invalid.to_string());
                Err(Errno::CONNRESET)
            }
        }
    }

    /// A region of a core by its number; maps it if this process has not yet.
    pub(crate) fn region(&self, core: u16, id: u32) -> Result<Region, Errno> {
        if let Some(region) = lock(&self.registry).region(id) {
            return Ok(region);
        }
        match self.request(core, &Request::MapRegion { region: id }, &[])? {
            (Reply::Region { .. }, descriptors) => {
                let file = descriptors.into_iter().next().ok_or(Errno::PROTO)?;
                let region = Region::map(PrivateFd::new(file)).map_err(|_| Errno::NOMEM)?;
                if region.id() != id {
                    return Err(Errno::PROTO);
                }
                lock(&self.registry).add_region(region.clone());
                Ok(region)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// The memory between a core and one of its local peers; maps it if this process has not yet.
    pub(crate) fn channel_region(&self, core: u16, number: u32) -> Result<ChannelRegion, Errno> {
        if let Some(channel_region) = lock(&self.registry).channel_region(number) {
            return Ok(channel_region);
        }
        match self.request(
            core,
            &Request::MapArea {
                channel_region: number,
            },
            &[],
        )? {
            (Reply::ChannelRegion { .. }, descriptors) => {
                let file = descriptors.first().ok_or(Errno::PROTO)?;
                let channel_region = ChannelRegion::map(file.as_fd()).map_err(|_| Errno::NOMEM)?;
                lock(&self.registry).add_channel_region(number, channel_region.clone());
                Ok(channel_region)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// The addresses that the engine owns, and its gateways.
    pub fn addresses(&self) -> Result<Addresses, Errno> {
        match self.request(0, &Request::Addresses, &[])? {
            (Reply::Addresses(addresses), _) => Ok(addresses),
            _ => Err(Errno::PROTO),
        }
    }

    /// A report of the engine's first core, as JSON.
    pub fn query(&self, kind: QueryKind) -> Result<String, Errno> {
        match self.request(0, &Request::Query { kind }, &[])? {
            (Reply::Report, descriptors) => {
                let file = descriptors.first().ok_or(Errno::PROTO)?;
                read_all(file.as_fd())
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// Sockets of this process on the engine.
    #[must_use]
    pub fn socket_count(&self) -> usize {
        lock(&self.registry).len()
    }

    /// Registers an observer of a socket under a token of the caller's choice.
    pub(crate) fn observe(&self, id: SocketId, token: u64, observer: Arc<dyn Observer>) {
        lock(&self.registry).observe(id, token, observer);
    }

    /// Removes it.
    pub(crate) fn forget(&self, id: SocketId, token: u64) {
        lock(&self.registry).forget(id, token);
    }
}

fn read_all(file: BorrowedFd<'_>) -> Result<String, Errno> {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = rustix::io::pread(file, &mut part[..], text.len() as u64)?;
        if read == 0 {
            return String::from_utf8(text).map_err(|_| Errno::PROTO);
        }
        text.extend_from_slice(&part[..read]);
    }
}
