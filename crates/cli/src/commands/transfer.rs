//! `shunt send` and `shunt recv`: files from host to host. What moves them is the crate `mover`; here are flags,
//! progress and what is said at the end.

mod ending;
mod progress;
mod recv;
mod send;

pub use recv::{Arguments as RecvArguments, execute as recv};
pub use send::{Arguments as SendArguments, execute as send};

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use mover::{Access, Certificates, Encryption, Listener, Role, STREAMS_MAX, Session, Token, Watch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The port where either end listens unless told otherwise.
const DEFAULT_PORT: u16 = 7333;
/// How often a listener looks whether somebody wants an end.
const LOOK: Duration = Duration::from_millis(100);

/// Flags of both commands.
#[derive(Debug, Args)]
struct Common {
    /// The token that both ends must know, as the end has printed it that listens; Shunt makes one where a listener is given
    /// none that others than this host can reach
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SHUNT_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// Encrypt (TLS 1.3), with a key made for this run; the token proves both ends. Both ends must say so
    #[arg(long)]
    tls: bool,
    /// Show this certificate (PEM, with those up to an authority); implies --tls
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Believe peers whose certificate these authorities have signed (PEM), and no others; implies --tls
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Print the interval's rate every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: Option<u32>,
    /// Print JSON: one line for each interval, and one at the end
    #[arg(long)]
    json: bool,
}

impl Common {
    /// The token that the user has given.
    fn token(&self) -> anyhow::Result<Option<Token>> {
        let token = self.token.as_deref().map(Token::parse).transpose();
        token.context("--token (or SHUNT_TOKEN)")
    }

    /// Whether a listener there needs a token and was given none: others than this host reach it and no certificates keep
    /// them out, or TLS alone would prove nobody.
    fn lacks_token(&self, address: SocketAddr) -> bool {
        let by_certificate = self.ca.is_some();
        let is_open = !address.ip().to_canonical().is_loopback() && !by_certificate;
        let is_nobodys = self.tls && self.cert.is_none() && !by_certificate;
        self.token.is_none() && (is_open || is_nobodys)
    }

    /// Who may take part, and how it is made sure; `host` is whom this end connects to.
    fn access(&self, token: Option<&Token>, host: &str) -> anyhow::Result<Access> {
        let access = Access::new(token);
        let files = Certificates {
            own: self.cert.as_deref().zip(self.key.as_deref()),
            authorities: self.ca.as_deref(),
        };
        if !self.tls && files.own.is_none() && files.authorities.is_none() {
            return Ok(access);
        }
        Ok(access.encrypted(Encryption::new(&files)?, host))
    }

    /// What the other end has to be told, for people; `made`: the token, if its user cannot know it yet.
    fn flags_of_counterpart(&self, made: Option<&Token>) -> String {
        let token = match made {
            Some(token) => format!(" --token {token}"),
            None if self.token.is_some() => " --token TOKEN".to_owned(),
            None => String::new(),
        };
        let tls = match (&self.cert, self.tls) {
            (Some(_), _) => " --ca FILE",
            (None, true) => " --tls",
            (None, false) => "",
        };
        format!("{token}{tls}")
    }
}

/// How blocks are hashed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Hash {
    /// Cryptographic; the hash of a file is what b3sum prints
    Blake3,
    /// Faster; finds accidents, not forgery
    Xxh3,
}

/// HOST, HOST:PORT, [V6], [V6]:PORT or :PORT.
fn resolve(flag: &str, text: &str, to_listen: bool) -> anyhow::Result<SocketAddr> {
    let (host, port) = split_port(text).with_context(|| {
        format!("{flag} {text:?}: use HOST or HOST:PORT; an IPv6 address in brackets")
    })?;
    let host = match (host, to_listen) {
        ("", true) => "::",
        ("", false) => bail!("{flag} {text:?}: the host is missing"),
        (host, _) => host,
    };
    let mut found = (host, port)
        .to_socket_addrs()
        .with_context(|| format!("{flag} {text:?}: cannot find {host}"))?;
    found
        .next()
        .with_context(|| format!("{flag} {text:?}: {host} has no address"))
}

fn split_port(text: &str) -> Option<(&str, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, port.parse().ok()?)),
            None => rest.is_empty().then_some((host, DEFAULT_PORT)),
        };
    }
    match text.matches(':').count() {
        0 => Some((text, DEFAULT_PORT)),
        1 => {
            let (host, port) = text.split_once(':')?;
            Some((host, port.parse().ok()?))
        }
        // An IPv6 address alone.
        _ => Some((text, DEFAULT_PORT)),
    }
}

/// Sets `watch.stop` at the first signal that asks for an end; the second one ends at once.
fn stop_on_signals(watch: &Arc<Watch>) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let flag = Arc::clone(&watch.stop);
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, flag))
            .context("catching signals")?;
    }
    Ok(())
}

/// A listener, with the words that the other host's user has to type on standard error.
fn listen(common: &Common, text: &str, role: Role, counterpart: &str) -> anyhow::Result<Listener> {
    let address = resolve("--listen", text, true)?;
    let needed = common.lacks_token(address).then(Token::random);
    let made = needed.transpose()?;
    let token = common.token()?.or_else(|| made.clone());
    let access = common.access(token.as_ref(), "")?;
    let listener =
        Listener::bind(address, role, access).with_context(|| format!("--listen {text}"))?;
    let address = listener.address();
    note!(
        "listening on {address}; at the other end: shunt {counterpart} HOST:{}{}",
        address.port(),
        common.flags_of_counterpart(made.as_ref())
    );
    Ok(listener)
}

/// The next session of a listener; `None`: somebody wants an end first.
fn next_session(listener: &Listener, watch: &Watch) -> Option<Session> {
    while !watch.stop.load(std::sync::atomic::Ordering::Relaxed) {
        if let Some(session) = listener.next(LOOK) {
            return Some(session);
        }
    }
    None
}

fn connect(
    common: &Common,
    flag: &str,
    text: &str,
    role: Role,
    streams: u16,
) -> anyhow::Result<Session> {
    let address = resolve(flag, text, false)?;
    let host = split_port(text).map_or("", |(host, _)| host);
    let access = common.access(common.token()?.as_ref(), host)?;
    let streams = streams.clamp(1, STREAMS_MAX);
    Ok(Session::connect(address, role, streams, &access)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for (text, expected) in [
            ("host", Some(("host", DEFAULT_PORT))),
            ("host:80", Some(("host", 80))),
            (":80", Some(("", 80))),
            ("[::1]:80", Some(("::1", 80))),
            ("[::1]", Some(("::1", DEFAULT_PORT))),
            ("::1", Some(("::1", DEFAULT_PORT))),
            ("host:x", None),
            ("host:70000", None),
            ("[::1", None),
            ("[::1]80", None),
        ] {
            assert_eq!(split_port(text), expected, "{text}");
        }
    }
}
