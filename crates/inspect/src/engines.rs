//! Which engines there are: abstract control sockets that somebody listens on, as /proc/net/unix lists them for a
//! network namespace, see unix(7) and proc(5).
//!
//! An engine with another name, or a path elsewhere, is found only by that name.

pub mod answer;
pub mod namespace;

use std::fs;

use anyhow::bail;
use clap::Args;

use namespace::Namespace;

/// What the names of engines begin with: those that `shunt engine` and `shunt run` choose, and where docs/security.md puts
/// sockets with permissions.
const PREFIXES: [&str; 2] = ["@shunt/", "/run/shunt/"];

/// Names below it where no program attaches: who owns an address, and where engines of one host meet.
const OTHERS: [&str; 2] = ["@shunt/address/", "@shunt/wire/"];

/// An engine that somebody listens for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its control socket.
    pub name: String,
    /// Where that is; `None`: in the network namespace of this command.
    pub namespace: Option<Namespace>,
}

impl Found {
    /// What people are shown.
    pub fn label(&self) -> String {
        match &self.namespace {
            None => self.name.clone(),
            Some(namespace) => format!("{} in {namespace}", self.name),
        }
    }
}

/// Which engines a command asks.
#[derive(Debug, Args)]
pub struct Which {
    /// Only this engine: its control socket, @NAME or a path [default: every engine of this network namespace, those
    /// that `shunt run` started and those inside programs too].
    #[arg(long, value_name = "ADDRESS", env = hostif::ENGINE_VARIABLE)]
    engine: Option<String>,
    /// Every engine of this host, in whatever network namespace, as far as this user may look.
    #[arg(long, conflicts_with = "engine")]
    all: bool,
}

impl Which {
    /// At least one. The usual one is the first.
    pub fn find(&self) -> anyhow::Result<Vec<Found>> {
        let found = self.find_any();
        if found.is_empty() {
            bail!("{}", self.nobody());
        }
        Ok(found)
    }

    /// The same, perhaps none.
    pub fn find_any(&self) -> Vec<Found> {
        if let Some(asked) = &self.engine {
            let names = asked.split(hostif::ENGINE_SEPARATOR);
            let here = |name: &str| Found {
                name: name.to_owned(),
                namespace: None,
            };
            return names.map(here).collect();
        }
        let mut found = here();
        if self.all {
            let (others, hidden) = namespace::others();
            if hidden > 0 {
                note!("{}", unseen(hidden, rustix::process::geteuid().is_root()));
            }
            for other in others {
                let names = names_of(other.pid).into_iter();
                found.extend(names.map(|name| Found {
                    name,
                    namespace: Some(other.clone()),
                }));
            }
        }
        found
    }

    /// That there is none, and what to do.
    pub fn nobody(&self) -> String {
        let usual = hostif::DEFAULT_ENGINE_NAME;
        match &self.engine {
            Some(name) => format!(
                "no engine answers at {name} in this network namespace: start one with `shunt engine`, or leave --engine (${}) out to see those that run",
                hostif::ENGINE_VARIABLE
            ),
            None if self.all => "no engine runs on this host: start one with `shunt engine`, or a program with `shunt run -- CMD`".to_owned(),
            None => format!(
                "no engine answers at {usual} or any other name in this network namespace: start one with `shunt engine`, a program with `shunt run -- CMD`, look in all network namespaces with --all, or ask inside a lab with `shunt lab exec HOST -- shunt status`"
            ),
        }
    }
}

/// That some processes do not show their network namespace.
fn unseen(processes: usize, is_root: bool) -> String {
    let whose = match processes {
        1 => "1 process does not show its network namespace".to_owned(),
        many => format!("{many} processes do not show their network namespaces"),
    };
    let next = match is_root {
        true => "not even to root",
        false => "root sees more",
    };
    format!("{whose} ({next}): an engine there would be missing here")
}

/// The engines of this network namespace, the usual one first.
pub fn here() -> Vec<Found> {
    let found = |name| Found {
        name,
        namespace: None,
    };
    names().into_iter().map(found).collect()
}

/// The names at which engines listen here: the usual one, then the others in order; none where the list cannot be read.
pub fn names() -> Vec<String> {
    names_in(&fs::read_to_string("/proc/net/unix").unwrap_or_default())
}

/// The same in the network namespace of a process.
pub fn names_of(pid: u32) -> Vec<String> {
    names_in(&fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default())
}

fn names_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text.lines().filter_map(name).map(str::to_owned).collect();
    names.sort_unstable_by(|a, b| {
        let is_other = |name: &str| name != hostif::DEFAULT_ENGINE_NAME;
        (is_other(a), a).cmp(&(is_other(b), b))
    });
    names.dedup();
    names
}

/// The name in a line, if it is one of a listening socket of packets that an engine may have.
fn name(line: &str) -> Option<&str> {
    /// `__SO_ACCEPTCON` and `SOCK_SEQPACKET`, as the kernel prints them.
    const LISTENS: &str = "00010000";
    const PACKETS: &str = "0005";
    // Num, RefCount, Protocol, Flags, Type, St, Inode, Path
    let mut fields = line.split_ascii_whitespace().skip(3);
    let is_door = fields.next()? == LISTENS && fields.next()? == PACKETS;
    let name = fields.nth(2)?;
    let is_ours = PREFIXES.iter().any(|one| name.starts_with(one));
    let is_ours = is_ours && !OTHERS.iter().any(|one| name.starts_with(one));
    (is_door && is_ours).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(flags: &str, kind: &str, name: &str) -> String {
        format!("0000000000000000: 00000002 00000000 {flags} {kind} 01 22345 {name}")
    }

    #[test]
    fn listening_sockets_of_packets_with_our_names_are_engines() {
        for expected in ["@shunt/run/10.0.0.5", "/run/shunt/engine"] {
            assert_eq!(name(&line("00010000", "0005", expected)), Some(expected));
        }
        for other in [
            line("00000000", "0005", "@shunt/run/10.0.0.5"),
            line("00010000", "0001", "@shunt/run/10.0.0.5"),
            line("00010000", "0005", "@shunt/address/10.0.0.5"),
            line("00010000", "0005", "/run/udev/control"),
            line("00010000", "0005", ""),
            "Num       RefCount Protocol Flags    Type St Inode Path".to_owned(),
        ] {
            assert_eq!(name(&other), None, "{other}");
        }
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(unseen(1, true).contains("not even to root"));
        assert!(
            unseen(2, false).contains("2 processes") && unseen(2, false).contains("root sees more")
        );
    }

    #[test]
    fn the_usual_engine_is_the_first() {
        let door = |name| line("00010000", "0005", name);
        let text = [
            door("@shunt/b"),
            door(hostif::DEFAULT_ENGINE_NAME),
            door("@shunt/a"),
            door("@shunt/b"),
        ];
        let expected = [hostif::DEFAULT_ENGINE_NAME, "@shunt/a", "@shunt/b"];
        assert_eq!(names_in(&text.join("\n")), expected);
    }

    #[test]
    fn an_engine_that_listens_is_found_and_one_that_has_ended_is_not() {
        let name = format!("@shunt/test/found/{}", std::process::id());
        let listener = hostif::control::listen(&name).unwrap();
        assert!(names().contains(&name));
        assert!(names_of(std::process::id()).contains(&name));
        drop(listener);
        assert!(!names().contains(&name));
    }
}
