//! What happens in the scenes.

mod channels;
mod connections;
mod cores;
mod files;
mod programs;

use super::scene::Scene;

/// What is played.
pub struct Story {
    pub name: &'static str,
    pub play: fn(Scene),
    /// Of the engine that ends.
    pub cores: usize,
    /// It passes more points than that.
    pub points_min: usize,
}

/// All of them.
pub const STORIES: &[Story] = &[
    Story {
        name: "connections",
        play: connections::play,
        cores: 1,
        points_min: 10_000,
    },
    Story {
        name: "programs",
        play: programs::play,
        cores: 1,
        points_min: 8_000,
    },
    Story {
        name: "channels",
        play: channels::play,
        cores: 1,
        points_min: 10_000,
    },
    Story {
        name: "files",
        play: files::play,
        cores: 1,
        points_min: 4_000,
    },
    Story {
        name: "cores",
        play: cores::play,
        cores: 2,
        points_min: 12_000,
    },
];
