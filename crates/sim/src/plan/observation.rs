//! A workload from what was seen of a running program: which numbers were counted, which follow from
//! them, and what nobody could see.

use std::fmt::Write as _;

use super::{FileError, Workload};
use crate::time::round;

/// What was counted while a program ran. Times are sums over its threads, counts are sums over its
/// connections.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// The program's name.
    pub name: String,
    /// How long it was watched.
    pub seconds: f64,
    /// Requests with their answers: on each connection the smaller number of segments that carried
    /// payload in one direction.
    pub exchanges: f64,
    /// Payload received.
    pub bytes_in: f64,
    /// Payload sent.
    pub bytes_out: f64,
    /// Segments sent again.
    pub repeated: f64,
    /// Largest payload of a segment.
    pub mss_bytes: f64,
    /// Connections seen.
    pub connections: u64,
    /// Of these, those that were new.
    pub opened: u64,
    /// Connections that all programs of this network accepted meanwhile.
    pub opened_by_all: u64,
    /// Share of the exchanges whose other end was on this machine.
    pub local_share: f64,
    /// Processor time in the program itself.
    pub user_s: f64,
    /// Processor time in the kernel on the program's behalf.
    pub system_s: f64,
    /// Processor time of everything else on the machine.
    pub others_s: f64,
    /// Of that, of the processes on this machine that hold the other ends; none where none was found.
    pub clients_s: Option<f64>,
    /// How many threads of those worked, and as many as if all worked alike.
    pub client_threads: usize,
    /// Time in which they worked or waited for a processor.
    pub clients_ready_s: f64,
    /// Connections that carried exchanges, on average over the time.
    pub concurrent: f64,
    /// Times that a thread went to sleep.
    pub sleeps: f64,
    /// Calls of read(2) and its relatives.
    pub reads: f64,
    /// Calls of write(2) and its relatives.
    pub writes: f64,
    /// Threads that worked, as many as if all worked alike.
    pub serving_threads: usize,
    /// Time in which they worked or waited for a processor.
    pub serving_ready_s: f64,
    /// Time in which processors had nothing to do.
    pub idle_s: f64,
    /// Processors of the machine.
    pub cores: usize,
}

/// Fewer exchanges than this say little.
const FEW: f64 = 1000.0;
/// More connections than seen by this factor were too short to be seen.
const UNSEEN: f64 = 1.1;
/// Exchanges of a connection from which it counts as one that lasts.
const LASTING: f64 = 10.0;
/// The part of the time that threads which could do no more have work, and that processors have none.
const BUSY: f64 = 0.9;
const IDLE: f64 = 0.05;
/// Ticks of processor time, a hundredth of a second each, below which user and system are guesses.
const LEAST_WORK_S: f64 = 0.5;

impl Observation {
    /// Connections that began and ended between two looks.
    fn unseen(&self) -> f64 {
        let all = self.opened_by_all as f64;
        if all > UNSEEN * self.opened as f64 {
            all - self.opened as f64
        } else {
            0.0
        }
    }

    /// Clients that wait for each answer: as many as there are connections that last. Who comes for one exchange comes
    /// by himself.
    fn waiting_clients(&self) -> usize {
        let lasting = self.exchanges >= LASTING * (self.opened as f64 + self.unseen());
        let whole = round(self.concurrent.max(1.0));
        match lasting && self.concurrent > 0.0 {
            true => usize::try_from(whole).unwrap_or(usize::MAX),
            false => 0,
        }
    }

    /// Whether somebody was busy all the time, so that no more requests could be asked or answered: the threads that
    /// serve, those that ask, or all processors.
    fn saturated(&self) -> bool {
        let busy = |ready_s: f64, threads: usize| {
            threads > 0 && ready_s >= BUSY * self.seconds * threads as f64
        };
        busy(self.serving_ready_s, self.serving_threads)
            || busy(self.clients_ready_s, self.client_threads)
            || self.idle_s <= IDLE * self.seconds * self.cores.max(1) as f64
    }

    /// The workload of the program as it ran.
    pub fn workload(&self) -> Result<Workload, FileError> {
        if self.exchanges < 1.0 {
            let seen = match self.connections {
                0 => "no TCP connection of the kernel was seen".to_owned(),
                n => format!("its {n} connections carried payload in one direction at most"),
            };
            return Err(FileError::value(
                "--record",
                format!(
                    "{} answered nothing in {:.1} s: {seen}; record it under load, on the kernel's stack",
                    self.name, self.seconds
                ),
            ));
        }
        // What was too short to be seen carried one exchange at least.
        let exchanges = self.exchanges + self.unseen();
        let each = |sum: f64| sum / self.exchanges;
        let opened = self.opened as f64 + self.unseen();
        let per_s = exchanges / self.seconds;
        let cores = self.cores.max(1) as f64;
        let others = self.others_s / self.seconds;
        // Clients on this machine work as the load does; the rest of it does not. Who was not found is taken to be
        // everybody else.
        let clients = match self.clients_s {
            Some(clients_s) => (clients_s / self.seconds).min(others),
            None => self.local_share * others,
        };
        Ok(Workload {
            title: format!("{}, recorded for {:.0} s", self.name, self.seconds),
            requests_per_s: per_s.round().max(1.0),
            request_bytes: each(self.bytes_in).round().max(1.0),
            response_bytes: each(self.bytes_out).round().max(1.0),
            application_ns: (self.user_s / exchanges * 1e9).round(),
            observed_stack_ns: (self.system_s / exchanges * 1e9).round(),
            requests_per_connection: match opened > 0.0 {
                true => (exchanges / opened).round().max(1.0),
                false => 0.0,
            },
            wake_share: round_to(1000.0, (self.sleeps / exchanges).min(1.0)),
            threads: self.serving_threads.max(1),
            host_cores: self.cores.max(1),
            client_ns: (clients / per_s * 1e9).round(),
            clients: self.waiting_clients(),
            saturated: self.saturated(),
            client_threads: match self.clients_s {
                Some(_) => self.client_threads,
                None => 0,
            },
            other_load: round_to(1000.0, ((others - clients) / cores).clamp(0.0, 0.99)),
            // Loopback's 32 KiB are no network's.
            mss_bytes: match self.mss_bytes > 0.0 && self.local_share < 0.5 {
                true => self.mss_bytes,
                false => Workload::default().mss_bytes,
            },
            ..Workload::default()
        })
    }

    /// What the recording could not see, for those who read its numbers.
    pub fn blind_spots(&self) -> Vec<String> {
        let mut spots = vec![
            "calls of recv(2) and send(2) are counted by nobody in /proc: an exchange is a segment in and a \
             segment out, so requests that travel together count as one"
                .to_owned(),
            "the kernel's work in interrupts is charged to whoever runs then: on a quiet network card it is \
             missing here, and over loopback or veth each side does part of the other's"
                .to_owned(),
            "UDP, files, and time spent waiting for others".to_owned(),
            "how many requests are under way: one on each connection that was open is assumed, and that who asks waits \
             for the answer"
                .to_owned(),
            "whether answers are written one by one or together (`together`), which stacks in user space gain from"
                .to_owned(),
            "system time is taken for the network stack's: a program that also reads files has less to gain"
                .to_owned(),
        ];
        if self.clients_s.is_none() && self.local_share > 0.0 {
            spots.push(
                "who the clients on this machine are: all that others did here counts as theirs"
                    .to_owned(),
            );
        }
        if self.exchanges < FEW {
            spots.push(format!(
                "only {:.0} exchanges were seen: record for longer or under more load",
                self.exchanges
            ));
        }
        if self.user_s + self.system_s < LEAST_WORK_S {
            spots.push(format!(
                "{:.2} s of processor time, counted in hundredths: its division into user and system is a guess",
                self.user_s + self.system_s
            ));
        }
        if self.unseen() > 0.0 {
            spots.push(format!(
                "{:.0} connections of this network were too short to be seen; they count as the program's, with \
                 one exchange each",
                self.unseen()
            ));
        }
        if self.repeated > 0.0 {
            spots.push(format!(
                "{:.0} segments were sent again; the plan knows no loss",
                self.repeated
            ));
        }
        spots
    }

    /// What was counted, in a sentence.
    pub fn summary(&self) -> String {
        format!(
            "{} connections, {} of them new; {:.0} exchanges; {:.0} bytes in, {:.0} out; {:.0} read and {:.0} write \
             calls, {:.0} sleeps; {:.2} s in the program, {:.2} s in the kernel, {:.2} s of others{}, in {:.1} s",
            self.connections,
            self.opened,
            self.exchanges,
            self.bytes_in,
            self.bytes_out,
            self.reads,
            self.writes,
            self.sleeps,
            self.user_s,
            self.system_s,
            self.others_s,
            self.clients_s.map_or(String::new(), |s| format!(
                " ({s:.2} s of them clients, {} threads)",
                self.client_threads
            )),
            self.seconds
        )
    }

    /// The workload file, with what was counted and what was not in comments.
    pub fn to_toml(&self) -> Result<String, FileError> {
        let workload = self.workload()?;
        let mut text = format!(
            "# Recorded by shunt sim plan --record. Counted: {}.\n# Not seen:\n",
            self.summary()
        );
        for spot in self.blind_spots() {
            let _ = writeln!(text, "#  - {spot}");
        }
        let quoted = workload.title.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(text, "\ntitle = \"{quoted}\"");
        for (key, value) in [
            ("requests_per_s", workload.requests_per_s),
            ("request_bytes", workload.request_bytes),
            ("response_bytes", workload.response_bytes),
            ("application_ns", workload.application_ns),
            ("observed_stack_ns", workload.observed_stack_ns),
            ("requests_per_connection", workload.requests_per_connection),
            ("wake_share", workload.wake_share),
            ("client_ns", workload.client_ns),
            ("other_load", workload.other_load),
            ("mss_bytes", workload.mss_bytes),
        ] {
            let _ = writeln!(text, "{key} = {value:?}");
        }
        let _ = writeln!(
            text,
            "threads = {}\nhost_cores = {}\nclients = {}\nclient_threads = {}\nsaturated = {}",
            workload.threads,
            workload.host_cores,
            workload.clients,
            workload.client_threads,
            workload.saturated
        );
        Ok(text)
    }
}

fn round_to(parts: f64, value: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Observation {
        Observation {
            name: "redis-server".to_owned(),
            seconds: 10.0,
            exchanges: 500_000.0,
            bytes_in: 20e6,
            bytes_out: 5e6,
            mss_bytes: 1448.0,
            connections: 50,
            user_s: 2.0,
            system_s: 6.0,
            others_s: 9.0,
            sleeps: 50_000.0,
            local_share: 1.0,
            serving_threads: 1,
            concurrent: 49.8,
            idle_s: 5.0,
            cores: 2,
            ..Observation::default()
        }
    }

    #[test]
    fn rates_sizes_and_times_per_request_follow_from_the_counts() {
        let w = busy().workload().unwrap();
        assert_eq!(w.requests_per_s, 50_000.0);
        assert_eq!((w.request_bytes, w.response_bytes), (40.0, 10.0));
        assert_eq!((w.application_ns, w.observed_stack_ns), (4000.0, 12_000.0));
        assert_eq!((w.wake_share, w.requests_per_connection), (0.1, 0.0));
        assert_eq!((w.client_ns, w.other_load), (18_000.0, 0.0));
        assert_eq!((w.threads, w.host_cores), (1, 2));
    }

    #[test]
    fn others_are_load_of_their_own_where_clients_are_elsewhere() {
        let far = Observation {
            local_share: 0.0,
            ..busy()
        };
        let w = far.workload().unwrap();
        assert_eq!((w.client_ns, w.other_load), (0.0, 0.45));
    }

    #[test]
    fn what_neither_program_nor_clients_do_is_load_of_its_own() {
        let beside = Observation {
            clients_s: Some(4.0),
            client_threads: 2,
            ..busy()
        };
        let w = beside.workload().unwrap();
        assert_eq!((w.client_ns, w.other_load), (8000.0, 0.25));
        assert_eq!((w.clients, w.client_threads), (50, 2));
        // Nobody was found: how many threads they have nobody knows.
        assert_eq!(busy().workload().unwrap().client_threads, 0);
        assert!(
            beside
                .summary()
                .contains("9.00 s of others (4.00 s of them clients, 2 threads)")
        );
        let unseen = "who the clients on this machine are";
        assert!(!beside.blind_spots().join("\n").contains(unseen));
        assert!(busy().blind_spots().join("\n").contains(unseen));
    }

    #[test]
    fn who_is_busy_all_the_time_can_do_no_more() {
        assert!(!busy().workload().unwrap().saturated);
        let serving = Observation {
            serving_ready_s: 9.5,
            ..busy()
        };
        let asking = Observation {
            client_threads: 2,
            clients_ready_s: 18.5,
            ..busy()
        };
        let processors = Observation {
            idle_s: 0.3,
            ..busy()
        };
        for saturated in [serving, asking, processors] {
            assert!(saturated.workload().unwrap().saturated, "{saturated:?}");
        }
    }

    #[test]
    fn connections_too_short_to_be_seen_are_counted_and_said() {
        let short = Observation {
            opened: 1000,
            opened_by_all: 51_000,
            ..busy()
        };
        let w = short.workload().unwrap();
        assert_eq!(w.requests_per_s, 55_000.0);
        assert_eq!(w.requests_per_connection, 11.0);
        assert_eq!(w.clients, 0, "who comes for a few exchanges does not stay");
        assert_eq!(busy().workload().unwrap().clients, 50);
        let spots = short.blind_spots().join("\n");
        assert!(spots.contains("50000 connections"), "{spots}");
    }

    #[test]
    fn the_file_reads_back_as_the_workload() {
        let text = busy().to_toml().unwrap();
        assert!(text.starts_with("# Recorded"));
        assert_eq!(Workload::parse(&text).unwrap(), busy().workload().unwrap());
    }

    #[test]
    fn a_program_that_answers_nothing_is_no_workload() {
        let idle = Observation {
            exchanges: 0.0,
            ..busy()
        };
        let error = idle.workload().unwrap_err().to_string();
        assert!(error.contains("one direction"), "{error}");
        let deaf = Observation {
            connections: 0,
            ..idle
        };
        let error = deaf.workload().unwrap_err().to_string();
        assert!(error.contains("kernel's stack"), "{error}");
    }
}
