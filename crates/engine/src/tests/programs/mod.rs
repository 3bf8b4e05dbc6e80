//! What programs do to an engine and to each other: they doze, flood it, lie, die and fork.

mod attention;
mod bounds;
mod death;
mod generations;
mod held;
mod hostile;
mod moderation;
mod orphans;
mod shares;
