//! The engine inside the program: started by the first socket, run by the program's waiting threads.
//!
//! It answers at the name that an engine of its own would have, so that forked children, and what they execute, attach to
//! it as to any engine. Its descriptors are private ones of the library (`client::relocate`). `shim::inline` says what
//! becomes of it in a forked child, and when the process ends.
//!
//! When the engine is polled is decided in `engine::Inline` and `client::inline_engine`.

use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use client::engines::succession::{self, Succession};
use client::inline_engine::{Answer, InlineEngine, SignalDeferral, Watch};
use engine::{Config, Inline, Kept, SmallWrite, UserBuffer, Watched};
use hostif::SocketId;
use hostif::control::Request;
use local_peers::LocalPeerDriver;
use nic::Driver;
use nic::af_packet::{self, AfPacket};
use nic::af_xdp::{self, fallback};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use shim::Inside;
use shim::inline::{EmbeddedEngine, Leaving, Standstill};

use crate::guard::Guard;
use crate::settings::Settings;
use crate::sys;

static ENGINE: OnceLock<Running> = OnceLock::new();
/// The process in which it runs; 0 for none.
static OWNER: AtomicI32 = AtomicI32::new(0);

struct Running {
    engine: Inline,
    /// Say which engine of this network namespace has which address.
    claims: Vec<OwnedFd>,
    /// Resets what is left when this process is killed.
    guard: Option<Guard>,
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The engine, in the process in which it runs.
pub fn running() -> Option<&'static Inline> {
    let running = ENGINE.get()?;
    (OWNER.load(Ordering::Acquire) == own_pid()).then_some(&running.engine)
}

/// For a thread that starts the engine, whose parts are put together on its stack: the thread that makes the program's first socket may
/// have little (`ulimit -s 128`).
const START_STACK_BYTES: usize = 2 << 20;

/// Tells the guard whether a child goes on with the engine when this process has ended.
pub fn tell_guard(has_heir: bool) {
    if let Some(guard) = ENGINE.get().and_then(|running| running.guard.as_ref()) {
        guard.tell(has_heir);
    }
}

/// The engine goes on with the socket whose ring the guard has made; the guard is to close the first one.
fn release_first_socket() {
    if let Some(guard) = ENGINE.get().and_then(|running| running.guard.as_ref()) {
        guard.release_first_socket();
    }
}

/// Starts the engine where none answers at its name. `Err`: why not.
fn start(settings: &str) -> Result<(), String> {
    if ENGINE.get().is_some() {
        return Ok(());
    }
    let settings = Settings::parse(settings)?;
    hostif::stages::begin("library").map_err(|error| format!("noting stages: {error}"))?;
    let name = client::engine_name();
    let Some(listener) = listen(&name)? else {
        return Ok(());
    };
    hostif::host_hooks::set(client::relocate);
    let claims = claim(&settings)?;
    let (driver, sockets, instead) = open(&settings)?;
    if let Some(instead) = &instead {
        shim::report_line(instead);
    }
    let config = config(&settings, name, instead);
    let driver =
        settings
            .overrides
            .apply_to(Box::new(beside(&settings, driver, config.interface_index)?));
    let engine = Inline::start(config, listener, driver).map_err(|error| error.to_string())?;
    let guard = Guard::start(&settings, &engine, &sockets);
    let running = Running {
        engine,
        claims,
        guard,
    };
    let Ok(()) = ENGINE.set(running) else {
        return Ok(());
    };
    OWNER.store(own_pid(), Ordering::Release);
    // The helper hears no signal of the program.
    let helper = client::inline_engine::with_signals_blocked(|| {
        std::thread::Builder::new()
            .name("shunt-inline".to_owned())
            .spawn(help)
    });
    match helper {
        Ok(_) => {
            client::inline_engine::set(&HANDLE);
            Ok(())
        }
        Err(error) => Err(format!("cannot start the helper thread: {error}")),
    }
}

/// How many programs that start at the same moment may take a name over before this one.
const SUCCESSIONS: u32 = 16;

/// The name, unless an engine has it that serves this program too: of another program with the same address, or one that was
/// left behind and cannot end yet.
fn listen(name: &str) -> Result<Option<OwnedFd>, String> {
    let mut listener = hostif::control::listen(name);
    for _ in 0..SUCCESSIONS {
        if !matches!(listener, Err(Errno::ADDRINUSE)) {
            break;
        }
        match succession::take_over(name) {
            Succession::Free => listener = hostif::control::listen(name),
            Succession::Serves => break,
            Succession::Unfinished => {
                shim::report_line(
                    "an engine that an ended program left behind has this address and is still sending; it serves this program from outside, slower than one inside",
                );
                break;
            }
        }
    }
    match listener {
        Ok(listener) => Ok(Some(listener)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(errno) => Err(format!("cannot open the control socket {name}: {errno}")),
    }
}

fn help() {
    let _inside = Inside::enter();
    if let Some(running) = ENGINE.get()
        && let Err(errno) = running.engine.help()
    {
        shim::report_line(&format!("the helper thread of the engine ended: {errno}"));
    }
}

/// As every engine does; see `shunt engine`.
fn claim(settings: &Settings) -> Result<Vec<OwnedFd>, String> {
    let claim = |own: &engine::Address| {
        let address = own.address;
        succession::claim(address)
            .map(client::relocate)
            .map_err(|errno| format!("another engine owns {address} ({errno})"))
    };
    settings.addresses.iter().map(claim).collect()
}

/// A device, other descriptors of its packet sockets for the guard, and why it is another than was asked for.
type Opened = (Box<dyn Driver>, [Option<OwnedFd>; 2], Option<String>);

fn open(settings: &Settings) -> Result<Opened, String> {
    let addresses = Some(settings.addresses.iter().map(|own| own.address).collect());
    let (nic, relocate_fd) = (&settings.nic, client::relocate);
    if let Some(mode) = settings.xdp {
        let config = af_xdp::Config {
            addresses,
            mode,
            stamps: hostif::stages::is_on(),
            relocate_fd,
            ..af_xdp::Config::new(nic)
        };
        let opened = fallback::open(&config, None).map_err(|error| error.to_string())?;
        let queue = opened.queues.into_iter().next();
        return queue
            .map(|queue| (queue, [None, None], opened.instead))
            .ok_or_else(|| format!("{nic} has no queue"));
    }
    let config = af_packet::Config {
        addresses,
        // The guard makes it.
        ring_later: Guard::can_start().then_some(release_first_socket),
        relocate_fd,
        ..af_packet::Config::new(nic)
    };
    match AfPacket::open(&config) {
        Ok(driver) => {
            let again = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 0).ok();
            let sockets = [again(driver.socket()), driver.ring_socket().and_then(again)];
            Ok((Box::new(driver), sockets, None))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The device, and the other programs of this host that have an engine inside and an address on it.
fn beside(
    settings: &Settings,
    device: Box<dyn Driver>,
    index: u32,
) -> Result<LocalPeerDriver<Box<dyn Driver>>, String> {
    let own = settings.addresses.iter().map(|own| own.address).collect();
    LocalPeerDriver::new(device, &format!("@shunt/wire/{index}"), own)
        .map_err(|errno| format!("cannot wait for {}: {errno}", settings.nic))
}

/// Tables for one program, not for a host.
pub const CONNECTIONS: usize = 16_384;

fn config(settings: &Settings, name: String, instead: Option<String>) -> Config {
    let is_xdp = settings.xdp.is_some() && instead.is_none();
    let driver = if is_xdp { "af_xdp" } else { "af_packet" };
    let mut config = Config::new(&settings.nic, driver, settings.addresses.clone());
    config.name = name;
    config.driver_note = instead;
    config.is_inside = true;
    config.because.clone_from(&settings.because);
    config.gateways.clone_from(&settings.gateways);
    // Any socket will do to ask.
    let asked = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)
        .and_then(|socket| rustix::net::netdevice::name_to_index(socket, &settings.nic));
    config.interface_index = asked.unwrap_or(1);
    config.limits.connections = CONNECTIONS;
    config.hold_idle_latency = !settings.allow_deep_idle;
    config.sysctls = engine::sysctl::names().collect();
    config
}

/// What `client` turns.
struct Handle;

static HANDLE: Handle = Handle;

impl InlineEngine for Handle {
    fn poll(&self) {
        if let Some(running) = ENGINE.get() {
            running.engine.poll(None);
        }
    }

    fn poll_for_datagrams(&self, socket: (u32, SocketId)) {
        if let Some(running) = ENGINE.get() {
            running.engine.poll_for_datagrams(socket);
        }
    }

    fn poll_into(
        &self,
        socket: (u32, SocketId),
        start: u64,
        slices: &mut [IoSliceMut<'_>],
        skipped: usize,
    ) -> Option<usize> {
        let mut user_buffer = UserBuffer::new(socket, start, slices, skipped);
        let turned = ENGINE.get()?.engine.poll(Some(&mut user_buffer));
        turned.then(|| user_buffer.placed())
    }

    fn notify(&self) -> bool {
        ENGINE
            .get()
            .is_some_and(|running| running.engine.notify(None))
    }

    fn notify_small(&self, socket: SocketId) -> bool {
        ENGINE
            .get()
            .is_some_and(|running| running.engine.notify(Some(socket)))
    }

    fn write_small(
        &self,
        (session, socket): (u32, SocketId),
        start: u64,
        end: u64,
        push: &dyn Fn() -> bool,
    ) -> bool {
        let note = SmallWrite {
            session,
            socket,
            start,
            end,
        };
        ENGINE
            .get()
            .is_some_and(|running| running.engine.write_small(&note, push))
    }

    fn flush_small(&self) {
        if let Some(running) = ENGINE.get() {
            running.engine.flush_small();
        }
    }

    fn ask(&self, session: u32, request: Request, descriptors: Vec<OwnedFd>) -> Option<Answer> {
        ENGINE.get()?.engine.ask(session, request, descriptors)
    }

    fn spare_descriptors(&self) -> bool {
        ENGINE
            .get()
            .is_some_and(|running| running.engine.spare_descriptors())
    }

    fn watch(&self) -> Watch {
        match ENGINE.get().map(|running| running.engine.watch()) {
            Some(Watched::Device(fd, longest_us)) => {
                Watch::Device(fd, Duration::from_micros(longest_us))
            }
            Some(Watched::Work) => Watch::Work,
            Some(Watched::Ended) | None => Watch::Nothing,
        }
    }

    fn unwatch(&self) {
        if let Some(running) = ENGINE.get() {
            running.engine.unwatch();
        }
    }
}

/// What the switch is given.
pub struct Embedded;

impl EmbeddedEngine for Embedded {
    fn start(&self, settings: &str) -> Result<(), String> {
        let work = || {
            let _inside = Inside::enter();
            start(settings)
        };
        std::thread::scope(|scope| {
            let starter = client::inline_engine::with_signals_blocked(|| {
                std::thread::Builder::new()
                    .stack_size(START_STACK_BYTES)
                    .spawn_scoped(scope, work)
            });
            let starter = starter.map_err(|error| format!("cannot start a thread: {error}"))?;
            starter
                .join()
                .unwrap_or_else(|_| Err("it panicked".to_owned()))
        })
    }

    fn fork_prepare(&self) -> Option<Box<dyn Standstill>> {
        let deferral = SignalDeferral::begin();
        let kept = running()?.keep(Duration::MAX)?;
        Some(Box::new(AcrossFork {
            kept,
            _deferral: deferral,
        }))
    }

    fn fork_child(&self, standstill: Option<Box<dyn Standstill>>) {
        OWNER.store(0, Ordering::Release);
        client::inline_engine::clear();
        if let Some(standstill) = standstill {
            standstill.abandon();
        }
    }

    fn leave(&self) -> Option<Box<dyn Leaving>> {
        sys::leave()
    }
}

/// The engine stands still, with the thread's signals held back.
struct AcrossFork {
    kept: Kept<'static>,
    _deferral: SignalDeferral,
}

impl Standstill for AcrossFork {
    fn abandon(self: Box<Self>) {
        let AcrossFork { kept, _deferral } = *self;
        for fd in kept.forget() {
            client::close_relocated(fd);
        }
        if let Some(running) = ENGINE.get() {
            for claim in &running.claims {
                client::close_relocated(claim.as_raw_fd());
            }
            if let Some(guard) = &running.guard {
                guard.forget();
            }
        }
    }
}
