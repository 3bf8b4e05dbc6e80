//! AF_XDP where it can be had, packet sockets where not: one way to open for engines of every kind.

use super::{AfXdp, Config, OpenError, packet_config};
use crate::af_packet::{AfPacket, steering::Hash};
use crate::driver::Driver;
use bpf::classic::Instruction;

/// How connections are spread over several cores.
#[derive(Debug, Clone, Copy)]
pub struct Spread<'a> {
    /// How many.
    pub cores: u16,
    /// The hash.
    pub hash: Hash,
    /// The same for packet sockets.
    pub program: &'a [Instruction],
}

/// An interface that was opened one way or the other.
pub struct Opened {
    /// A queue for each core, in their order.
    pub queues: Vec<Box<dyn Driver>>,
    /// Why it is packet sockets and not AF_XDP, if it is.
    pub instead: Option<String>,
}

/// Opens the interface of `config`, for one core or several.
///
/// # Errors
/// Neither can be had.
pub fn open(config: &Config, spread: Option<Spread<'_>>) -> Result<Opened, OpenError> {
    fn boxed<D: Driver + 'static>(one: D) -> Box<dyn Driver> {
        Box::new(one)
    }
    let opened = match spread {
        None => AfXdp::open(config).map(|one| vec![one]),
        Some(Spread {
            cores,
            hash,
            program,
        }) => AfXdp::open_queues(config, cores, hash, program),
    };
    let error = match opened {
        Ok(queues) => {
            return Ok(Opened {
                queues: queues.into_iter().map(boxed).collect(),
                instead: None,
            });
        }
        Err(error) if error.leaves_packet_sockets() => error,
        Err(error) => return Err(error),
    };
    let packet = packet_config(config);
    let queues = match spread {
        None => vec![AfPacket::open(&packet)?],
        Some(Spread { cores, program, .. }) => AfPacket::open_queues(&packet, cores, program)?,
    };
    Ok(Opened {
        queues: queues.into_iter().map(boxed).collect(),
        instead: Some(format!("af_packet serves instead of af_xdp: {error}")),
    })
}
