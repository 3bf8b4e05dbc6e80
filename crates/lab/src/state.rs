//! Where labs are remembered between commands: one JSON file per lab.
//!
//! The directory belongs to the user alone, because whoever could write there could have signals
//! sent to processes of the user's.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::{Cable, Error, HostSpec, holder::Identity, spec::check_name};

/// Version of the file format.
const VERSION: u32 = 2;

/// What is remembered of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedLab {
    pub(crate) version: u32,
    pub(crate) name: String,
    /// Random; every program started in the lab carries it.
    pub(crate) mark: String,
    pub(crate) rootless: bool,
    pub(crate) cable: Cable,
    pub(crate) mtu: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) congestion: String,
    pub(crate) hosts: Vec<SavedHost>,
    /// The process that joins the TAPs of a cable of them.
    #[serde(default)]
    pub(crate) joiner: Option<Identity>,
}

/// What is remembered of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedHost {
    #[serde(flatten)]
    pub(crate) spec: HostSpec,
    pub(crate) holder: Identity,
    pub(crate) net_inode: u64,
}

impl SavedLab {
    pub(crate) const VERSION: u32 = VERSION;
}

/// Environment variable that names the directory; set for programs in a lab, whose user id within it
/// leads elsewhere.
pub(crate) const DIRECTORY_VARIABLE: &str = "SHUNT_STATE_DIR";

/// The user's own run-time directory, created if need be: `$SHUNT_STATE_DIR`, else
/// `$XDG_RUNTIME_DIR/shunt`, else `/run/shunt` for root, else `/tmp/shunt-UID`.
pub fn directory() -> Result<PathBuf, Error> {
    let uid = rustix::process::geteuid();
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let mut candidates = Vec::new();
    candidates.extend(absolute(DIRECTORY_VARIABLE));
    candidates.extend(absolute("XDG_RUNTIME_DIR").map(|runtime| runtime.join("shunt")));
    if uid.is_root() {
        candidates.push(PathBuf::from("/run/shunt"));
    }
    candidates.push(std::env::temp_dir().join(format!("shunt-{}", uid.as_raw())));
    let mut refusal = None;
    for candidate in candidates {
        match private_directory(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.expect("invariant: at least one candidate was tried"))
}

/// Creates a directory that only we can write to, or checks that it is one.
pub fn private_directory(path: &Path) -> Result<(), Error> {
    let state = |problem: String| Error::State {
        path: path.to_owned(),
        problem,
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(state(format!("cannot be created: {error}"))),
    }
    let metadata = fs::symlink_metadata(path).map_err(|error| state(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(state("is no directory: remove it".to_owned()));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(state(
            "belongs to or can be written by another user: remove it, or set XDG_RUNTIME_DIR"
                .to_owned(),
        ));
    }
    // In a user namespace the directory of the real user may look like ours and still be read-only.
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
        .map_err(|error| state(format!("cannot be written: {error}")))
}

/// Holds off other commands that change labs; released when dropped.
pub(crate) fn lock() -> Result<File, Error> {
    let path = labs_directory()?.join("lock");
    let file = File::create(&path)
        .map_err(|error| Error::system(format!("creating {}", path.display()), error))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|error| Error::system(format!("locking {}", path.display()), error))?;
    Ok(file)
}

/// Remembers a lab.
pub(crate) fn save(lab: &SavedLab) -> Result<(), Error> {
    let path = file_of(&lab.name)?;
    let text = serde_json::to_vec_pretty(lab).expect("invariant: a lab is representable as JSON");
    let temporary = path.with_extension("new");
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, &path))
        .map_err(|error| Error::system(format!("writing {}", path.display()), error))
}

/// Reads what is remembered of a lab; None where there is none of that name.
pub(crate) fn load(name: &str) -> Result<Option<SavedLab>, Error> {
    let path = file_of(name)?;
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::system(format!("reading {}", path.display()), error)),
    };
    let unreadable = |problem: String| Error::State {
        path: path.clone(),
        problem,
    };
    let lab: SavedLab = serde_json::from_slice(&text).map_err(|error| {
        unreadable(format!(
            "is damaged ({error}): `shunt lab down --name {name}` removes it"
        ))
    })?;
    if lab.version != VERSION {
        return Err(unreadable(format!(
            "was written by another version of shunt (format {}): remove that lab with it",
            lab.version
        )));
    }
    Ok(Some(lab))
}

/// Forgets a lab.
pub(crate) fn remove(name: &str) -> Result<(), Error> {
    let path = file_of(name)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system(format!("removing {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// Names of all labs that are remembered, sorted.
pub(crate) fn names() -> Result<Vec<String>, Error> {
    let directory = labs_directory()?;
    let entries = fs::read_dir(&directory)
        .map_err(|error| Error::system(format!("reading {}", directory.display()), error))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

fn file_of(name: &str) -> Result<PathBuf, Error> {
    check_name("lab", name)?;
    Ok(labs_directory()?.join(format!("{name}.json")))
}

fn labs_directory() -> Result<PathBuf, Error> {
    let path = directory()?.join("labs");
    private_directory(&path)?;
    Ok(path)
}
