//! `libshunt_inline.so`, which `shunt run` preloads for an engine inside the program: the switch (crate `shim`) and an engine that the program's own
//! threads run. The ordinary library, crate `preload`, has no engine.
//!
//! `engine` starts it and gives it to the client; `settings` reads what `shunt run` asks for; `sys` leaves it to a child when
//! the process ends; `guard` has peers told when it is killed.

mod engine;
mod guard;
mod settings;
mod sys;
