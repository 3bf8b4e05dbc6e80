//! The calls by which a process ends or becomes another program: an engine inside it outlives it, in a forked child.
//! What is not caught: a process that is killed.

mod sys;

pub use sys::{end, execv, execve, execveat, execvp};
