//! The flags of `shunt ping`.

use std::{path::PathBuf, time::Duration};

use anyhow::{bail, ensure};
use clap::{ArgGroup, Args};

use crate::{
    flight::FLIGHT_MAX,
    probe::{Kind, datagram::HeaderOptions, link::FrameDriver},
    report::Limit,
    session::{Pacing, Plan},
    target::Family,
    testbed::Mode,
};

/// Where `shunt echo` listens, and `shunt ping` asks.
pub const DEFAULT_PORT: u16 = 7007;
/// Probes where --count does not say: what the papers measured a mean of.
const DEFAULT_COUNT: u64 = 50;
/// Payload where --size does not say.
const DEFAULT_BYTES: usize = 64;
/// Longer times are not told apart.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// A run is never longer, whatever --count says.
const COUNT_MAX: u64 = 1 << 40;

/// Measure round trips: ICMP, UDP, TCP or Ethernet frames, the distribution and what disturbed it.
#[derive(Debug, Clone, Args)]
#[command(
    group(ArgGroup::new("kind").multiple(false)),
    group(ArgGroup::new("turns").multiple(true)),
    after_help = "Examples:
  shunt ping 10.0.0.5                                50 ICMP echoes, one after the other
  shunt ping 10.0.0.5 --udp --count 100000 --spin    against `shunt echo` there, on port 7007
  shunt ping 10.0.0.5 --tcp --port 7 --size 1024     against any echo
  shunt ping 10.0.0.5 --connect --port 443           SYN to SYN-ACK, nothing else
  shunt ping 10.0.0.5 --udp --rate 20000 --seconds 10   open loop; counted from when each was due
  shunt ping 10.0.0.5 --limit p99=250us --max-loss 0.1  exit status 1 where that is not kept
  shunt ping 10.0.0.5 --udp --sizes 64,128,256,512,1024 --count 5000   by size, with a fit
  shunt ping example.org --hops                      routers on the way, no root needed
  shunt ping --compare kernel,engine,inline --tcp    two hosts of this machine, over three stacks
  shunt ping --stages                                where each microsecond goes, ours and the kernel's
  shunt ping --stages --spin --compare engine,inline,kernel --json > stages.json
  shunt path diff stages --with stages.json          beside what the papers measured
  shunt ping --raw --burst 64 --count 20000          frames between two hosts of this machine
  shunt ping --raw --compare kernel,af_packet,af_xdp frames by a packet socket, and by Shunt's drivers
  shunt ping 10.0.0.5 --save runs.json --label before  then: shunt compare runs.json
  shunt ping 02:00:00:00:00:01 --raw --nic eth0      frames, against `shunt echo --raw` there
  shunt ping --raw --nic eth1,eth2 --burst 32        frames from one port of this host to another

Exit status: 0 measured, 1 something was lost, failed or above a limit, 2 wrong usage or system error."
)]
pub struct Arguments {
    /// A host, or with --raw the Ethernet address of one [default: one of two hosts that are made on this machine].
    #[arg(value_name = "HOST")]
    pub target: Option<String>,
    /// ICMP echo [default].
    #[arg(long, group = "kind")]
    icmp: bool,
    /// UDP to an echo; where nothing listens the port-unreachable is the answer.
    #[arg(long, group = "kind")]
    udp: bool,
    /// Messages and their echoes on one TCP connection.
    #[arg(long, group = "kind")]
    tcp: bool,
    /// A TCP connection for each probe: SYN to SYN-ACK or RST.
    #[arg(long, group = "kind")]
    connect: bool,
    /// Ethernet frames (needs CAP_NET_RAW).
    #[arg(long, group = "kind")]
    raw: bool,
    /// Port, of UDP and TCP.
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// With --raw: the interface that sends; with a second one, the interface at which the frames arrive.
    #[arg(
        long,
        value_name = "IFACE[,IFACE]",
        value_delimiter = ',',
        requires = "raw"
    )]
    pub nic: Vec<String>,
    /// With --raw: by this driver of Shunt in this program, in place of a packet socket of the kernel.
    #[arg(long, value_enum, requires = "raw", conflicts_with = "compare")]
    pub driver: Option<FrameDriver>,
    /// IPv4 only.
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// IPv6 only.
    #[arg(short = '6')]
    v6: bool,
    /// Probes that count [default: 50, or with --seconds as many as there is time for].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    pub count: Option<u64>,
    /// Send nothing any more after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Probes before, which do not count.
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub warm_up: u64,
    /// What is not answered by then is lost, such as 250ms.
    #[arg(long, default_value = "1s", value_parser = parse_time)]
    pub timeout: Duration,
    /// Closed loop: from one probe to the next at least, such as 10ms.
    #[arg(long, value_parser = parse_time, conflicts_with = "rate")]
    interval: Option<Duration>,
    /// Open loop: probes for each second, sent whatever comes back. Times are counted from when a probe was due
    /// (coordinated omission is corrected); how late the sender was is said.
    #[arg(long, value_name = "PER_SECOND", conflicts_with_all = ["in_flight", "burst"])]
    rate: Option<f64>,
    /// Closed loop: probes on their way at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256), conflicts_with = "burst")]
    in_flight: u64,
    /// Closed loop: so many probes are sent back to back when all before were answered.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=64))]
    burst: Option<u64>,
    /// Payload in bytes, behind the header of ICMP, UDP, TCP or Ethernet.
    #[arg(long, default_value_t = DEFAULT_BYTES)]
    pub size: usize,
    /// Several sizes, with commas: round trips by size, and what a byte costs.
    #[arg(long, value_delimiter = ',', value_name = "BYTES,…", conflicts_with_all = ["size", "samples", "graph", "hops"])]
    pub sizes: Vec<usize>,
    /// Which routers are on the way, and their round trips; --count probes for each [default: 5], up to --ttl hops
    /// [default: 30].
    #[arg(long, conflicts_with_all = ["tcp", "connect", "raw", "samples", "graph", "limit", "max_loss"])]
    pub hops: bool,
    /// The same over several stacks in one run, with ratios to the first one. With HOST this end's stack changes;
    /// without, both ends of two hosts of this machine (shunt lab). Frames of --raw have no stack: there it is the kernel's packet
    /// socket and Shunt's drivers.
    #[arg(long, group = "turns", value_enum, value_delimiter = ',', value_name = "STACKS", num_args = 1..,
          conflicts_with_all = ["sizes", "hops", "samples", "graph", "stack"])]
    pub compare: Vec<Mode>,
    /// The way of a message through Shunt's stack and the kernel's, stage by stage, in one run (TCP echo). Without HOST both of
    /// two hosts of this machine are looked into, with HOST this end, where a card with a clock is set to stamp what leaves meanwhile;
    /// --compare says which stacks.
    #[arg(long, group = "turns", conflicts_with_all = ["sizes", "hops", "samples", "graph", "rate", "in_flight", "burst", "interval",
          "seconds", "csv", "save", "label", "report", "limit", "max_loss", "rt", "warm_up"])]
    pub stages: bool,
    /// With --compare and --stages: how often each stack is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "turns")]
    pub rounds: u32,
    /// With --compare and HOST: flags for `shunt run`, such as '--nic eth0 --address 10.0.0.9/24'.
    #[arg(
        long,
        value_name = "FLAGS",
        allow_hyphen_values = true,
        requires = "compare"
    )]
    pub run: Option<String>,
    /// Time to live, or hop limit.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: Option<u8>,
    /// Never fragment.
    #[arg(long)]
    df: bool,
    /// Ask for answers again and again in place of waiting for them: a processor is busy with it.
    #[arg(long)]
    pub spin: bool,
    /// Measure on this processor.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// SCHED_FIFO, locked memory, and the last processor unless --cpu names one (needs CAP_SYS_NICE, CAP_IPC_LOCK).
    #[arg(long)]
    pub rt: bool,
    /// A limit, such as p99=250us, mean=1ms or max=0.5s; may be given several times. Above it the exit status is 1.
    #[arg(long, value_name = "FIGURE=TIME")]
    pub limit: Vec<Limit>,
    /// Per cent that may be lost.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub max_loss: f64,
    /// Show the distribution as bars.
    #[arg(long)]
    pub graph: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the result as CSV: a line of names and a line of values, of --sizes one for each.
    #[arg(long, conflicts_with_all = ["json", "compare", "hops"])]
    pub csv: bool,
    /// Add the result to a file for `shunt compare`; one of several runs may have the same --label.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "sizes", "hops"])]
    pub save: Option<PathBuf>,
    /// What this run is called in the result and by `shunt compare`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["compare", "sizes", "hops"])]
    pub label: Option<String>,
    /// Write the result as a page for a browser, which loads nothing from elsewhere.
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["sizes", "hops"])]
    pub report: Option<PathBuf>,
    /// Write each round trip to a file: sequence number, when it was sent and how long it took, in nanoseconds.
    #[arg(long, value_name = "FILE.csv")]
    pub samples: Option<PathBuf>,
    /// A name for the stack that this runs on, in the result.
    #[arg(long, hide = true)]
    pub stack: Option<String>,
}

impl Arguments {
    /// What is measured.
    pub fn kind(&self) -> Kind {
        match (self.udp, self.tcp, self.connect, self.raw) {
            (true, ..) => Kind::Udp,
            (_, true, ..) => Kind::Tcp,
            (_, _, true, _) => Kind::Connect,
            (.., true) => Kind::Raw,
            _ if self.stages => Kind::Tcp,
            _ => Kind::Icmp,
        }
    }

    /// Which family a name stands for.
    pub fn family(&self) -> Family {
        match (self.v4, self.v6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    /// Of the IP header.
    pub fn header_options(&self) -> HeaderOptions {
        HeaderOptions {
            hop_limit: self.ttl,
            dont_fragment: self.df,
        }
    }

    /// When probes are sent.
    pub fn plan(&self) -> Plan {
        let pacing = match (self.rate, self.burst) {
            (Some(per_s), _) => Pacing::Open { per_s },
            (None, burst) => Pacing::Closed {
                in_flight: burst.unwrap_or(self.in_flight),
                burst: burst.is_some(),
                interval: self.interval.unwrap_or(Duration::ZERO),
            },
        };
        let unbounded = if self.seconds.is_some() {
            COUNT_MAX
        } else {
            DEFAULT_COUNT
        };
        Plan {
            count: self.count.unwrap_or(unbounded),
            warm_up: self.warm_up,
            pacing,
            timeout: self.timeout,
            time: self.seconds.map(Duration::from_secs_f64),
            spin: self.spin,
        }
    }

    /// The flags of a child that makes one of several measurements.
    pub fn child_words(&self, spin: bool) -> Vec<String> {
        let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
        let mut words = vec![
            "--json".to_owned(),
            format!("--{}", self.kind().name()),
            format!("--port={}", self.port),
            format!("--warm-up={}", self.warm_up),
            format!("--timeout={}", seconds(self.timeout)),
            format!("--size={}", self.size),
        ];
        words.extend(self.count.map(|count| format!("--count={count}")));
        words.extend(self.seconds.map(|seconds| format!("--seconds={seconds}")));
        words.extend(
            self.interval
                .map(|time| format!("--interval={}", seconds(time))),
        );
        words.extend(self.rate.map(|rate| format!("--rate={rate}")));
        words.extend(self.burst.map(|count| format!("--burst={count}")));
        words.extend((self.in_flight > 1).then(|| format!("--in-flight={}", self.in_flight)));
        words.extend(self.ttl.map(|hops| format!("--ttl={hops}")));
        words.extend(self.cpu.map(|cpu| format!("--cpu={cpu}")));
        let switches = [
            (self.df, "--df"),
            (spin, "--spin"),
            (self.rt, "--rt"),
            (self.v4, "-4"),
            (self.v6, "-6"),
        ];
        words.extend(
            switches
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| name.to_owned()),
        );
        words
    }

    /// Checks what one flag alone cannot know.
    pub fn check(&self) -> anyhow::Result<()> {
        let is_short = !self.timeout.is_zero() && self.timeout <= TIMEOUT_MAX;
        ensure!(
            is_short,
            "--timeout: {:?} is not above 0 and at most {TIMEOUT_MAX:?}",
            self.timeout
        );
        if let Some(seconds) = self.seconds {
            let fits = seconds.is_finite() && seconds > 0.0 && seconds <= 1e6;
            ensure!(
                fits,
                "--seconds: {seconds} is not above 0 and at most a million"
            );
        }
        if let Some(rate) = self.rate {
            ensure!(
                rate.is_finite() && rate > 0.0 && rate <= 1e7,
                "--rate: {rate} is not above 0 and at most ten million"
            );
            let on_their_way = rate * self.timeout.as_secs_f64();
            ensure!(
                on_their_way <= FLIGHT_MAX as f64,
                "--rate: with --timeout {:?} up to {on_their_way:.0} probes could be on their way, {FLIGHT_MAX} can; \
                 a shorter --timeout does",
                self.timeout
            );
            let sockets = 256.0;
            ensure!(
                self.kind() != Kind::Connect || on_their_way <= sockets,
                "--rate: each probe of --connect has a socket, {sockets} at most; a shorter --timeout or a lower rate does"
            );
        }
        ensure!(
            (0.0..=100.0).contains(&self.max_loss),
            "--max-loss: {} is no percentage",
            self.max_loss
        );
        self.check_frames()?;
        if self.compare.len() == 1 && !self.stages {
            bail!("--compare: one stack is no comparison: --compare kernel,inline");
        }
        if self.target.is_none() && self.nic.len() < 2 {
            ensure!(
                self.nic.is_empty(),
                "--nic: whom to measure is missing: the Ethernet address of a HOST, or a second interface"
            );
            ensure!(
                !self.v6,
                "-6: the two hosts of this machine are asked over IPv4; give a HOST"
            );
        }
        Ok(())
    }

    /// Checks what frames have and packets have not, and the other way round.
    fn check_frames(&self) -> anyhow::Result<()> {
        let is_raw = self.kind() == Kind::Raw;
        ensure!(
            !is_raw || (self.ttl.is_none() && !self.df),
            "--ttl and --df are of IP: frames of --raw have none"
        );
        // Beside another kind of the group clap does not ask for --raw.
        ensure!(
            is_raw || (self.driver.is_none() && self.nic.is_empty()),
            "--driver and --nic are of frames: add --raw"
        );
        for mode in &self.compare {
            ensure!(
                !is_raw || *mode == Mode::Kernel || mode.frame_driver().is_some(),
                "--compare: frames of --raw pass no stack, so there is nothing for {} to serve: compare kernel (a packet socket, a \
                 call for each frame), af_packet and af_xdp (Shunt's drivers)",
                mode.name()
            );
            ensure!(
                is_raw || mode.frame_driver().is_none(),
                "--compare: {} is a way of frames: add --raw; a stack's driver is named by --run '--driver {} …'",
                mode.name(),
                mode.name()
            );
        }
        Ok(())
    }
}

/// A time with its unit, such as `250us`, `1.5ms`, `2s`.
///
/// # Errors
/// The text is none.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
    ];
    let found = units
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let time =
        found.and_then(|(number, seconds)| Some(number.trim().parse::<f64>().ok()? * seconds));
    time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time <= Duration::from_secs(86_400))
        .ok_or_else(|| format!("{text:?} is no time such as 250us, 1.5ms or 2s, of a day at most"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_time("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "5", "-1s", "ms", "1h", "nans", "1e9s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
