//! pthread_cancel(3): a thread that sleeps in the library is woken, gives up what it holds, and ends at the edge of the call.
//!
//! libc unwinds a cancelled thread from where it is. Inside the library that is nowhere: the frames of a call are left as by
//! any error, and only the exported function, which holds nothing, asks libc whether the thread is to end
//! (`outcome::at_a_cancellation_point`). Programs that never cancel a thread pay for one load.

mod sys;

pub use sys::act;
