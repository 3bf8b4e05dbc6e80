//! One host of a lab: starting programs on it and asking it things.

use std::{
    ffi::{CString, OsStr, OsString},
    io,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    ADDRESS_VARIABLE, Error, HostSpec, INTERFACE, NIC_VARIABLE,
    holder::Holder,
    spec::IPV6_PREFIX_LEN,
    state,
    sys::{self, IdMap, Namespaces, Step},
};

/// The uid and gid that a program started as an ordinary user sees.
pub const UNPRIVILEGED_UID: u32 = 1000;

/// Environment variable that names the lab and host a program runs on.
pub(crate) const ENVIRONMENT: &str = "SHUNT_LAB";

/// A host: what was asked for, and the process that holds its namespaces.
#[derive(Debug)]
pub struct Host {
    spec: HostSpec,
    pub(crate) holder: Holder,
    /// `NAME/HOST/…` of the lab; proves that a program belongs to it.
    pub(crate) mark: String,
    /// The cable carries IPv6.
    pub(crate) ipv6: bool,
    /// Where the lab is remembered, so that programs on the host find it; None for a temporary one.
    pub(crate) state_directory: Option<PathBuf>,
}

impl Host {
    pub(crate) fn new(spec: HostSpec, holder: Holder, mark: String, ipv6: bool) -> Self {
        Self {
            spec,
            ipv6,
            holder,
            mark,
            state_directory: None,
        }
    }

    /// Name and addresses.
    pub fn spec(&self) -> &HostSpec {
        &self.spec
    }

    /// Whether the host has IPv6 addresses on the cable.
    pub fn has_ipv6(&self) -> bool {
        self.ipv6
    }

    /// What an engine may own, as [`ADDRESS_VARIABLE`] tells it.
    fn engine_addresses(&self) -> String {
        let v4 = self.spec.engine_address;
        if self.ipv6 {
            format!("{v4},{}/{IPV6_PREFIX_LEN}", self.spec.engine_address_v6())
        } else {
            v4.to_string()
        }
    }

    /// Number of the process that holds the namespaces.
    pub fn holder_pid(&self) -> u32 {
        self.holder.identity.pid
    }

    /// True while the namespaces can be joined.
    pub fn alive(&self) -> bool {
        self.holder.identity.alive()
    }

    /// A command that starts on this host, as its root, in the current directory. It is killed when
    /// the thread that starts it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        self.prepare(Command::new(program), false, true)
    }

    /// The same under an ordinary user id: for programs that refuse a mapped root, such as nginx.
    pub fn command_as_user(&self, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        self.prepare(Command::new(program), true, true)
    }

    /// As both, from a line: the program, and its arguments.
    ///
    /// # Panics
    /// Where the line is empty.
    pub fn command_line(&self, line: &[OsString], as_user: bool) -> Result<Command, Error> {
        let (program, arguments) = line.split_first().expect("invariant: a line has a program");
        let mut command = self.prepare(Command::new(program), as_user, true)?;
        command.args(arguments);
        Ok(command)
    }

    /// A command that lives on its own, to be executed in place of the caller.
    pub fn detached_command(
        &self,
        program: impl AsRef<OsStr>,
        as_user: bool,
    ) -> Result<Command, Error> {
        self.prepare(Command::new(program), as_user, false)
    }

    fn prepare(
        &self,
        mut command: Command,
        as_user: bool,
        die_with_parent: bool,
    ) -> Result<Command, Error> {
        let directory = std::env::current_dir()
            .map_err(|error| Error::system("reading the current directory", error))?;
        let directory =
            CString::new(directory.as_os_str().as_bytes()).expect("invariant: a path holds no NUL");
        command
            .env(ENVIRONMENT, &self.mark)
            .env(NIC_VARIABLE, INTERFACE)
            .env(ADDRESS_VARIABLE, self.engine_addresses());
        if let Some(directory) = &self.state_directory {
            command.env(state::DIRECTORY_VARIABLE, directory);
        }
        // Inside the host's user namespace the caller is 0, with root and without (see `holder.rs`).
        let user = as_user.then(|| IdMap::single(UNPRIVILEGED_UID, 0, 0));
        sys::attach(
            &mut command,
            self.namespaces()?,
            directory,
            user,
            die_with_parent,
        );
        Ok(command)
    }

    /// Tries to connect from this host until it succeeds; the last error when time runs out.
    pub fn wait_connect(&self, address: SocketAddr, patience: Duration) -> Result<(), Error> {
        let namespaces = self.namespaces()?;
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let step = Step::Connect(
                address,
                left.min(Duration::from_secs(1))
                    .max(Duration::from_millis(1)),
            );
            let Err(source) = self.perform_one(&namespaces, step) else {
                return Ok(());
            };
            if left.is_zero() {
                let what = format!(
                    "no connection from host {} to {address} within {} s",
                    self.spec.name,
                    patience.as_secs_f32()
                );
                return Err(Error::System { what, source });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a kernel parameter of this host's network, such as `net.ipv4.tcp_rmem`, see sysctl(8).
    pub fn set_parameter(&self, name: &str, value: &str) -> Result<(), Error> {
        let failed = |source: io::Error| Error::Setup {
            host: self.spec.name.clone(),
            step: format!("setting {name} to {value}"),
            source,
        };
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let path = CString::new(path).map_err(|error| failed(error.into()))?;
        let step = Step::Write(path, value.as_bytes().to_vec());
        self.perform_one(&self.namespaces()?, step).map_err(failed)
    }

    fn perform_one(&self, namespaces: &Namespaces, step: Step) -> io::Result<()> {
        let mut results = sys::perform(namespaces, &[step])?;
        results
            .pop()
            .unwrap_or_else(|| Err(io::Error::other("the helper process gave no answer")))
    }

    /// Opens the namespaces, or says that their holder is gone.
    pub(crate) fn namespaces(&self) -> Result<Namespaces, Error> {
        let gone = || Error::HolderGone {
            name: self.lab_name().to_owned(),
            host: self.spec.name.clone(),
        };
        let pid = self.holder.identity.raw().ok_or_else(gone)?;
        let namespaces = Namespaces::of(pid).map_err(|_| gone())?;
        // Checked after opening: what was opened then belongs to the holder.
        if !self.alive() {
            return Err(gone());
        }
        Ok(namespaces)
    }

    fn lab_name(&self) -> &str {
        self.mark.split('/').next().unwrap_or_default()
    }
}
