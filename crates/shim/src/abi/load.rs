//! What runs before `main`, and around fork(2). Nobody calls it: the loader and libc do.

mod sys;
