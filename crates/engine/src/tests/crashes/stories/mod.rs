//! What happens in the scenes.

mod channels;
mod connections;
mod files;
mod programs;

use super::scene::Scene;

/// What is played.
pub struct Story {
    pub name: &'static str,
    pub play: fn(Scene),
    /// It passes more points than that.
    pub points_min: usize,
}

/// All of them.
pub const STORIES: &[Story] = &[
    Story {
        name: "connections",
        play: connections::play,
        points_min: 10_000,
    },
    Story {
        name: "programs",
        play: programs::play,
        points_min: 8_000,
    },
    Story {
        name: "channels",
        play: channels::play,
        points_min: 10_000,
    },
    Story {
        name: "files",
        play: files::play,
        points_min: 4_000,
    },
];
