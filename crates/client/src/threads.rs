//! What belongs to a thread of the program while it is in the library: its bell, who of several that sleep polls the
//! doorbells of the engines, and its signals, whose handlers wait.

pub mod signal_deferral;
pub mod undisturbed;
pub mod wait_leaders;
pub mod waker;
