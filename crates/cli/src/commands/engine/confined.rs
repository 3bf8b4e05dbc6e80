//! What an engine gives up once it has its device and its control socket, and how `shunt status` tells it: the crate
//! `confine`, docs/decisions/0063-what-an-engine-gives-up.md.

use std::path::{Path, PathBuf};

use confine::{Need, Needs};
use engine::ProcessHooks;
use serde_json::{Value, json};

use super::arguments::{Arguments, DriverName};

/// Gives up what the engine does not need from now on; the log has what could not be.
pub fn begin(arguments: &Arguments) {
    let protections = confine::apply(&needs(arguments));
    for missing in protections.missing() {
        tracing::warn!("less protected than elsewhere: {missing}");
    }
}

/// For the engine's reports and its housekeeping.
pub fn hooks() -> ProcessHooks {
    ProcessHooks {
        protections: Some(report),
        look_after: Some(confine::log_refused),
    }
}

fn needs(arguments: &Arguments) -> Needs {
    let mut capabilities = vec![Need::RawSockets, Need::NetworkAdministration, Need::Bpf];
    let mut devices = vec![PathBuf::from("/dev/cpu_dma_latency")];
    match arguments.driver() {
        DriverName::AfXdp => capabilities.push(Need::LockedMemory),
        DriverName::Tap => devices.push(PathBuf::from("/dev/net/tun")),
        DriverName::AfPacket | DriverName::Dpdk => {}
    }
    Needs {
        capabilities,
        devices,
        folders: folder_of_socket(&arguments.name).into_iter().collect(),
        has_foreign_driver: arguments.driver() == DriverName::Dpdk,
    }
}

/// Where the control socket is removed at the end; an abstract one goes by itself.
fn folder_of_socket(name: &str) -> Option<PathBuf> {
    if name.starts_with('@') {
        return None;
    }
    let folder = Path::new(name).parent()?;
    let is_here = folder.as_os_str().is_empty();
    Some(if is_here {
        PathBuf::from(".")
    } else {
        folder.to_owned()
    })
}

/// Each protection with how far it goes, or why it is missing.
fn report() -> Value {
    let Some(protections) = confine::applied() else {
        return Value::Null;
    };
    let on_or_why = |done: &Result<(), String>| match done {
        Ok(()) => json!(true),
        Err(why) => json!(why),
    };
    json!({
        "capabilities": protections.capabilities,
        "no_new_privs": on_or_why(&protections.no_new_privileges),
        "undumpable": on_or_why(&protections.undumpable),
        "landlock": protections.files,
        "system_calls": protections.calls,
        "refused_calls": confine::refused(),
        "missing": protections.missing(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_control_socket_with_a_path_needs_a_folder() {
        assert_eq!(folder_of_socket("@shunt"), None);
        assert_eq!(folder_of_socket("socket"), Some(PathBuf::from(".")));
        assert_eq!(
            folder_of_socket("/run/shunt/a"),
            Some(PathBuf::from("/run/shunt"))
        );
    }
}
