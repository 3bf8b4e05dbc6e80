//! One line on the program's stderr, for what its user has to know. Never more than one per cause.

/// Writes `shunt: …` to stderr, if the program has one that is no connection.
pub fn line(text: &str) {
    // A connection as standard error is for what the program says.
    if crate::descriptors::is_tracked(libc::STDERR_FILENO) {
        return;
    }
    let line = format!("shunt: {text}\n");
    if let Ok(stderr) = crate::sys::borrow(libc::STDERR_FILENO) {
        // There is nobody to tell if stderr is closed.
        let _ = rustix::io::write(stderr, line.as_bytes());
    }
}
