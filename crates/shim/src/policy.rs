//! What the environment asks for.

use std::path::Path;
use std::sync::OnceLock;

use elf::Service;
use hostif::environment::text;
use hostif::{POLICY_VARIABLE, REQUIRE_VARIABLE};
use switch::policy::{Policy, Settings, parse};

use crate::sys::is_supervised;

/// The settings of this process.
pub fn policy() -> Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    *SETTINGS.get_or_init(|| {
        if is_left_to_supervisor() {
            return Settings {
                policy: Policy::KernelOnly,
                require_engine: false,
            };
        }
        let (policy, require) = (text(POLICY_VARIABLE), text(REQUIRE_VARIABLE));
        parse(policy.as_deref(), require.as_deref()).unwrap_or_else(|wrong| {
            crate::report::line(&format!(
                "SHUNT_POLICY={wrong} is not auto, kernel-only or engine-only; using auto"
            ));
            Settings {
                policy: Policy::Auto,
                require_engine: false,
            }
        })
    })
}

/// Whether a supervisor serves the calls of this process, those to libc too: its program file asks for that (`elf::inspect`), and who started it
/// may have known nothing of the file.
fn is_left_to_supervisor() -> bool {
    is_supervised()
        && elf::inspect(Path::new("/proc/self/exe"))
            .is_ok_and(|program| matches!(program.way, Service::Supervise(_)))
}
