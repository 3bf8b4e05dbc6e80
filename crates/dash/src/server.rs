//! Listening, and an end without noise.
//!
//! Bounds: so many connections at once, so long for the head of a request. What a request may take is
//! `simulate`'s.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

use crate::{
    access::{Access, Token},
    api,
};

/// Connections at once; a browser opens six.
const MOST_CONNECTIONS: usize = 64;
/// How long the head of a request may take, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// How long simulations have to notice that nobody waits.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after an accept that failed, for want of descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the page is served.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Where.
    pub listen: SocketAddr,
    /// Whoever opens it must have a token.
    pub token: bool,
}

/// Why the page is not served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No token where others could reach the page.
    #[error(
        "--no-token needs a loopback address: {0} can be reached by others. Leave --no-token away, or \
         listen on 127.0.0.1 and come by ssh -L"
    )]
    OpenToAll(IpAddr),
    /// Somebody listens there.
    #[error("--listen: {0} is in use. Give another port, or 127.0.0.1:0 for any that is free")]
    InUse(SocketAddr),
    /// The system refuses.
    #[error("--listen: cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The system refuses something else.
    #[error("starting the server: {0}")]
    System(#[from] io::Error),
}

/// Listens, and answers nothing yet. What it will answer, and to whom, is the router's; the bounds are those of this file.
#[derive(Debug)]
pub struct Listening {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
}

/// What runs on this machine at the moment: engines, programs and connections, as `shunt top --once --json` has them. It may take
/// a while, and is called on a thread that may wait.
pub type Live = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Results that were saved. Both may take a while, and are called on threads that may wait.
pub trait Reports: Send + Sync {
    /// What there is, for the page.
    fn list(&self) -> serde_json::Value;
    /// A page of HTML by its name, which comes from whoever asks; `None`: it is none of the list's.
    fn page(&self, name: &str) -> Option<String>;
}

/// What the page shows beside the simulator.
#[derive(Clone)]
pub struct Sources {
    /// What runs.
    pub live: Live,
    /// Results of before, where somebody has named a folder of them.
    pub reports: Option<Arc<dyn Reports>>,
}

/// A server that listens and answers nothing yet.
pub struct Server {
    listening: Listening,
    token: Option<Token>,
    sources: Sources,
}

impl Listening {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`StartError`], which names the flag `--listen`.
    pub fn bind(listen: SocketAddr) -> Result<Self, StartError> {
        // One thread for requests; what blocks has as many as there are processors.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(threads)
            .build()?;
        let listener = runtime
            .block_on(TcpListener::bind(listen))
            .map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => StartError::InUse(listen),
                _ => StartError::Listen(listen, error),
            })?;
        let address = listener.local_addr()?;
        Ok(Self {
            runtime,
            listener,
            address,
        })
    }

    /// Where, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process is interrupted or told to end.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn serve_until_signal(self, router: Router) -> io::Result<()> {
        let Self {
            runtime, listener, ..
        } = self;
        let result = runtime.block_on(async {
            let mut interrupted = signal(SignalKind::interrupt())?;
            let mut ended = signal(SignalKind::terminate())?;
            let (end, ending) = watch::channel(false);
            tokio::select! {
                () = accept(listener, router, ending) => {}
                _ = interrupted.recv() => {}
                _ = ended.recv() => {}
            }
            // Connections end, the answers that they wait for are dropped, and simulations stop.
            end.send_replace(true);
            tokio::task::yield_now().await;
            Ok(())
        });
        runtime.shutdown_timeout(END_TIMEOUT);
        result
    }
}

impl Server {
    /// Begins to listen.
    pub fn bind(settings: Settings, sources: Sources) -> Result<Self, StartError> {
        let Settings { listen, token } = settings;
        if !token && !listen.ip().is_loopback() {
            return Err(StartError::OpenToAll(listen.ip()));
        }
        let listening = Listening::bind(listen)?;
        let token = token.then(Token::new).transpose()?;
        Ok(Self {
            listening,
            token,
            sources,
        })
    }

    /// The address to open, with the token. Where every address is listened on, loopback's.
    pub fn url(&self) -> String {
        let mut address = self.listening.address;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(IpAddr::from([127, 0, 0, 1])),
            IpAddr::V6(ip) if ip.is_unspecified() => {
                address.set_ip(std::net::Ipv6Addr::LOCALHOST.into())
            }
            _ => {}
        }
        match &self.token {
            Some(token) => format!("http://{address}/?token={}", token.digits()),
            None => format!("http://{address}/"),
        }
    }

    /// Others than this machine can reach it.
    pub fn is_exposed(&self) -> bool {
        !self.listening.address.ip().is_loopback()
    }

    /// Answers until the process is interrupted or told to end.
    pub fn serve_until_signal(self) -> io::Result<()> {
        let access = Access::new(self.token, self.listening.address.port());
        self.listening
            .serve_until_signal(api::router(access, self.sources))
    }
}

async fn accept(listener: TcpListener, router: Router, ending: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(answer(stream, router.clone(), place, ending.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn answer(
    stream: TcpStream,
    router: Router,
    _place: OwnedSemaphorePermit,
    mut ending: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        // How a browser ends a connection is its own affair.
        _ = connection => {}
        _ = ending.wait_for(|end| *end) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(settings: Settings) -> Result<Server, StartError> {
        let sources = Sources {
            live: Arc::new(|| serde_json::Value::Null),
            reports: None,
        };
        Server::bind(settings, sources)
    }

    fn settings(listen: &str, token: bool) -> Settings {
        Settings {
            listen: listen.parse().unwrap(),
            token,
        }
    }

    #[test]
    fn a_page_that_others_can_reach_needs_its_token() {
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let error = bind(settings(listen, false)).err().unwrap();
            assert!(error.to_string().starts_with("--no-token"), "{listen}");
        }
        let open = bind(settings("127.0.0.1:0", false)).unwrap();
        assert!(open.url().ends_with('/') && !open.is_exposed());
    }

    #[test]
    fn an_address_in_use_names_the_flag() {
        let first = bind(settings("127.0.0.1:0", true)).unwrap();
        let taken = Settings {
            listen: first.listening.address,
            token: true,
        };
        let error = bind(taken).err().unwrap().to_string();
        assert!(
            error.starts_with("--listen") && error.contains("127.0.0.1:0"),
            "{error}"
        );
        assert!(first.url().contains("/?token="));
    }
}
