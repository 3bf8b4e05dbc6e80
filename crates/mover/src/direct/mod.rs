//! Writes past the page cache out of memory in huge pages, several at once: io_uring and O_DIRECT (open(2)).

mod sys;

pub use sys::DirectWriter;
