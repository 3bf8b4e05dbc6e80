//! A card whose queues are those of the engine's cores: where its driver takes a key and a table, its hash becomes the
//! engine's, so that a connection's packets arrive in a queue of the core that serves it
//! (docs/decisions/0091-the-hash-of-a-card.md).
//!
//! A process of its own does it, so that the card gets back what it had however the engine ends. It waits for the end of the
//! engine, or of its keeper, and reads nothing that a program or a peer has written.

use std::io::{BufRead as _, BufReader};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use confine::{Need, Needs};
use engine::{Left, card};
use hostif::Steering;
use netlink::ethtool;
use netlink::receive_hash::{self, ReceiveHash, is_of_both_ends};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::arguments::{Arguments, DriverName};
use super::pci::{self, Card};
use crate::sys;

/// What the process says once the card spreads as the engine does.
const DONE: &str = "done";
/// How long the process of an engine before may take to give a card back.
const BEFORE: Duration = Duration::from_secs(2);
/// Queues that an engine serves at most.
const QUEUES_MAX: u32 = 64;

/// The engine process whose end is waited for, and the key of its steering.
#[derive(Debug, Clone, Copy)]
pub struct Tended {
    pid: i32,
    key: u32,
}

impl FromStr for Tended {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(',').and_then(|(pid, key)| {
            let (pid, key) = (pid.parse().ok()?, key.parse().ok()?);
            Some(Self { pid, key })
        });
        parts.ok_or_else(|| "give PID,KEY".to_owned())
    }
}

/// How connections are spread over cores: as an engine before did, as the card does, or by a random key, which keeps strangers
/// from choosing addresses and ports that all lead to one core. The card is given back when process `pid` has ended.
pub fn choose_steering(
    arguments: &Arguments,
    left: Option<&Left>,
    pid: u32,
) -> anyhow::Result<Steering> {
    let cores = arguments.cores;
    if let Some(left) = left {
        let key = left.steering_key;
        return Ok(Steering { cores, key });
    }
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .context("getting random numbers")?;
    let random = u32::from_ne_bytes(random);
    if cores > 1 && arguments.driver() == DriverName::Dpdk {
        // Nobody else's card: it is told when it is opened, and what it spreads otherwise is handed over.
        return Ok(Steering::of_card(cores, random));
    }
    let is_kernels = matches!(arguments.driver(), DriverName::AfPacket | DriverName::AfXdp);
    if cores > 1 && is_kernels && !arguments.leave_card {
        let steering = Steering::of_card(cores, random);
        match begin(arguments, steering, pid) {
            Ok(()) => {
                tracing::info!(
                    "{} spreads frames over its queues as the engine spreads connections over its cores",
                    arguments.nic
                );
                return Ok(steering);
            }
            Err(why) => tracing::info!(
                "{} spreads frames over its queues by a hash of its own: {why:#}",
                arguments.nic
            ),
        }
    }
    Ok(Steering::random(cores, random))
}

/// Has a card that was told its table and key told them once more, with the engine's driver open: a program of XDP changes the
/// number of queues of a virtio-net, and the device forgets then what its driver still says.
pub fn tell_again(nic: &str, steering: Steering) {
    let agrees = |has: &ReceiveHash| steering.card_key().is_some() && card::agrees(steering, has);
    if let Some(has) = receive_hash::read(nic).ok().filter(agrees) {
        // What it does not take it had taken before.
        let _ = receive_hash::write(nic, &has, true);
    }
}

/// Has the process begin, and hears what has become of it.
fn begin(arguments: &Arguments, steering: Steering, pid: u32) -> anyhow::Result<()> {
    // Most interfaces are no cards: no process is needed to know it.
    plan_for(&arguments.nic, steering)?;
    start(arguments, &format!("{pid},{}", steering.key), &[])
}

/// Takes the card behind an interface for DPDK until this process has ended; its address.
pub fn take_for_dpdk(arguments: &Arguments) -> anyhow::Result<String> {
    let nic = &arguments.nic;
    if arguments.driver() != DriverName::Dpdk {
        bail!("--take-card needs --driver {}", DriverName::Dpdk.name());
    }
    let card = Card::behind(ethtool::driver_info(nic));
    let card = card.with_context(|| pci::refusal(nic, None))?;
    start(
        arguments,
        &format!("{},0", std::process::id()),
        &["--take-card"],
    )
    .with_context(|| format!("--take-card: the card of {nic}, {}", card.address))?;
    Ok(card.address)
}

/// Starts the process, and waits until it has done its part.
fn start(arguments: &Arguments, tended: &str, flags: &[&str]) -> anyhow::Result<()> {
    let mut process = sys::without_library(&mut Command::new("/proc/self/exe"))
        .args(["engine", "--nic", &arguments.nic])
        .args(["--cores", &arguments.cores.to_string()])
        .args(["--tend-card", tended])
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C is for the engine.
        .process_group(0)
        .spawn()
        .context("starting the process that sets it")?;
    let said = process.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    if line.trim() == DONE {
        return Ok(());
    }
    process.wait()?;
    Err(anyhow!("{}", line.trim()))
}

/// What the card has now, what it is to have, and how many queues.
pub fn plan_for(nic: &str, steering: Steering) -> anyhow::Result<(ReceiveHash, ReceiveHash, u32)> {
    let found = receive_hash::read(nic).context("its driver does not say how")?;
    if is_of_both_ends(nic) == Some(false) {
        bail!("it does not hash addresses and ports of TCP");
    }
    let queues = ethtool::receive_queues(nic)?.min(QUEUES_MAX);
    let told = card::plan(steering, &found, queues).map_err(|why| anyhow!(why))?;
    Ok((found, told, queues))
}

/// The process itself: sets the card, says so, waits, and gives the card back.
pub fn tend(arguments: &Arguments, tended: Tended) -> anyhow::Result<ExitCode> {
    sys::ignore_signals(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    if arguments.take_card {
        return hold_for_dpdk(arguments, tended);
    }
    let (nic, cores, key) = (&arguments.nic, arguments.cores, tended.key);
    let steering = Steering { cores, key };
    let set = engine_process(tended.pid).and_then(|engine| Ok((engine, set(nic, steering)?)));
    let Some((engine, (_name, found, told, queues))) = say(set) else {
        return Ok(ExitCode::FAILURE);
    };
    confine::apply(&Needs {
        capabilities: vec![Need::NetworkAdministration],
        ..Needs::default()
    });
    wait_for_end(&engine)?;
    // What somebody else has set meanwhile stays.
    if receive_hash::read(nic).is_ok_and(|now| now == told) {
        give_back(nic, &found, queues).context("giving the card its table and key back")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The process itself, for DPDK: takes the card, says so, waits, and gives it back.
fn hold_for_dpdk(arguments: &Arguments, tended: Tended) -> anyhow::Result<ExitCode> {
    let nic = &arguments.nic;
    let taken = engine_process(tended.pid).and_then(|engine| {
        let name = take(nic)?;
        let card = Card::behind(ethtool::driver_info(nic)).context("it is on no PCI bus")?;
        card.take()?;
        Ok((engine, name, card))
    });
    let Some((engine, _name, card)) = say(taken) else {
        return Ok(ExitCode::FAILURE);
    };
    confine::apply(&Needs {
        devices: card.files(),
        ..Needs::default()
    });
    wait_for_end(&engine)?;
    card.give_back()
        .with_context(|| format!("giving {} back to the kernel", card.address))?;
    Ok(ExitCode::SUCCESS)
}

/// Says what has become of it. Who asked may have ended meanwhile: the card is given back all the same.
fn say<T>(done: anyhow::Result<T>) -> Option<T> {
    let line = match &done {
        Ok(_) => DONE.to_owned(),
        Err(why) => format!("{why:#}"),
    };
    let _ = output::print(&format!("{line}\n"));
    done.ok()
}

fn engine_process(pid: i32) -> anyhow::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).context("there is no such process")?;
    pidfd_open(pid, PidfdFlags::empty()).context("the engine has ended")
}

type Set = (UnixListener, ReceiveHash, ReceiveHash, u32);

fn set(nic: &str, steering: Steering) -> anyhow::Result<Set> {
    let name = take(nic)?;
    let (found, told, queues) = plan_for(nic, steering)?;
    receive_hash::write(nic, &told, true).context("it takes neither table nor key")?;
    let has = receive_hash::read(nic);
    if !has.is_ok_and(|has| has == told && card::agrees(steering, &has)) {
        give_back(nic, &found, queues).context("giving it back what it had")?;
        bail!("it does not keep what it is told");
    }
    Ok((name, found, told, queues))
}

fn give_back(nic: &str, found: &ReceiveHash, queues: u32) -> std::io::Result<()> {
    receive_hash::write(nic, found, !found.is_even(queues))
}

/// A name that one process has for each card of a network namespace.
fn take(nic: &str) -> anyhow::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("shunt-card/{nic}"))?;
    let deadline = Instant::now() + BEFORE;
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(listener) => return Ok(listener),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => bail!("another engine has set it"),
        }
    }
}

/// The NUMA node of the card behind an interface, or of one by its PCI address, and the node's processors as the kernel lists
/// them; `None`: it is on none.
fn node_of(nic: &str) -> Option<(u32, String)> {
    let read = |path: String| std::fs::read_to_string(path).ok();
    let device = format!("/sys/class/net/{nic}/device");
    // Of a virtio card it is its parent that is on the bus.
    let folders = [
        device.clone(),
        format!("{device}/.."),
        format!("/sys/bus/pci/devices/{nic}"),
    ];
    let said = folders
        .iter()
        .find_map(|folder| read(format!("{folder}/numa_node")))?;
    let node: u32 = said.trim().parse().ok()?;
    let processors = read(format!("/sys/devices/system/node/node{node}/cpulist"))?;
    Some((node, processors.trim().to_owned()))
}

/// Has this thread, and those that it starts, run on the processors of the card's NUMA node: memory of queues and windows lies
/// where it is touched first, and a driver touches its own when it is opened. What there is to say of it.
pub fn go_near(nic: &str) -> Option<String> {
    let (node, near) = node_of(nic)?;
    let allowed = sched_getaffinity(None).ok()?;
    let mut chosen = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu) && is_listed(*cpu, &near)) {
        chosen.set(cpu);
    }
    if chosen.count() == allowed.count() {
        return None;
    }
    if chosen.count() == 0 || sched_setaffinity(None, &chosen).is_err() {
        return Some(format!(
            "this engine may run on none of processors {near} of NUMA node {node}, where {nic} is: its memory is on another node"
        ));
    }
    Some(format!(
        "memory of queues and windows is on NUMA node {node}, where {nic} is: the engine runs on its processors, {near}"
    ))
}

/// Which of the engine's processors are on another NUMA node than the card.
pub fn far_processors(nic: &str, cpus: &[usize]) -> Option<String> {
    let (node, near) = node_of(nic)?;
    let far = cpus.iter().filter(|cpu| !is_listed(**cpu, &near));
    let far: Vec<String> = far.map(usize::to_string).collect();
    (!far.is_empty()).then(|| {
        format!(
            "--cpu {}: not on NUMA node {node}, where {nic} is: what it receives and sends crosses nodes; processors {near} are on that node",
            far.join(",")
        )
    })
}

/// Whether a processor is in a list as the kernel prints it: `0-3,8`.
fn is_listed(cpu: usize, list: &str) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.parse().ok().zip(last.parse().ok());
        ends.is_some_and(|(first, last): (usize, usize)| (first..=last).contains(&cpu))
    })
}

fn wait_for_end(engine: &OwnedFd) -> anyhow::Result<()> {
    loop {
        match poll(&mut [PollFd::new(engine, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting for the engine"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_and_key_are_read() {
        let tended: Tended = "17,4294967295".parse().unwrap();
        assert_eq!((tended.pid, tended.key), (17, u32::MAX));
        for text in ["", "17", "17,", ",5", "17,-1", "x,5"] {
            assert!(text.parse::<Tended>().is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_found_in_a_list() {
        let listed: Vec<usize> = (0..20)
            .filter(|cpu| is_listed(*cpu, "0-2,8,10-11\n"))
            .collect();
        assert_eq!(listed, [0, 1, 2, 8, 10, 11]);
        assert!(!is_listed(0, "") && !is_listed(1, "x-3"));
        assert_eq!(far_processors("lo", &[0]), None, "it is on no node");
        assert_eq!(go_near("lo"), None);
    }

    #[test]
    fn loopback_is_no_card() {
        assert!(plan_for("lo", Steering::of_card(2, 5)).is_err());
    }

    #[test]
    fn a_card_is_one_process_at_a_time() {
        let nic = format!("test{}", std::process::id());
        let first = take(&nic).unwrap();
        assert!(take(&nic).is_err());
        drop(first);
        assert!(take(&nic).is_ok());
    }
}
