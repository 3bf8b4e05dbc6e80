//! One line on the program's stderr, for what its user has to know. Never more than one per cause.

/// Writes `shunt: …` to stderr, if the program has one that is no connection. Never waits, see [`client::say_to`].
pub fn line(text: &str) {
    // A connection as standard error is for what the program says.
    if !crate::fd_table::descriptors::is_tracked(libc::STDERR_FILENO) {
        client::say(text);
    }
}
