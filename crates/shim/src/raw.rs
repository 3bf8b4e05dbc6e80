//! System calls by number.

mod sys;
