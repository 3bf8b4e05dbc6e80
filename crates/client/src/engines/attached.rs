//! The engines that a process is attached to: a session with each, what they own, and which of them opens a
//! connection.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hostif::ENGINES_MAX;
use hostif::control::SocketKinds;
use rustix::io::Errno;

use crate::coarse_clock;
use crate::engines::engine_index::{Candidates, EngineIndex};
use crate::engines::networks::{AllNetworks, stays_here};
use crate::engines::placement::{Flow, Placement, Remembered};
use crate::engines::route::EngineNetworks;
use crate::engines::session::Session;
use crate::shared::Shared;

/// How long an engine that was not there is not looked for again, milliseconds.
const LOOK_INTERVAL_MS: u64 = 1_000;

/// What the engines own, by [`EngineIndex`].
pub type Networks = Arc<[Arc<EngineNetworks>]>;

/// See the file's head.
pub struct Engines {
    sessions: Vec<&'static Session>,
    placement: Placement,
    /// Of each engine: a line has said that it is missing.
    is_missed: [AtomicBool; ENGINES_MAX],
    /// When those that never were there are looked for again, milliseconds of the coarse clock.
    next_look_ms: AtomicU64,
    /// This process uses loopback on one of them.
    uses_loopback: bool,
    // No mutex: it might be locked by another thread when this one forks.
    networks: Shared<Known>,
    remembered: Remembered,
}

/// What was asked last, and until when it serves, in milliseconds of the coarse clock.
struct Known {
    serves_until_ms: u64,
    all: Networks,
    /// Of those that serve TCP, the first with loopback if this process uses it.
    of_streams: Networks,
    /// Of those that serve UDP, in the same way.
    of_datagrams: Networks,
}

impl Engines {
    /// Attaches to all that answer. `Err`: none does, and why the first does not; of each other that does not, a line says so,
    /// and they are looked for again ([`Engines::attach_again`]).
    pub fn attach(names: &[String], placement: Placement) -> Result<Engines, String> {
        let answers = ask_all(names);
        match first_reason(&answers) {
            Some(reason) => Err(reason),
            None => Ok(Engines::of(answers, placement)),
        }
    }

    /// As `attach`, but if none answers all are looked for again; then it is said why the first does not.
    pub fn look_for(names: &[String], placement: Placement) -> (Engines, Option<String>) {
        let answers = ask_all(names);
        let reason = first_reason(&answers);
        (Engines::of(answers, placement), reason)
    }

    fn of(answers: Vec<Answer<'_>>, placement: Placement) -> Engines {
        let is_any_there = answers.iter().any(|(_, answer)| answer.is_ok());
        let is_missed = [const { AtomicBool::new(false) }; ENGINES_MAX];
        let session = |((name, answer), is_missed): (Answer<'_>, &AtomicBool)| {
            answer.unwrap_or_else(|reason| {
                is_missed.store(true, Ordering::Relaxed);
                if is_any_there {
                    crate::say::say(&format!(
                        "an engine is missing ({reason}); going without it until it is there"
                    ));
                }
                Session::absent(name)
            })
        };
        let sessions = answers.into_iter().zip(&is_missed).map(session).collect();
        Engines {
            sessions,
            placement,
            is_missed,
            next_look_ms: AtomicU64::new(coarse_clock::now_ms() + LOOK_INTERVAL_MS),
            uses_loopback: false,
            networks: Shared::empty(),
            remembered: Remembered::new(),
        }
    }

    /// From now on the first engine that serves TCP has loopback too, and the first that serves UDP.
    #[must_use]
    pub fn with_loopback(mut self, on: bool) -> Engines {
        self.uses_loopback = on;
        self
    }

    /// The sessions, by [`EngineIndex`].
    #[must_use]
    pub fn sessions(&self) -> &[&'static Session] {
        &self.sessions
    }

    /// The session with one of the engines.
    pub fn session(&self, place: EngineIndex) -> Result<&'static Session, Errno> {
        let session = self.sessions.get(place.index()).copied();
        session.ok_or(Errno::NETDOWN)
    }

    /// The index of a session's engine.
    #[must_use]
    pub fn place_of(&self, session: &Session) -> EngineIndex {
        let mut sessions = self.sessions.iter();
        let index = sessions.position(|one| core::ptr::eq(*one, session));
        index.and_then(EngineIndex::new).unwrap_or_default()
    }

    /// Attaches again to those that were lost, and now and then to those that never were there. `Err`: none is there,
    /// and why, the first time only.
    pub fn attach_again(&self) -> Result<(), Option<String>> {
        let mut is_any_there = false;
        let mut lost = None;
        let mut may_look = None;
        for (session, is_missed) in self.sessions.iter().zip(&self.is_missed) {
            if session.is_absent() && !*may_look.get_or_insert_with(|| self.may_look()) {
                continue;
            }
            if session.is_dead()
                && let Err(error) = session.attach_again()
            {
                if !is_missed.swap(true, Ordering::Relaxed) {
                    lost = lost.or_else(|| Some(error.to_string()));
                }
                continue;
            }
            if is_missed.swap(false, Ordering::Relaxed) {
                // It owns something again.
                self.networks.store(None);
            }
            is_any_there = true;
        }
        if is_any_there { Ok(()) } else { Err(lost) }
    }

    /// Attaches again to those that were lost and are there again.
    pub fn look_for_lost(&self) {
        for session in &self.sessions {
            if session.is_dead() && !session.is_absent() && session.attach_again().is_ok() {
                // It owns something again.
                self.networks.store(None);
            }
        }
    }

    /// Whether it is time to look for engines that never were there: every socket that the kernel serves instead
    /// passes here.
    fn may_look(&self) -> bool {
        let now_ms = coarse_clock::now_ms();
        let due_ms = self.next_look_ms.load(Ordering::Relaxed);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let next = now_ms + LOOK_INTERVAL_MS;
        // Of several threads one looks.
        now_ms >= due_ms
            && self
                .next_look_ms
                .compare_exchange(due_ms, next, set, get)
                .is_ok()
    }

    /// What they own now, of an engine that is gone nothing; asked again now and then.
    #[must_use]
    pub fn networks(&self) -> Networks {
        self.known(|known| &known.all)
    }

    /// As `networks`, of the engines that serve TCP, and with loopback if this process uses it there.
    #[must_use]
    pub fn stream_networks(&self) -> Networks {
        self.known(|known| &known.of_streams)
    }

    /// As `networks`, of the engines that serve UDP, and with loopback if this process uses it there.
    #[must_use]
    pub fn datagram_networks(&self) -> Networks {
        self.known(|known| &known.of_datagrams)
    }

    fn known(&self, which: fn(&Known) -> &Networks) -> Networks {
        let now_ms = coarse_clock::now_ms();
        let known = {
            let known = self.networks.load();
            let known = known
                .as_ref()
                .filter(|known| now_ms < known.serves_until_ms);
            known.map(|known| Arc::clone(which(known)))
        };
        known.unwrap_or_else(|| Arc::clone(which(&self.ask(now_ms))))
    }

    #[inline(never)]
    fn ask(&self, now_ms: u64) -> Arc<Known> {
        let ask = |session: &&'static Session| EngineNetworks::of(session).map(Arc::new);
        let answers: Vec<Option<Arc<EngineNetworks>>> = self.sessions.iter().map(ask).collect();
        let of_datagrams = self.of_datagrams(&answers);
        let all: Networks = answers.into_iter().map(Option::unwrap_or_default).collect();
        let lifetime = all.iter().map(|one| one.lifetime()).min();
        let lifetime = lifetime.unwrap_or(Duration::ZERO).as_millis();
        let lifetime_ms = u64::try_from(lifetime).unwrap_or(u64::MAX);
        let known = Arc::new(Known {
            serves_until_ms: now_ms.saturating_add(lifetime_ms),
            of_streams: self.of_streams(&all),
            of_datagrams,
            all,
        });
        self.networks.store(Some(Arc::clone(&known)));
        known
    }

    fn of_streams(&self, all: &Networks) -> Networks {
        let serves = |one: &Arc<EngineNetworks>| one.kinds.contains(SocketKinds::STREAM);
        let of = |one: &Arc<EngineNetworks>| match one {
            one if serves(one) => Arc::clone(one),
            _ => Arc::default(),
        };
        self.with_loopback_at(all.iter().position(serves), all.iter().map(of))
    }

    /// Of an engine that does not answer, or does not serve UDP, nothing, and no kind of sockets either.
    fn of_datagrams(&self, answers: &[Option<Arc<EngineNetworks>>]) -> Networks {
        let nothing = Arc::new(EngineNetworks {
            kinds: SocketKinds::empty(),
            ..EngineNetworks::default()
        });
        let serves = |one: &&Arc<EngineNetworks>| one.kinds.contains(SocketKinds::DATAGRAM);
        let of = |answer: &Option<Arc<EngineNetworks>>| {
            let serving = answer.as_ref().filter(serves);
            Arc::clone(serving.unwrap_or(&nothing))
        };
        let first = answers
            .iter()
            .position(|answer| answer.as_ref().filter(serves).is_some());
        self.with_loopback_at(first, answers.iter().map(of))
    }

    fn with_loopback_at(
        &self,
        place: Option<usize>,
        all: impl Iterator<Item = Arc<EngineNetworks>>,
    ) -> Networks {
        let place = place.filter(|_| self.uses_loopback);
        let of = |(index, one): (usize, Arc<EngineNetworks>)| match one {
            one if place == Some(index) => Arc::new(EngineNetworks {
                has_loopback: true,
                ..EngineNetworks::clone(&one)
            }),
            one => one,
        };
        all.enumerate().map(of).collect()
    }

    /// The first that serves sockets of this kind; `None`: none does.
    #[must_use]
    pub fn first_for(&self, kind: SocketKinds) -> Option<EngineIndex> {
        let all = self.networks();
        let index = all.iter().position(|one| one.kinds.contains(kind))?;
        EngineIndex::new(index)
    }

    /// The sessions with all other engines that serve TCP and are there.
    #[must_use]
    pub fn others(&self, than: EngineIndex) -> Vec<&'static Session> {
        let all = self.networks();
        let others = self.sessions.iter().zip(all.iter()).enumerate();
        let others = others.filter(|(index, (session, one))| {
            let is_there = !session.is_dead() && one.kinds.contains(SocketKinds::STREAM);
            *index != than.index() && is_there
        });
        others.map(|(_, (session, _))| *session).collect()
    }

    /// Whether it has to know the local port to place a connection.
    #[must_use]
    pub fn places_by_port(&self) -> bool {
        self.placement == Placement::FlowHash
    }

    /// Calls `open` with the engines that could carry a connection, the one that should first, until one does.
    /// What an engine could not do is said only if none can.
    pub fn first_that_opens<T>(
        &self,
        candidates: Candidates,
        flow: Flow,
        mut open: impl FnMut(EngineIndex) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut places = self.placement.order(candidates, flow, &self.sessions);
        self.first_of(&mut places, flow.remote.ip(), &mut open)
    }

    /// As [`Engines::first_that_opens`], of a datagram that is on no connection: by priority, so that all between the
    /// same two go the same way.
    pub fn first_that_sends<T>(
        &self,
        candidates: Candidates,
        destination: IpAddr,
        mut send: impl FnMut(EngineIndex) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match candidates.first() {
            Some(only) if candidates == Candidates::only(only) => send(only),
            _ => {
                let mut places: Vec<EngineIndex> = candidates.iter().collect();
                self.first_of(&mut places, destination, &mut send)
            }
        }
    }

    /// In this order, but what worked for the destination first.
    fn first_of<T>(
        &self,
        places: &mut [EngineIndex],
        destination: IpAddr,
        open: &mut dyn FnMut(EngineIndex) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if places.len() > 1 {
            self.remembered.prefer(destination, places);
        }
        let mut refused = None;
        for (tried, place) in places.iter().copied().enumerate() {
            match open(place) {
                Ok(opened) => {
                    if tried > 0 {
                        self.remembered.remember(destination, place);
                    }
                    return Ok(opened);
                }
                Err(error) if is_the_engines(error) => {
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or(Errno::NETUNREACH))
    }

    /// Descriptors of all sockets of this process are about to be open elsewhere too, where no engine sees them: another
    /// program starts.
    pub fn share_all(&self) {
        for session in &self.sessions {
            session.share_all();
        }
    }

    /// Before fork(2).
    pub fn fork_prepare(&self) {
        for session in &self.sessions {
            session.fork_prepare();
        }
    }

    /// After it, in the parent.
    pub fn fork_parent(&self) {
        for session in self.sessions.iter().rev() {
            session.fork_parent();
        }
    }

    /// After it, in the child.
    pub fn fork_child(&self) {
        for session in self.sessions.iter().rev() {
            session.fork_child();
        }
    }
}

/// What came of attaching to the engine of a name.
type Answer<'a> = (&'a str, Result<&'static Session, String>);

/// Of the first [`ENGINES_MAX`].
fn ask_all(names: &[String]) -> Vec<Answer<'_>> {
    let names = names.iter().take(ENGINES_MAX);
    let ask = |name: &str| Session::attach(name).map_err(|error| error.to_string());
    names.map(|name| (name.as_str(), ask(name))).collect()
}

/// Where none answers: why the first does not.
fn first_reason(answers: &[Answer<'_>]) -> Option<String> {
    let reason = |(_, answer): &Answer<'_>| answer.as_ref().err().cloned();
    let reasons: Option<Vec<String>> = answers.iter().map(reason).collect();
    reasons.map(|reasons| reasons.into_iter().next().unwrap_or_default())
}

/// Whether another engine may succeed where this one failed: it is gone or full, or has no way there.
fn is_the_engines(error: Errno) -> bool {
    is_refusal(error) || error == Errno::ADDRNOTAVAIL
}

/// Whether an engine has refused a connection before anything of it was sent, for a reason that the kernel may not
/// have: it is gone or full, or has no way there. Not EADDRNOTAVAIL: a connection from this port to that place is not
/// over yet, and on an address that both have the kernel's would meet its rest.
#[must_use]
pub fn is_refusal(error: Errno) -> bool {
    [
        Errno::NETUNREACH,
        Errno::NETDOWN,
        Errno::CONNRESET,
        Errno::NOBUFS,
        Errno::NFILE,
        Errno::MFILE,
    ]
    .contains(&error)
}

/// Whether the kernel may succeed where the engines failed. Where the destination is on this host it has other
/// listeners, and says itself that there is none.
#[must_use]
pub fn is_for_the_kernel(error: Errno, destination: SocketAddr, all: &AllNetworks) -> bool {
    is_refusal(error) || stays_here(destination.ip(), all)
}
