//! Taking over the tables of an earlier stack: everything derived is computed again.
//!
//! The host configures interfaces, addresses and routes afterwards, as after a start. A row whose
//! change a crash interrupted is not trusted: its connection is given up, and its owner hears of it
//! with the next [`Stack::handle_timeouts`].

use crate::config::Config;
use crate::error::Error;
use crate::stack::Stack;
use crate::tables::{Rebuilt, TABLES_VERSION, Tables};

impl<'m> Stack<'m> {
    /// A stack that goes on where the one before stopped. `config` must have the same secret, and the
    /// clock the same origin.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the tables are of another version or cannot be.
    pub fn rebuild(tables: Tables<'m>, config: Config) -> Result<(Self, Rebuilt), Error> {
        if tables.header.version != TABLES_VERSION {
            return Err(Error::InvalidArgument);
        }
        let mut stack = Self::assemble(tables, config)?;
        let mut found = Rebuilt::default();
        stack.tcp.rebuild(&mut stack.ip, &mut found);
        let (udp_sockets, interrupted) = stack.udp.rebuild();
        found.udp_sockets = udp_sockets;
        found.interrupted += interrupted;
        stack.ip.link.counters.interrupted = u64::from(found.interrupted);
        Ok((stack, found))
    }
}
