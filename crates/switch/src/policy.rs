//! What the environment asks for. A policy file comes later (DESIGN §4).

/// Which stacks the program's sockets may use (`SHUNT_POLICY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The engine for what it routes, the kernel for the rest.
    Auto,
    /// As without Shunt.
    KernelOnly,
    /// The engine; of the kernel only loopback. What would stay with the kernel is an error.
    EngineOnly,
}

/// What the environment asks for, read when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SHUNT_POLICY`.
    pub policy: Policy,
    /// `SHUNT_REQUIRE=1`, or the engine alone is wanted: without one, sockets fail with ENETDOWN.
    pub require_engine: bool,
}

impl Settings {
    /// Whether any socket may be accelerated.
    pub fn may_accelerate(self) -> bool {
        self.policy != Policy::KernelOnly
    }

    /// Whether what would stay with the kernel is an error.
    pub fn is_engine_only(self) -> bool {
        self.policy == Policy::EngineOnly
    }
}

/// Of the two variables; `Err`: the word that is no policy.
pub fn parse<'a>(policy: Option<&'a str>, require: Option<&str>) -> Result<Settings, &'a str> {
    let policy = match policy.unwrap_or("auto") {
        "auto" | "" => Policy::Auto,
        "kernel-only" => Policy::KernelOnly,
        "engine-only" => Policy::EngineOnly,
        wrong => return Err(wrong),
    };
    Ok(Settings {
        policy,
        require_engine: require == Some("1") || policy == Policy::EngineOnly,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_variables_the_policy_is_auto() {
        let settings = parse(None, None).unwrap();
        assert_eq!(
            settings,
            Settings {
                policy: Policy::Auto,
                require_engine: false
            }
        );
        assert!(settings.may_accelerate());
    }

    #[test]
    fn each_word_has_its_policy_and_another_is_named() {
        assert_eq!(
            parse(Some("kernel-only"), None).unwrap().policy,
            Policy::KernelOnly
        );
        let engine_only = parse(Some("engine-only"), Some("0")).unwrap();
        assert!(engine_only.is_engine_only() && engine_only.require_engine);
        assert!(parse(None, Some("1")).unwrap().require_engine);
        assert_eq!(parse(Some("fast"), None), Err("fast"));
    }
}
