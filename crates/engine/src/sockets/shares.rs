//! What the programs of one user have of a core's tables and of the memory of its windows, and how much of both they may
//! have: [`engine_config::Config::user_share_percent`]. Root and whoever runs the engine are not counted.

use crate::programs::users::{User, Users};
use engine_config::Limits;
use hostif::id::IdMap;

/// Of which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Sockets of all kinds.
    Sockets,
    /// TCP sockets that have windows.
    Connections,
    /// Those that listen.
    Listeners,
    /// UDP sockets that have a port.
    Datagrams,
}

/// How many tables there are.
const TABLES: usize = 4;

/// What one user may have, and one program.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Rows of each [`Table`] for one user.
    rows: [usize; TABLES],
    /// Memory of windows for one user.
    user_bytes: u64,
    /// Memory of windows for one program, whoever's it is.
    pub program_bytes: u64,
}

impl Bounds {
    /// As an engine was started.
    pub fn new(users: &Users, limits: &Limits) -> Self {
        let tables = [
            limits.rows(),
            limits.connections,
            limits.listeners,
            limits.datagrams,
        ];
        Self {
            rows: tables.map(|rows| users.share_of(rows)),
            user_bytes: users.share_of_bytes(limits.window_memory_bytes),
            program_bytes: limits.program_memory_bytes,
        }
    }
}

/// One user's.
#[derive(Debug, Default)]
struct Held {
    rows: [usize; TABLES],
    /// Windows of its programs, as measured last.
    memory_bytes: u64,
    /// That was more than it may have, when the log was told last.
    is_short: bool,
    /// The log has it that one was refused, since it last had few of these.
    was_told: [bool; TABLES],
}

/// What was refused since the engine started, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refused {
    /// Rows of tables, because their user had its share.
    pub rows: u64,
    /// Windows, because the memory of their user or program was used up.
    pub windows: u64,
}

/// What each user has.
#[derive(Debug)]
pub struct Shares {
    bounds: Bounds,
    users: IdMap<u32, Held>,
    /// For reports.
    pub refused: Refused,
}

impl Shares {
    /// Nobody has anything.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            users: IdMap::default(),
            refused: Refused::default(),
        }
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether a user may have one row more; says so in the log the first time that it may not.
    pub fn has_capacity(&mut self, user: &User, table: Table) -> bool {
        let most = self.bounds.rows[table as usize];
        let held = self.users.entry(user.uid).or_default();
        let rows = held.rows[table as usize];
        if rows < most {
            held.was_told[table as usize] &= rows >= most / 2;
            return true;
        }
        self.refused.rows += 1;
        if !core::mem::replace(&mut held.was_told[table as usize], true) {
            tracing::warn!(
                "user {} has {most} {table:?} of an engine core already, which is its share: close some, or raise the \
                 limits or the share (`shunt engine --user-share`)",
                user.uid
            );
        }
        false
    }

    /// It has one row more.
    pub fn take(&mut self, user: &User, table: Table) {
        self.users.entry(user.uid).or_default().rows[table as usize] += 1;
    }

    /// It has one row less.
    pub fn give_back(&mut self, user: &User, table: Table) {
        if let Some(held) = self.users.get_mut(&user.uid) {
            let rows = &mut held.rows[table as usize];
            *rows = rows.saturating_sub(1);
        }
    }

    /// Whether the windows of its programs take more memory than they may.
    pub fn is_short(&self, user: &User) -> bool {
        let held = self.users.get(&user.uid);
        held.is_some_and(|held| held.memory_bytes > self.bounds.user_bytes)
    }

    /// A round of measuring memory begins.
    pub fn begin_measuring(&mut self) {
        self.users
            .values_mut()
            .for_each(|held| held.memory_bytes = 0);
    }

    /// A region of a user's takes so much, after what it took before.
    pub fn measured(&mut self, user: &User, bytes: u64, before: u64) {
        let held = self.users.entry(user.uid).or_default();
        held.memory_bytes = (held.memory_bytes + bytes).saturating_sub(before);
    }

    /// All regions were measured. The log says whose windows have more than their share, and when they have less again.
    pub fn end_measuring(&mut self) {
        let most = self.bounds.user_bytes;
        self.users.retain(|uid, held| {
            let is_short = held.memory_bytes > most;
            if is_short != core::mem::replace(&mut held.is_short, is_short) {
                tracing::warn!(
                    uid,
                    is_short,
                    "memory of the windows of one user's programs: no new ones while it is short (`shunt engine --user-share`)"
                );
            }
            held.memory_bytes > 0 || held.rows != [0; TABLES]
        });
    }
}
