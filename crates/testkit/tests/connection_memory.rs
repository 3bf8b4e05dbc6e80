//! What an idle connection costs, windows aside: everything that the stack holds for 100,000 of them,
//! divided by their number, and the engine's row for its socket.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "connection_memory/sys.rs"]
mod sys;

use stack::{Config, HeapTables, Stack};

#[global_allocator]
static ALLOCATOR: sys::Adding = sys::Adding;

const CONNECTIONS: usize = 100_000;
/// The connection's own row.
const ROW_BYTES_MAX: usize = 1_744;
/// With everything that is derived from it and looked up by it: the goal is 2 KiB.
const BYTES_MAX: usize = 2_024;

/// Bytes that a stack with room for so many connections holds.
fn held_for(connections: usize) -> usize {
    let before = sys::held();
    let mut tables = HeapTables::new(connections, 1, 1).unwrap();
    let stack = Stack::new(tables.tables(), Config::new([7; 16])).unwrap();
    let held = sys::held() - before;
    drop(stack);
    held
}

#[test]
fn an_idle_connection_costs_little_more_than_its_row() {
    // The difference leaves out what does not grow with connections.
    let stack_bytes = (held_for(2 * CONNECTIONS) - held_for(CONNECTIONS)) / CONNECTIONS;
    let row_bytes = size_of::<stack::tables::ConnectionRecord>();
    let engine_bytes = engine::SOCKET_ROW_BYTES;
    let bytes = stack_bytes + engine_bytes;
    println!(
        "{bytes} bytes per idle connection: row {row_bytes}, index, timers and queues {}, engine {engine_bytes}",
        stack_bytes - row_bytes
    );
    assert!(row_bytes <= ROW_BYTES_MAX, "{row_bytes} bytes in the row");
    assert!(bytes <= BYTES_MAX, "{bytes} bytes in all");
}
