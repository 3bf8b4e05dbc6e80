//! Looking whether a wait is over.

use std::cell::Cell;

use crate::threads::signal_deferral::SignalDeferral;

thread_local! {
    /// The thread looks again before it sleeps: nobody needs to be asked to tell it.
    static LOOKS_AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Looks whether a wait is over, of which the caller looks again before it sleeps. Handlers of signals are held back
/// meanwhile: what they look at they may not look at again.
pub(crate) fn look(ready: &mut dyn FnMut() -> bool) -> bool {
    let _deferral = SignalDeferral::begin();
    LOOKS_AGAIN.with(|looks| looks.set(true));
    let is_over = ready();
    LOOKS_AGAIN.with(|looks| looks.set(false));
    is_over
}

/// Whether the thread is in such a look.
pub(crate) fn looks_again() -> bool {
    LOOKS_AGAIN.with(Cell::get)
}
