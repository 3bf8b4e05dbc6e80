//! Removing libraries of other versions that nobody has used for some days.
//!
//! A library's time of change is when it was last used, to the day: whoever uses one notes that with the lock held, and
//! whoever removes one looks at it with the lock held. So a library goes either before somebody looks for it, who then
//! writes it anew, or not at all. One that a running program has loaded, or will hand to what it starts, stays: see
//! proc_pid_maps(5) and proc_pid_environ(5).

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::fs::FlockOperation;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Nobody has used it for so long.
const KEPT: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// Files that are looked at in one go; those beyond have their turn another day.
const LOOKED_AT_MAX: usize = 4_096;
/// For nobody else to open: who could, could keep us waiting.
const LOCK_NAME: &str = ".lock";

/// Keeps others from removing and from noting while it lives.
pub fn lock(directory: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join(LOCK_NAME))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Whether nobody has noted for a day that a library is used.
pub fn is_new_day(library: &Path) -> bool {
    age(library).is_none_or(|age| age >= DAY)
}

/// Removes what nobody uses but the library of this name. What cannot be removed stays.
pub fn remove(directory: &Path, name: &str) {
    let own = rustix::process::geteuid().as_raw();
    let is_unused = |name: &str| {
        let path = directory.join(name);
        let is_own = fs::symlink_metadata(&path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.uid() == own);
        is_own && age(&path).is_some_and(|age| age >= KEPT)
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut names: Vec<String> = entries
        .take(LOOKED_AT_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|other| other != name && is_library(other) && is_unused(other))
        .collect();
    if names.is_empty() {
        return;
    }
    let used = in_use(&names);
    names.retain(|name| {
        let is_used = used.contains(name);
        if is_used {
            touch(&directory.join(name));
        }
        !is_used
    });
    let Ok(_lock) = lock(directory) else {
        return;
    };
    for name in names {
        // Somebody may have used it since.
        if is_unused(&name) {
            let _ = fs::remove_file(directory.join(&name));
        }
    }
}

/// A library with its content's hash in its name, or one that was never finished.
fn is_library(name: &str) -> bool {
    const HASH_DIGITS: usize = 16;
    let Some((hash, rest)) = name
        .strip_prefix("libshunt-")
        .and_then(|rest| rest.split_once('.'))
    else {
        return false;
    };
    hash.len() == HASH_DIGITS
        && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
        && (rest == "so" || rest.starts_with("new-"))
}

/// Those of the names that a process has mapped or in its environment, as far as they may be looked at: of a
/// directory that is ours alone nobody else's program uses one, but root's, who sees all. One in the middle of its exec
/// shows neither for some microseconds.
fn in_use(names: &[String]) -> HashSet<String> {
    let names: HashSet<&[u8]> = names.iter().map(String::as_bytes).collect();
    let as_text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let Ok(processes) = fs::read_dir("/proc") else {
        return names.into_iter().map(as_text).collect();
    };
    let mut used = HashSet::new();
    for process in processes.filter_map(Result::ok) {
        let is_process = process.file_name().as_encoded_bytes()[0].is_ascii_digit();
        for file in ["maps", "environ"].iter().filter(|_| is_process) {
            // Another user's, or over by now.
            let text = fs::read(process.path().join(file)).unwrap_or_default();
            let words = text.split(|byte| b"/:= \n\0".contains(byte));
            used.extend(words.filter(|word| names.contains(word)).map(as_text));
        }
    }
    used
}

fn age(path: &Path) -> Option<Duration> {
    let used = fs::symlink_metadata(path).ok()?.modified().ok()?;
    // One of the future is new.
    Some(SystemTime::now().duration_since(used).unwrap_or_default())
}

/// Notes that a library is used, with the lock held.
pub fn touch(path: &Path) {
    // Who may not write it keeps what is there.
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        path::PathBuf,
        process::{Command, Stdio},
        thread,
    };

    struct Cache(PathBuf);

    impl Cache {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("shunt-unused-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        /// A file that was used so long ago.
        fn file(&self, name: &str, age: Duration) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, name).unwrap();
            let file = File::open(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            path
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != LOCK_NAME)
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Cache {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const OWN: &str = "libshunt-00000000000000aa.so";
    const OLD: &str = "libshunt-00000000000000bb.so";
    /// One that no other test names: those run beside the program that hands it on.
    const HANDED_ON: &str = "libshunt-0000000000000099.so";

    #[test]
    fn old_libraries_of_other_versions_go_and_everything_else_stays() {
        let cache = Cache::new("old");
        let young = KEPT - DAY;
        cache.file(OWN, 2 * KEPT);
        cache.file(OLD, KEPT);
        cache.file("libshunt-00000000000000cc.so", young);
        cache.file("libshunt-00000000000000dd.new-77", KEPT);
        cache.file("libshunt.so", KEPT);
        cache.file("libshunt-notes.so", KEPT);
        std::os::unix::fs::symlink("nowhere", cache.0.join("libshunt-00000000000000ee.so"))
            .unwrap();
        remove(&cache.0, OWN);
        let left = [
            OWN,
            "libshunt-00000000000000cc.so",
            "libshunt-00000000000000ee.so",
            "libshunt-notes.so",
            "libshunt.so",
        ];
        assert_eq!(cache.names(), left);
    }

    #[test]
    fn one_that_a_running_program_hands_on_stays_and_counts_as_used() {
        let cache = Cache::new("running");
        let path = cache.file(HANDED_ON, KEPT);
        let mut running = Command::new("cat")
            .env("HANDED_ON", &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Who has its answer knows that its exec is over: before, its environment is empty for a moment.
        let mut answer = [0];
        running.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        running
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        remove(&cache.0, OWN);
        assert_eq!(cache.names(), [HANDED_ON]);
        assert!(age(&path).unwrap() < DAY);
        drop(running.stdin.take());
        running.wait().unwrap();
        cache.file(HANDED_ON, KEPT);
        remove(&cache.0, OWN);
        assert!(cache.names().is_empty());
    }

    #[test]
    fn one_that_is_mapped_is_in_use() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mapped = maps.lines().find_map(|line| line.rsplit_once('/'));
        let name = mapped.unwrap().1.to_owned();
        let names = [name.clone(), "libshunt-00000000000000ff.so".to_owned()];
        assert!(in_use(&names).contains(&name));
        assert!(!in_use(&names).contains(&names[1]));
    }

    #[test]
    fn what_somebody_uses_while_another_removes_is_there() {
        let cache = Cache::new("race");
        for _ in 0..50 {
            let path = cache.file(OLD, KEPT);
            thread::scope(|scope| {
                scope.spawn(|| remove(&cache.0, OWN));
                let lock = lock(&cache.0).unwrap();
                let is_there = path.exists();
                if is_there {
                    assert!(is_new_day(&path));
                    touch(&path);
                } else {
                    fs::write(&path, "anew").unwrap();
                }
                drop(lock);
            });
            assert!(path.exists());
        }
    }

    #[test]
    fn a_use_is_noted_once_a_day() {
        let cache = Cache::new("note");
        let path = cache.file(OLD, DAY);
        assert!(is_new_day(&path));
        touch(&path);
        assert!(!is_new_day(&path));
    }
}
