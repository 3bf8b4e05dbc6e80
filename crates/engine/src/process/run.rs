//! An engine: its cores, each on a thread of its own, and their common beginning and end.
//!
//! The first core runs on the caller's thread. When one core ends, whatever the reason, all do: half an
//! engine would serve half of its connections.

use crate::core::EngineCore;
use crate::process::clock::{Origin, time_since};
use crate::process::core_loop::CoreLoop;
use crate::process::resume::{self, Before};
use crate::programs::users::Users;
use crate::start_error::StartError;
use engine_config::Config;
use hostif::control::SocketAccess;
use hostif::{Steering, sync::doorbell};
use nic::Driver;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use shards::Shard;
use std::sync::Arc;

/// An engine with its control socket, ready to run.
pub struct Engine {
    /// In the order of the cores.
    loops: Vec<CoreLoop>,
    cpus: Vec<usize>,
    /// Becomes readable when a core has ended.
    ending: OwnedFd,
}

fn listen(config: &Config) -> Result<OwnedFd, StartError> {
    let Some(kept) = &config.kept else {
        return open_control_socket(&config.name, config.access);
    };
    rustix::io::fcntl_dupfd_cloexec(&*kept.listener, 0)
        .map_err(|errno| StartError::System("duplicate a descriptor", errno))
}

/// The socket where programs attach: `@name` (abstract) or a path.
///
/// # Errors
/// [`StartError`].
pub fn open_control_socket(name: &str, access: SocketAccess) -> Result<OwnedFd, StartError> {
    hostif::control::listen_for(name, access).map_err(|errno| match errno {
        Errno::ADDRINUSE => StartError::AlreadyRunning(name.to_owned()),
        errno => StartError::System("open the control socket", errno),
    })
}

/// Every socket of every program costs the engine a descriptor, and the usual soft limit is 1024.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // With a lower limit the engine refuses sockets earlier, and says why.
    let _ = setrlimit(Resource::Nofile, raised);
}

impl Engine {
    /// Opens the control socket and prepares a core for each driver; programs may connect from now on. The
    /// drivers are queues of one device, in the order of the cores, and receive what `steering` says.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        mut config: Config,
        steering: Steering,
        drivers: Vec<Box<dyn Driver>>,
    ) -> Result<Self, StartError> {
        let system = |what| move |errno| StartError::System(what, errno);
        if drivers.len() != usize::from(steering.cores) {
            return Err(StartError::Stack(stack::Error::InvalidArgument));
        }
        raise_descriptor_limit();
        config.limits = config.limits.of_core(steering.cores);
        let before = resume::find(&mut config, steering.cores)?;
        let listener = match &before {
            Some(before) => before.listener()?,
            None => listen(&config)?,
        };
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(system("get random numbers"))?;
        let ending = doorbell::create().map_err(system("make an eventfd"))?;
        let shards = Shard::all(steering).map_err(system("make an eventfd"))?;
        let cpus = config.cpus.clone();
        let origin = before.as_ref().map_or_else(Origin::now, Before::origin);
        let users = Users::with_threads(config.user_share_percent);
        let cores = shards.into_iter().zip(drivers).map(|(shard, driver)| {
            let (config, users) = (config.clone(), Arc::clone(&users));
            EngineCore::with_shard(config, shard, users, driver, secret, time_since(origin))
        });
        let mut cores = cores.collect::<Result<Vec<_>, StartError>>()?;
        match &before {
            Some(before) => before.go_on(&mut cores, time_since(origin)),
            None => resume::note_begin(&mut cores, &listener, origin, steering),
        }
        let mut listener = Some(listener);
        let loops = cores.into_iter();
        let loops = loops.map(|core| CoreLoop::new(core, listener.take(), origin));
        Ok(Self {
            loops: loops.collect::<Result<_, StartError>>()?,
            cpus,
            ending,
        })
    }

    /// Runs until `stop` becomes readable, or nobody needs the engine (see [`Config::until_idle_s`]).
    ///
    /// # Errors
    /// [`StartError::Device`], or a system call that cannot fail failed; of one of several cores in
    /// [`StartError::Core`].
    pub fn run(self, stop: BorrowedFd<'_>) -> Result<(), StartError> {
        let Self {
            loops,
            cpus,
            ending,
        } = self;
        let is_single = loops.len() == 1;
        let ending = &ending;
        let run = |core: u16, turns: CoreLoop, cpu: Option<&usize>| {
            let _ends_others = RingWhenDropped(ending.as_fd());
            let result = cpu
                .map_or(Ok(()), |cpu| pin(*cpu))
                .and_then(|()| turns.run([stop, ending.as_fd()]));
            match result {
                Err(error) if !is_single => Err(StartError::Core(core, Box::new(error))),
                result => result,
            }
        };
        let run = &run;
        let mut numbered = (0_u16..).zip(loops);
        let first = numbered.next();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (core, turns) in numbered {
                let cpu = cpus.get(usize::from(core));
                let thread = std::thread::Builder::new()
                    .name(format!("shunt-core-{core}"))
                    .spawn_scoped(scope, move || run(core, turns, cpu));
                match thread {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        doorbell::ring(ending.as_fd());
                        return Err(StartError::Thread(error));
                    }
                }
            }
            let mut result = match first {
                Some((core, turns)) => run(core, turns, cpus.first()),
                None => Ok(()),
            };
            for thread in threads {
                match thread.join() {
                    Ok(ended) => result = result.and(ended),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result
        })
    }
}

/// Tells the other cores that one has ended, even by a panic.
struct RingWhenDropped<'a>(BorrowedFd<'a>);

impl Drop for RingWhenDropped<'_> {
    fn drop(&mut self) {
        doorbell::ring(self.0);
    }
}

fn pin(cpu: usize) -> Result<(), StartError> {
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None, &set)
        .map_err(|errno| StartError::System("run on the processor that was named", errno))
}
