//! Signals of a thread, held back in the kernel.

/// The calling thread's signals are held back as long as this lives.
#[derive(Debug)]
pub struct Undisturbed(u64);

impl Undisturbed {
    /// From now on.
    #[must_use]
    pub fn begin() -> Undisturbed {
        Undisturbed(crate::sys::block_signals())
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        crate::sys::restore_signals(self.0);
    }
}
