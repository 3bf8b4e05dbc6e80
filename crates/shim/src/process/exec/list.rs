//! execl(3) and its kin, whose arguments are not in an array.

mod sys;
