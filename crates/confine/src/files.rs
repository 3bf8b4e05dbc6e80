//! Which files may be opened, by Landlock (landlock(7)): what the kernel tells of this process and its settings, named
//! devices, and nothing else; no TCP connection of the kernel's, no other process's abstract socket, no signals.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};

/// The newest version of Landlock that is asked for; of an older kernel what it has.
const VERSION: ABI = ABI::V6;
/// What is read: limits, mounts and memory of this process, network settings; interfaces.
const READ: [&str; 2] = ["/proc", "/sys/class/net"];

/// Restricts this thread and what it starts from now on. How much of it the kernel has.
pub fn restrict(devices: &[PathBuf], folders: &[PathBuf]) -> Result<&'static str, String> {
    let status = try_restrict(devices, folders).map_err(|error| error.to_string())?;
    match status {
        RulesetStatus::FullyEnforced => Ok("all"),
        RulesetStatus::PartiallyEnforced => Ok("what this kernel has of it"),
        RulesetStatus::NotEnforced => {
            Err("this kernel has no Landlock, or it is switched off (lsm=)".to_owned())
        }
    }
}

fn try_restrict(
    devices: &[PathBuf],
    folders: &[PathBuf],
) -> Result<RulesetStatus, landlock::RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        // An engine binds TCP sockets: they hold the ports of connections that no program has any more.
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::from_all(VERSION))?
        .create()?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    // What is not there need not be opened.
    let ruleset = ruleset
        .add_rules(path_beneath_rules(
            READ,
            AccessFs::ReadFile | AccessFs::ReadDir,
        ))?
        .add_rules(path_beneath_rules(devices, device))?
        .add_rules(path_beneath_rules(folders, AccessFs::RemoveFile))?;
    Ok(ruleset.restrict_self()?.ruleset)
}
