//! `libshunt.so`, which `shunt run` preloads: the switch (crate `shim`) and no engine. A program's sockets are served by an
//! engine in another process. Crate `preload_inline` is the same with an engine inside.

mod sys;
