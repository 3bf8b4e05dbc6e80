//! The way to the engines: a session with each, made when the first socket needs one, and what they own.

use core::net::SocketAddr;

use client::Session;
use client::engines::{Engines, Networks};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::settings::Settings;

/// See the file's head.
pub struct EngineAccess {
    settings: Settings,
    /// Never freed, as sessions.
    engines: Option<&'static Engines>,
    told: bool,
}

impl EngineAccess {
    /// With no session yet.
    pub fn new(settings: Settings) -> EngineAccess {
        EngineAccess {
            settings,
            engines: None,
            told: false,
        }
    }

    /// The sessions that there are.
    pub fn sessions(&self) -> &'static [&'static Session] {
        self.engines.map_or(&[], Engines::sessions)
    }

    /// What the engines own.
    pub fn networks(&self) -> Option<Networks> {
        self.engines.map(Engines::networks)
    }

    /// As `networks`, of the engines that serve UDP, and with loopback where it is on an engine.
    pub fn datagram_networks(&self) -> Option<Networks> {
        self.engines.map(Engines::datagram_networks)
    }

    /// An address of a socket of that session as programs are told it: a link-local one with the number of the interface.
    pub fn scoped(&self, address: SocketAddr, session: &Session) -> SocketAddr {
        let (SocketAddr::V6(mut v6), Some(engines)) = (address, self.engines) else {
            return address;
        };
        let all = engines.networks();
        if v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
            && let Some(own) = all.get(engines.place_of(session).index())
        {
            v6.set_scope_id(own.scope_id);
        }
        v6.into()
    }

    /// Whether what the engines cannot take fails, instead of going to the kernel.
    pub fn is_engine_only(&self) -> bool {
        self.settings.engine_only
    }

    /// Whether loopback is on an engine.
    pub fn has_loopback(&self) -> bool {
        self.settings.loopback
    }

    /// The engines; `None`: none is there, and the kernel serves. ENETDOWN where that is not wanted.
    pub fn open(&mut self, caller: Caller) -> Result<Option<&'static Engines>, Errno> {
        let reason = match self.attach() {
            Ok(engines) => {
                self.told = false;
                return Ok(Some(engines));
            }
            Err(reason) => reason,
        };
        let instead = if self.settings.engine_only {
            "--policy engine-only refuses sockets"
        } else {
            "using the kernel"
        };
        if !self.told {
            self.told = true;
            caller.say(&format!(
                "no engine ({reason}); {instead}. Start one with `shunt engine`"
            ));
        }
        if self.settings.engine_only {
            Err(Errno::NETDOWN)
        } else {
            Ok(None)
        }
    }

    /// Attaches again to engines that were lost and are there again.
    pub fn look_for_lost(&self) {
        if let Some(engines) = self.engines {
            engines.look_for_lost();
        }
    }

    fn attach(&mut self) -> Result<&'static Engines, String> {
        if let Some(engines) = self.engines {
            let again = engines.attach_again();
            return again
                .map(|()| engines)
                .map_err(|reason| reason.unwrap_or_else(|| "it is gone".to_owned()));
        }
        let engines = Engines::attach(&self.settings.engines, self.settings.placement)?;
        let engines = engines.with_loopback(self.settings.loopback);
        let engines: &'static Engines = Box::leak(Box::new(engines));
        self.engines = Some(engines);
        Ok(engines)
    }
}
