//! Components and paths that come with the program.

use std::{collections::BTreeMap, sync::LazyLock};

use super::Component;

static COMPONENTS: LazyLock<BTreeMap<String, Component>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../papers/components.toml"))
        .expect("invariant: the library parses, a test reads it")
});

const PATHS: &[(&str, &str)] = &[
    (
        "pcie-fabric",
        include_str!("../../../../paths/pcie-fabric.toml"),
    ),
    (
        "memory-nic",
        include_str!("../../../../paths/memory-nic.toml"),
    ),
    ("dpdk-64", include_str!("../../../../paths/dpdk-64.toml")),
    ("stages", include_str!("../../../../paths/stages.toml")),
    ("tier3", include_str!("../../../../paths/tier3.toml")),
];

/// The library of components, by name.
pub fn components() -> &'static BTreeMap<String, Component> {
    &COMPONENTS
}

/// The text of a path that comes with the program.
pub fn builtin(name: &str) -> Option<&'static str> {
    PATHS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
}

/// The names of the paths that come with the program.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    PATHS.iter().map(|(name, _)| *name)
}
