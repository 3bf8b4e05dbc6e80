//! How a thread of the program waits: poll(2), select(2), and sleeping until a socket has news.

pub(crate) mod lost_engines;
pub(crate) mod poll;
pub(crate) mod select;
pub(crate) mod sleep;
pub(crate) mod sleeping;
pub(crate) mod waker;
