//! What `status`, `ss` and `doctor` print, as JSON. For people and scripts; walks whole tables.

use crate::core::{EngineCore, histograms};
use crate::programs::session::Session;
use crate::sockets::rows::Kind;
use hostif::header::Calls;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use stack::Resolution;
use stack::tables::{ConnectionRecord, ListenerRecord, TimeWaitRecord};
use std::sync::atomic::Ordering;

/// The engine as a whole.
pub fn status(core: &EngineCore) -> Value {
    let counters: Map<String, Value> = core
        .layer
        .stack
        .counters_of_all()
        .iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let caps = core.layer.link.driver.caps();
    json!({
        "name": core.config.name,
        "pid": pid(core),
        "core": core.shard.core,
        "cores": core.shard.steering.cores,
        "spread_by_card": core.shard.steering.card_key().is_some(),
        "interface": core.config.interface,
        "driver": core.config.driver,
        "driver_mode": core.layer.link.driver.mode(),
        "mode": if core.config.is_inside { "inline" } else { "process" },
        "because": core.config.because,
        "left_behind": core.succession.is_left_behind,
        "complaints": complaints(core),
        "protections": core.config.process.protections.map(|told| told()),
        "lost_log_lines": core.config.lost_log_lines.load(Ordering::Relaxed),
        "sharing": format!("{:?}", core.layer.sharing()).to_lowercase(),
        "congestion_control": core.config.socket_options.congestion.name(),
        "ecn": core.config.socket_options.ecn as u8,
        "protocols": core.config.protocols.names().collect::<Vec<_>>(),
        "caps": {
            "tx_checksum": caps.tx_checksum,
            "rx_checksum": caps.rx_checksum,
            "tso_max_bytes": caps.tso_max_bytes,
            "gro": caps.gro,
            "mtu_bytes": caps.mtu,
            "payload_align_bytes": caps.align,
        },
        "driver_counters": core.layer.link.driver.counters(),
        "looks_in_vain": core.layer.bursts.in_vain(),
        "histograms": histograms::of(core),
        "lost_at_stopped_queue": core.layer.link.queues.lost_frames(),
        "stack_counters": counters,
        "copies": core.layer.copies().to_json(),
        "limits": limits(core),
        "programs": core.programs.iter().filter(|session| is_program(session)).count(),
        "sockets": core.layer.sockets.count(),
        "connections": core.layer.stack.connection_names().count(),
        "listeners": core.layer.stack.listeners().count(),
        "time_waits": core.layer.stack.time_waits().count(),
        "datagram_sockets": core.layer.stack.udp_sockets(),
        "regions": core.layer.sockets.regions.len(),
        "kept": core.config.kept.as_ref().map(|kept| kept.history.to_json()),
        "memory_kib": resident_kib(),
        "bytes_per_connection": size_of::<ConnectionRecord>() + size_of::<crate::sockets::rows::SocketRow>(),
        "bytes_per_listener": size_of::<ListenerRecord>(),
        "bytes_per_time_wait": size_of::<TimeWaitRecord>(),
    })
}

/// How often a limit was met, and urgent mode.
fn limits(core: &EngineCore) -> Value {
    let refused = core.layer.sockets.regions.refused();
    json!({
        "refused_programs": core.programs.turned_away,
        "refused_rows": refused.rows,
        "refused_windows": refused.windows,
        "urgent": core.programs.urgent,
        "cores_in_urgent_mode": u64::from(core.programs.urgent_mode),
    })
}

/// The process that was started as the engine: the keeper, where there is one.
fn pid(core: &EngineCore) -> u32 {
    let keeper = core.config.kept.as_ref().map(|kept| kept.keeper);
    keeper.unwrap_or_else(std::process::id)
}

/// What of the device is not as was asked for or found.
fn complaints(core: &EngineCore) -> Vec<String> {
    let found = core.complaints();
    core.config
        .driver_note
        .iter()
        .cloned()
        .chain(found)
        .collect()
}

/// Resident memory of this process by kind, from /proc/self/status; windows are in `RssShmem`.
fn resident_kib() -> Value {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    json!({ "total": field("VmRSS:"), "shared": field("RssShmem:"), "private": field("RssAnon:") })
}

fn pids(core: &EngineCore, row: u32) -> Vec<i32> {
    core.layer
        .sockets
        .holders(row)
        .iter()
        .filter_map(|&slot| core.programs.get(slot))
        .map(|session| session.pid)
        .collect()
}

/// Every socket, listener and TIME-WAIT record; the queues of UDP sockets count whole records.
pub fn sockets(core: &EngineCore) -> Value {
    let owners = |owner: u64| {
        hostif::SocketId::from_bits(owner).map_or(Vec::new(), |id| pids(core, id.row()))
    };
    let inode = |owner: u64| {
        let id = hostif::SocketId::from_bits(owner)?;
        core.layer.sockets.backing_inode(id.row())
    };
    // Small steps of a program, and what it took of datagrams, come without a note, so its own word counts.
    let unread = |owner: u64| {
        let left = |header: hostif::SocketHeader<'_>| {
            header.received_end().saturating_sub(header.consumed())
        };
        let row = core.layer.sockets.row_of(owner);
        row.and_then(|row| core.layer.sockets.with_header(row, left))
            .unwrap_or(u64::MAX)
    };
    let here = core.shard.core;
    let mut rows = Vec::new();
    for row in core.layer.stack.listeners() {
        rows.push(json!({
            "core": here, "protocol": "tcp", "state": "LISTEN", "local": row.local, "remote": null, "pids": owners(row.owner), "inode": inode(row.owner),
            "receive_queue": row.ready, "send_queue": row.backlog, "half_open": row.half_open,
        }));
    }
    // What neighbours pass each other through memory is in no segment.
    let passed = |owner: u64| {
        let row = core.layer.sockets.row_of(owner)?;
        let channels = &core.layer.byte_channels;
        channels.passed(&core.layer.sockets, row)
    };
    for row in core.layer.stack.connections() {
        let (passed_out, passed_in) = passed(row.owner).unwrap_or_default();
        rows.push(json!({
            "core": here, "protocol": "tcp", "state": row.info.state.name(), "local": row.local, "remote": row.remote, "pids": owners(row.owner), "inode": inode(row.owner),
            "receive_queue": row.info.receive_queue.min(unread(row.owner)), "send_queue": row.info.send_queue,
            "bytes_acked": row.info.bytes_acked.saturating_add(passed_out),
            "bytes_received": row.info.bytes_received.saturating_add(passed_in),
            "srtt_us": row.info.srtt_us, "rto_us": row.info.rto_us, "cwnd": row.info.cwnd,
            "congestion_control": row.info.congestion.name(), "pacing_rate": row.info.pacing_rate, "delivery_rate": row.info.delivery_rate,
            "mss": row.info.snd_mss, "snd_wnd": row.info.snd_wnd, "rcv_wnd": row.info.rcv_wnd,
            "retransmissions": row.info.retransmissions, "sack": row.info.sack, "timestamps": row.info.timestamps,
        }));
    }
    for row in core.layer.stack.time_waits() {
        rows.push(
            json!({ "core": here, "protocol": "tcp", "state": "TIME-WAIT", "local": row.local, "remote": row.remote, "pids": [],
            "receive_queue": 0, "send_queue": 0 }),
        );
    }
    for row in core.layer.stack.udp_rows() {
        let positions = core.layer.sockets.datagram(row.socket);
        // As ss(8) names them.
        let state = row.remote.map_or("UNCONN", |_| "ESTAB");
        rows.push(json!({
            "core": here, "protocol": "udp", "state": state, "local": row.local, "remote": row.remote, "pids": owners(row.owner), "inode": inode(row.owner),
            "receive_queue": (positions.received_end - positions.consumed).min(unread(row.owner)),
            "send_queue": positions.written - positions.sent, "bytes_sent": positions.sent, "bytes_received": positions.received_end,
            "drops": positions.drops, "groups": row.groups,
        }));
    }
    Value::Array(rows)
}

/// Whoever only asks for a report is no program; a forked child is one before it says hello.
pub(crate) fn is_program(session: &Session) -> bool {
    session.rings.is_some() || !session.sockets.is_empty()
}

/// Calls on the sockets that a program holds or held, by whichever of their holders, as they say.
fn calls(core: &EngineCore, session: &Session) -> Calls {
    let sockets = session.sockets.iter();
    let calls = sockets.filter_map(|&row| {
        let sockets = &core.layer.sockets;
        sockets.with_header(row, |header| header.calls())
    });
    calls.fold(session.past_calls, Calls::plus)
}

/// Every attached program.
pub fn sessions(core: &EngineCore) -> Value {
    let row = |session: &Session| {
        let kinds = |kind: Kind| {
            session
                .sockets
                .iter()
                .filter(|&&row| core.layer.sockets.row(row).kind == kind)
                .count()
        };
        let calls = calls(core, session);
        json!({
            "session": session.number, "pid": session.pid, "uid": session.user.uid,
            "attached": session.rings.is_some(), "connections": kinds(Kind::Connection),
            "listeners": kinds(Kind::Listener), "prepared": session.backings.len(),
            "memory_kib": session.rings.as_ref().map_or(0, |rings| core.layer.sockets.regions.memory_bytes(rings.region)) / 1024,
            "notify": session.moderator.policy().to_string(),
            "events": session.notifications()[0], "rings": session.notifications()[1],
            "reads": calls.reads, "writes": calls.writes,
        })
    };
    let programs = core.programs.iter();
    Value::Array(
        programs
            .filter(|session| is_program(session))
            .map(row)
            .collect(),
    )
}

/// Interfaces with addresses, routes, neighbours.
pub fn interfaces(core: &EngineCore) -> Value {
    let caps = core.layer.link.driver.caps();
    // What the stack has rather than what was configured: routers may have announced more.
    let of_links = core.layer.stack.interfaces();
    let of_links = of_links.filter(|(_, link, _)| link.resolution != Resolution::Loopback);
    let addresses: Vec<String> = of_links
        .flat_map(|(_, _, addresses)| addresses)
        .map(|own| format!("{}/{}", own.address, own.prefix_len))
        .collect();
    let prefix = |address: core::net::IpAddr, len: u8| format!("{address}/{len}");
    let routes = core.layer.stack.routes().map(|route| {
        json!({
            "destination": prefix(route.destination, route.prefix_len), "gateway": route.gateway,
            "metric": route.metric, "source": route.source,
        })
    });
    json!([{
        "index": core.config.interface_index, "routes": routes.collect::<Vec<_>>(),
        "interface": core.config.interface, "driver": core.config.driver, "driver_mode": core.layer.link.driver.mode(), "mtu_bytes": caps.mtu,
        "hardware_address": caps.hardware_address.to_string(), "addresses": addresses, "gateways": core.gateways(),
    }])
}

/// A memory file with the JSON in it, to be passed to whoever asked.
pub fn to_file(json: &Value) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create(c"shunt-report", MemfdFlags::CLOEXEC)?;
    let text = json.to_string();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}
