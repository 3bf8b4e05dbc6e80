//! A lab as a whole: building it, finding it again, removing it with everything that runs in it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    Cable, Error, Host, LabSpec,
    holder::{Holder, Identity, Lifetime, privileged},
    host::ENVIRONMENT,
    link, spec,
    state::{self, SavedHost, SavedLab},
    sys::{self, Step},
    tap,
};

/// How long programs may take to end after SIGTERM before they are killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(1);

/// Two hosts joined by a cable.
#[derive(Debug)]
pub struct Lab {
    name: String,
    mark: String,
    rootless: bool,
    cable: Cable,
    mtu: u32,
    segment_bytes: u32,
    congestion: String,
    hosts: Vec<Host>,
    /// Both ends of a cable of TAPs, until somebody takes them.
    taps: Option<[OwnedFd; 2]>,
    /// The process that joins them, if it is one.
    joiner: Option<Identity>,
    /// A lab that is remembered in a file outlives this value.
    persistent: bool,
}

/// What removing a lab did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownReport {
    /// Programs that still ran in the lab and were ended.
    pub programs_stopped: usize,
    /// False where the lab had lost its holders before.
    pub was_alive: bool,
}

impl Lab {
    /// Builds a lab that is removed when the value is dropped or this process ends.
    pub fn temporary(name: &str, spec: &LabSpec) -> Result<Self, Error> {
        Self::build(name, spec, Lifetime::WithParent)
    }

    /// Builds a lab that stays until it is removed by name.
    pub fn up(name: &str, spec: &LabSpec) -> Result<Self, Error> {
        crate::spec::check_name("lab", name)?;
        let _lock = state::lock()?;
        if let Some(saved) = state::load(name)? {
            if saved.hosts.iter().any(|host| host.holder.alive()) {
                return Err(Error::AlreadyUp {
                    name: name.to_owned(),
                });
            }
            // Its holders died, in a reboot for example: nothing is left to collide with.
            Self::restore(saved).remove()?;
        }
        let mut lab = Self::build(name, spec, Lifetime::Detached)?;
        state::save(&lab.saved())?;
        lab.persistent = true;
        lab.hosts.iter_mut().for_each(|host| host.holder.release());
        Ok(lab)
    }

    /// Finds a lab that an earlier command built.
    pub fn open(name: &str) -> Result<Self, Error> {
        let saved = state::load(name)?.ok_or_else(|| Error::NotFound {
            name: name.to_owned(),
        })?;
        let mut lab = Self::restore(saved);
        let directory = state::directory()?;
        lab.hosts
            .iter_mut()
            .for_each(|host| host.state_directory = Some(directory.clone()));
        Ok(lab)
    }

    /// Names of all labs that this user has.
    pub fn names() -> Result<Vec<String>, Error> {
        state::names()
    }

    /// Removes a lab by name, with every program that runs in it.
    pub fn down(name: &str) -> Result<DownReport, Error> {
        let _lock = state::lock()?;
        match state::load(name) {
            Ok(Some(saved)) => Self::restore(saved).remove(),
            Ok(None) => Err(Error::NotFound {
                name: name.to_owned(),
            }),
            Err(Error::State { .. }) => {
                // What a damaged file names cannot be trusted: only the file goes.
                state::remove(name)?;
                Ok(DownReport {
                    programs_stopped: 0,
                    was_alive: false,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Name of the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True where the lab lives in a user namespace.
    pub fn rootless(&self) -> bool {
        self.rootless
    }

    /// What joins the hosts.
    pub fn cable(&self) -> Cable {
        self.cable
    }

    /// IP MTU of the cable.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Largest packet that crosses the cable in one piece.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Congestion control of both kernels.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// True while every host can be entered and the process that joins them, if it is one, lives.
    pub fn alive(&self) -> bool {
        self.hosts.iter().all(Host::alive) && self.joiner.is_none_or(|joiner| joiner.alive())
    }

    /// Both ends of a cable of TAPs, once: frames without a header in front, descriptors that do not
    /// block. Nothing crosses until somebody carries frames between them, and the interfaces go
    /// away when they are closed.
    pub fn take_taps(&mut self) -> Option<[OwnedFd; 2]> {
        self.taps.take()
    }

    /// Remembers which process joins the TAPs: it ends with the lab.
    pub fn joined_by(&mut self, pid: u32) -> Result<(), Error> {
        let identity = Identity::of(pid)
            .map_err(|error| Error::system(format!("reading /proc/{pid}/stat"), error))?;
        self.joiner = Some(identity);
        if self.persistent {
            let _lock = state::lock()?;
            state::save(&self.saved())?;
        }
        Ok(())
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Result<&Host, Error> {
        self.hosts
            .iter()
            .find(|host| host.spec().name == name)
            .ok_or_else(|| {
                let known: Vec<&str> = self
                    .hosts
                    .iter()
                    .map(|host| host.spec().name.as_str())
                    .collect();
                Error::UnknownHost {
                    host: name.to_owned(),
                    known: known.join(", "),
                }
            })
    }

    fn build(name: &str, spec: &LabSpec, lifetime: Lifetime) -> Result<Self, Error> {
        spec.check()?;
        let mut lab = Self {
            name: name.to_owned(),
            mark: format!("{name}/{}", random_mark()?),
            rootless: !privileged(),
            cable: spec.cable,
            mtu: spec.mtu,
            segment_bytes: spec.segment_bytes,
            congestion: String::new(),
            hosts: Vec::new(),
            taps: None,
            joiner: None,
            persistent: false,
        };
        for host in &spec.hosts {
            let sibling = if lab.rootless {
                lab.hosts.first().map(|host| &host.holder)
            } else {
                None
            };
            let holder = Holder::start(&host.name, lifetime, sibling)?;
            lab.hosts.push(Host::new(
                host.clone(),
                holder,
                lab.mark.clone(),
                carries_ipv6(spec.mtu),
            ));
        }
        lab.join_hosts()?;
        lab.congestion = lab.choose_congestion(&spec.congestion)?;
        Ok(lab)
    }

    /// Lays the cable and switches everything on.
    fn join_hosts(&mut self) -> Result<(), Error> {
        match self.cable {
            Cable::Veth => self.lay_veth()?,
            Cable::Tap => self.lay_taps()?,
        }
        for host in &self.hosts {
            let ports = Step::Write(
                c"/proc/sys/net/ipv4/ip_unprivileged_port_start".to_owned(),
                b"0".to_vec(),
            );
            let mut steps = vec![
                ("switching loopback on", Step::Netlink(link::loopback_up())),
                (
                    "adding the address",
                    Step::Netlink(link::add_address(host.spec().address)),
                ),
                ("switching eth0 on", Step::Netlink(link::cable_up())),
                ("writing net.ipv4.ip_unprivileged_port_start", ports),
            ];
            if host.has_ipv6() {
                let address = host.spec().address_v6();
                let add = link::add_address_v6(address, spec::IPV6_PREFIX_LEN);
                steps.push(("adding the IPv6 address", Step::Netlink(add)));
            }
            setup(host, steps)?;
        }
        Ok(())
    }

    fn lay_veth(&self) -> Result<(), Error> {
        let [first, second] = self.hosts.as_slice() else {
            return Ok(());
        };
        let far = second.namespaces()?;
        let create = link::create_veth(far.net().as_fd(), self.mtu, self.segment_bytes);
        setup(
            first,
            vec![("creating the veth pair", Step::Netlink(create))],
        )
    }

    fn lay_taps(&mut self) -> Result<(), Error> {
        let end = |host: &Host| -> Result<OwnedFd, Error> {
            let tap = tap::create(&host.namespaces()?).map_err(|source| Error::Setup {
                host: host.spec().name.clone(),
                step:
                    "creating the TAP interface (an ordinary user needs /dev/net/tun readable and \
                       writable for all)"
                        .to_owned(),
                source,
            })?;
            let prepare = Step::Netlink(link::prepare_tap(self.mtu));
            setup(host, vec![("setting MTU and queue of the TAP", prepare)])?;
            Ok(tap)
        };
        if let [first, second] = self.hosts.as_slice() {
            self.taps = Some([end(first)?, end(second)?]);
        }
        Ok(())
    }

    /// Sets the first congestion control that the kernel allows on every host.
    fn choose_congestion(&self, wanted: &[String]) -> Result<String, Error> {
        let mut refusals = Vec::new();
        'next: for candidate in wanted {
            for host in &self.hosts {
                let path = c"/proc/sys/net/ipv4/tcp_congestion_control".to_owned();
                let step = (
                    "setting the congestion control",
                    Step::Write(path, candidate.as_bytes().to_vec()),
                );
                if let Err(error) = setup(host, vec![step]) {
                    refusals.push(format!("{candidate}: {error}"));
                    continue 'next;
                }
            }
            return Ok(candidate.clone());
        }
        Err(Error::Spec(format!(
            "no congestion control of {} is allowed here: {}",
            wanted.join(", "),
            refusals.join("; ")
        )))
    }

    fn saved(&self) -> SavedLab {
        let host = |host: &Host| SavedHost {
            spec: host.spec().clone(),
            holder: host.holder.identity,
            net_inode: host.holder.net_inode,
        };
        SavedLab {
            version: SavedLab::VERSION,
            name: self.name.clone(),
            mark: self.mark.clone(),
            rootless: self.rootless,
            cable: self.cable,
            mtu: self.mtu,
            segment_bytes: self.segment_bytes,
            congestion: self.congestion.clone(),
            hosts: self.hosts.iter().map(host).collect(),
            joiner: self.joiner,
        }
    }

    fn restore(saved: SavedLab) -> Self {
        let mark = saved.mark;
        let host = |host: SavedHost| {
            Host::new(
                host.spec,
                Holder::known(host.holder, host.net_inode),
                mark.clone(),
                carries_ipv6(saved.mtu),
            )
        };
        Self {
            name: saved.name,
            rootless: saved.rootless,
            cable: saved.cable,
            mtu: saved.mtu,
            segment_bytes: saved.segment_bytes,
            congestion: saved.congestion,
            hosts: saved.hosts.into_iter().map(host).collect(),
            taps: None,
            joiner: saved.joiner,
            persistent: true,
            mark,
        }
    }

    /// Ends programs and holders, and forgets the lab.
    fn remove(mut self) -> Result<DownReport, Error> {
        let own = sys::own_namespace_inode("net")
            .map_err(|error| Error::system("reading /proc/self/ns/net", error))?;
        if let Some(host) = self
            .hosts
            .iter()
            .find(|host| host.alive() && host.holder.net_inode == own)
        {
            return Err(Error::Inside {
                host: host.spec().name.clone(),
            });
        }
        let was_alive = self.alive();
        let programs_stopped = self.stop_programs();
        self.stop_holders();
        state::remove(&self.name)?;
        Ok(DownReport {
            programs_stopped,
            was_alive,
        })
    }

    /// Ends the programs on the hosts: asks first, kills what is left.
    fn stop_programs(&self) -> usize {
        let programs = self.programs();
        for program in &programs {
            program.signal(Signal::TERM);
        }
        let deadline = Instant::now() + TERMINATION_GRACE;
        while Instant::now() < deadline && programs.iter().any(Identity::alive) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Asked anew: a program may have started others meanwhile.
        for program in self.programs() {
            program.signal(Signal::KILL);
        }
        programs.len()
    }

    /// Processes in the hosts' network namespaces, the holders excepted.
    fn programs(&self) -> Vec<Identity> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| Identity::of(pid).ok())
            .filter(|program| self.owns(program))
            .collect()
    }

    fn owns(&self, program: &Identity) -> bool {
        let Some(Ok(inode)) = program.raw().map(|pid| sys::namespace_inode(pid, "net")) else {
            return false;
        };
        self.hosts.iter().any(|host| {
            // The number of a namespace that has ended is used again: without a living holder only
            // the mark in the environment proves that the program is ours.
            let ours = host.alive() || carries_mark(program.pid, &self.mark);
            inode == host.holder.net_inode && program.pid != host.holder.identity.pid && ours
        })
    }

    fn stop_holders(&mut self) {
        if let Some(joiner) = self.joiner.take() {
            joiner.signal(Signal::KILL);
        }
        self.hosts.iter_mut().for_each(|host| host.holder.stop());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.persistent {
            self.stop_programs();
            self.stop_holders();
        }
    }
}

/// Performs named steps on a host; the first that fails is the error.
/// Whether a cable of this MTU carries IPv6 here: a kernel may lack it.
fn carries_ipv6(mtu: u32) -> bool {
    mtu >= spec::IPV6_MINIMUM_MTU && std::path::Path::new("/proc/sys/net/ipv6").exists()
}

fn setup(host: &Host, steps: Vec<(&str, Step)>) -> Result<(), Error> {
    let failed = |step: &str, source: io::Error| Error::Setup {
        host: host.spec().name.clone(),
        step: step.to_owned(),
        source,
    };
    let (names, steps): (Vec<&str>, Vec<Step>) = steps.into_iter().unzip();
    let results = sys::perform(&host.namespaces()?, &steps)
        .map_err(|error| failed("entering the namespaces", error))?;
    for (name, result) in names.into_iter().zip(results) {
        result.map_err(|error| failed(name, error))?;
    }
    Ok(())
}

/// True where the process was started in the lab of this mark, see proc_pid_environ(5).
fn carries_mark(pid: u32, mark: &str) -> bool {
    let wanted = format!("{ENVIRONMENT}={mark}");
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    })
}

/// Sixteen random hexadecimal digits.
fn random_mark() -> Result<String, Error> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::system("getrandom", error))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
