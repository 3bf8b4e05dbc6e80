//! `shunt capture`: frames of running engines, in a pcapng file.
//!
//! `stream` reads what one core of an engine sends.

mod stream;

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal as _, Write},
    net::IpAddr,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use bench::parse_size;
use clap::{Args, ValueEnum};
use hostif::control::{CaptureFilter, CaptureProtocol, SNAP_BYTES_MAX};
use inspect::engines::{Which, answer::ask_each};
use netem::pcap::Writer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use stream::Stream;

/// Room for all frames of a read, so that only whole ones are written: whoever reads the file meanwhile finds no torn one.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// How long frames are waited for until something else is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Capture frames of running engines into a pcapng file, for Wireshark, tshark and tcpdump.
///
/// Every frame is seen as the engine sees it: large segments whole, and checksums of sent ones unfinished where the device
/// finishes them (Wireshark may call them wrong). Bytes that programs with engines inside pass each other through shared
/// memory are no frames, and payload that sendfile(2) names in a large file is left out (its headers are there). Engines
/// never wait: what the file takes too slowly is dropped and counted. A captured frame costs the engine a copy, and each
/// of its polls with frames a system call; without a capture a look at an empty list.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt capture -w engine.pcapng                        until Ctrl-C or 1 GiB
  shunt capture -w redis.pcapng --port 6379 --seconds 10
  shunt capture --host 10.0.0.5 --proto tcp --snap-bytes 96 | tcpdump -n -r -
  shunt capture -w - --count 100 | tshark -r -

Needs root, or the user who runs the engine. Exit status: 0; 2 where nothing can be captured or written.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// File to write; `-`: standard output [default: standard output where that is no terminal].
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Only frames from or to this address.
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// Only frames of TCP and UDP from or to this port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only frames that carry this.
    #[arg(long, value_enum)]
    proto: Option<Proto>,
    /// Bytes of each frame that are kept, at most.
    #[arg(long, short, value_name = "BYTES", default_value_t = SNAP_BYTES_MAX, value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAP_BYTES_MAX)))]
    snap_bytes: u32,
    /// End after so many frames.
    #[arg(long, short, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// End before the file has more bytes than this, such as 100M.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    file_bytes: u64,
    /// Print at the end what was captured as JSON; the frames then need a file.
    #[arg(long, requires = "write")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Proto {
    Tcp,
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    Arp,
}

impl Proto {
    fn wanted(self) -> CaptureProtocol {
        match self {
            Self::Tcp => CaptureProtocol::Tcp,
            Self::Udp => CaptureProtocol::Udp,
            Self::Icmp => CaptureProtocol::Icmp,
            Self::Arp => CaptureProtocol::Arp,
        }
    }
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let to_stdout = arguments
        .write
        .as_ref()
        .is_none_or(|file| file.as_os_str() == "-");
    if to_stdout && arguments.json {
        bail!("--json needs a file: --write FILE");
    }
    if to_stdout && io::stdout().is_terminal() {
        bail!("frames are not for a terminal: --write FILE, or `shunt capture | tcpdump -n -r -`");
    }
    let end = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&end)).context("catching signals")?;
    }
    let (names, mut streams) = attach(arguments)?;
    let output: Box<dyn Write> = match &arguments.write {
        Some(file) if !to_stdout => {
            let created = File::create(file);
            Box::new(created.with_context(|| format!("--write {}", file.display()))?)
        }
        _ => Box::new(io::stdout()),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut sink = Sink::new(output, &names, arguments)?;
    note!("shunt capture: {}; Ctrl-C ends it", names.join(", "));
    let outcome = receive(&mut streams, &mut sink, &end);
    let written = sink.writer.flush();
    let is_reader_gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    match outcome.and(written) {
        Err(error) if !is_reader_gone(&error) => return Err(error).context("writing frames"),
        _ => {}
    }
    report(arguments, &sink, &streams)?;
    Ok(ExitCode::SUCCESS)
}

/// A stream of each core of each engine, with the number of its engine, and the names of those.
fn attach(arguments: &Arguments) -> anyhow::Result<(Vec<String>, Vec<Stream>)> {
    let filter = CaptureFilter {
        snap_bytes: arguments.snap_bytes,
        host: arguments.host,
        port: arguments.port,
        protocol: arguments.proto.map_or(CaptureProtocol::Any, Proto::wanted),
    };
    let answers = ask_each(arguments.which.find()?, |channels| {
        let started = channels
            .iter()
            .map(|channel| Ok((channel.capture(filter)?, channel.keep()?)));
        started.collect::<anyhow::Result<Vec<_>>>()
    });
    let (mut names, mut streams, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for (found, answer) in answers {
        match answer {
            Ok(cores) => {
                let interface = u32::try_from(names.len()).context("too many engines")?;
                names.push(found.label());
                let of_cores = cores.into_iter();
                streams.extend(of_cores.map(|(stream, kept)| Stream::new(interface, stream, kept)));
            }
            Err(one) => silent.push(one.line(&found)),
        }
    }
    if streams.is_empty() {
        bail!("{}", silent.join("\n"));
    }
    for line in silent {
        note!("{line}");
    }
    Ok((names, streams))
}

/// Where frames go, and when that is enough.
struct Sink {
    writer: Writer<BufWriter<Box<dyn Write>>>,
    frames: u64,
    bytes: u64,
    frames_max: u64,
    bytes_max: u64,
    until: Option<Instant>,
    is_full: bool,
}

impl Sink {
    fn new(output: Box<dyn Write>, names: &[&str], arguments: &Arguments) -> anyhow::Result<Self> {
        let writer = Writer::new(BufWriter::with_capacity(BUFFER_BYTES, output), names)
            .context("writing frames")?;
        Ok(Self {
            writer,
            frames: 0,
            // Heads of the section and its interfaces.
            bytes: 32 + 128 * u64::try_from(names.len())?,
            frames_max: arguments.count.unwrap_or(u64::MAX),
            bytes_max: arguments.file_bytes,
            until: arguments
                .seconds
                .map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            is_full: false,
        })
    }

    /// False: no more is to come.
    fn is_open(&self) -> bool {
        !self.is_full && self.until.is_none_or(|until| Instant::now() < until)
    }

    fn add(&mut self, interface: u32, frame: &stream::Frame<'_>) -> io::Result<()> {
        // 44 bytes around a frame, which is padded.
        let bytes = 48 + u64::try_from(frame.bytes.len()).unwrap_or(u64::MAX);
        if self.is_full || self.bytes.saturating_add(bytes) > self.bytes_max {
            self.is_full = true;
            return Ok(());
        }
        let place = (interface, frame.direction);
        self.writer
            .packet(place, frame.time_ns, frame.bytes, frame.frame_bytes)?;
        self.bytes += bytes;
        self.frames += 1;
        self.is_full = self.frames >= self.frames_max;
        Ok(())
    }
}

/// Until it is enough, all engines have ended, or the user has.
fn receive(streams: &mut [Stream], sink: &mut Sink, end: &AtomicBool) -> io::Result<()> {
    let look = Timespec::try_from(LOOK).expect("invariant: a tenth of a second");
    while sink.is_open() && !end.load(Ordering::Relaxed) {
        let open = streams.iter().filter(|one| one.is_open());
        let mut fds: Vec<PollFd<'_>> = open
            .map(|one| PollFd::from_borrowed_fd(one.fd(), PollFlags::IN))
            .collect();
        if fds.is_empty() {
            return Ok(());
        }
        match poll(&mut fds, Some(&look)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for stream in streams.iter_mut().filter(|one| one.is_open()) {
            stream.take(&mut |interface, frame| sink.add(interface, frame))?;
            sink.writer.flush()?;
        }
    }
    Ok(())
}

fn report(arguments: &Arguments, sink: &Sink, streams: &[Stream]) -> anyhow::Result<()> {
    let dropped: u64 = streams.iter().map(Stream::dropped_frames).sum();
    if arguments.json {
        return output::print_json(&json!({
            "file": arguments.write, "frames": sink.frames, "dropped_frames": dropped,
            "file_full": sink.bytes.saturating_add(48) > sink.bytes_max,
        }));
    }
    note!("shunt capture: {} frames", sink.frames);
    if dropped > 0 {
        note!(
            "shunt capture: {dropped} more were dropped, because they were written too slowly: use a filter, --snap-bytes 128 or a faster disk"
        );
    }
    Ok(())
}
