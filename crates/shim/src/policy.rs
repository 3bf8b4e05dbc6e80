//! What the environment asks for.

use std::sync::OnceLock;

use hostif::environment::text;
use hostif::{POLICY_VARIABLE, REQUIRE_VARIABLE};
use switch::policy::{Policy, Settings, parse};

/// The settings of this process.
pub fn policy() -> Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    *SETTINGS.get_or_init(|| {
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
