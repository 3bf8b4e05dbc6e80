//! What `shunt status` prints for people of one engine.

use std::time::SystemTime;

use output::Table;
use serde_json::Value;

use crate::figures::{
    self,
    histograms::{HISTOGRAMS, Spread},
    programs::switches_per_call,
};

/// An engine, its interfaces and its programs.
pub fn status_text(status: &Value, interfaces: &Value, programs: &Value) -> String {
    let word = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(word).collect()
    };
    let mut text = format!(
        "engine {} (process {}): programs {}, connections {}, listeners {}, in TIME-WAIT {}, UDP sockets {}\n",
        word(&status["name"]),
        status["pid"],
        status["programs"],
        status["connections"],
        status["listeners"],
        status["time_waits"],
        status["datagram_sockets"],
    );
    text += &place(status);
    text += &format!(
        "memory {} KiB ({} KiB of it windows and state), {} bytes a connection beside its windows\n",
        status["memory_kib"]["total"],
        status["memory_kib"]["shared"],
        status["bytes_per_connection"],
    );
    text += &kept(&status["kept"], seconds());
    let copies = &status["copies"];
    let each = |name: &str| copies[name].as_f64().map(|each| format!("{each:.2}"));
    let parts = [
        each("per_sent_byte").map(|each| format!("{each} per byte sent")),
        each("per_received_byte").map(|each| format!("{each} per byte received")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        text += &format!("copies {}\n", parts.join(", "));
    }
    let passed = copies["passed_bytes"].as_u64().unwrap_or(0);
    if passed > 0 {
        text += &format!("passed through memory to programs of this host: {passed} bytes\n");
    }
    text += &spreads(status);
    text += &cores(status);
    for interface in interfaces.as_array().into_iter().flatten() {
        let addresses = words(&interface["addresses"]);
        text += &format!(
            "{} by {}{}, {}, MTU {}, congestion control {}, protocols ipv4 {}: {}\n",
            word(&interface["interface"]),
            word(&interface["driver"]),
            interface["driver_mode"]
                .as_str()
                .map_or(String::new(), |mode| format!(" ({mode})")),
            word(&interface["hardware_address"]),
            interface["mtu_bytes"],
            word(&status["congestion_control"]),
            words(&status["protocols"]).join(" "),
            addresses.join(", ")
        );
    }
    text + &protections(&status["protections"]) + &warnings(status) + &tables(status, programs)
}

/// How long round trips and polls take, and how many frames come together; nothing of what never happened.
fn spreads(status: &Value) -> String {
    let told = HISTOGRAMS.iter().filter_map(|figure| {
        let spread = Spread::of(status, figure.field)?;
        let (mean, count) = (spread.mean()?, spread.count());
        let (_, unit) = figure.field.rsplit_once('_')?;
        let bound = |thousandths| spread.at_most(thousandths);
        let told = |bound: Option<u64>| bound.map_or("?".to_owned(), |bound| bound.to_string());
        Some(format!(
            "{} ({unit}): {count}, mean {mean:.1}, half at most {}, 99 % at most {}\n",
            figure.title,
            told(bound(500)),
            told(bound(990)),
        ))
    });
    told.collect()
}

/// Over how many cores connections are spread, and how; nothing of an engine of one.
fn cores(status: &Value) -> String {
    if status["cores"].as_u64().unwrap_or(1) == 1 {
        return String::new();
    }
    let shares = |name: &str| {
        let shares = status["by_core"].as_array().into_iter().flatten();
        let shares: Vec<String> = shares.map(|core| core[name].to_string()).collect();
        shares.join(", ")
    };
    let by_card = match status["spread_by_card"].as_bool() {
        Some(true) => ", spread by the card",
        _ => "",
    };
    let [connections, received, sent] = ["connections", "rx_frames", "tx_frames"].map(shares);
    format!(
        "{} cores, with {connections} connections{by_card}; frames received {received}, sent {sent}\n",
        status["cores"]
    )
}

/// How often another process went on with the engine's connections, and for how long it serves; nothing of an engine without a
/// keeper. `now_s` is in seconds since 1970.
fn kept(kept: &Value, now_s: u64) -> String {
    let ago = |since: &Value| since.as_u64().map(|since| now_s.saturating_sub(since));
    let Some(age_s) = ago(&kept["since_s"]) else {
        return String::new();
    };
    let last =
        ago(&kept["last_s"]).map_or(String::new(), |last_s| format!(", last {last_s} s ago"));
    format!(
        "serving for {age_s} s: restarts after a crash {}, upgrades {}{last}\n",
        kept["restarts"], kept["upgrades"],
    )
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What the engine's process has given up; nothing of an engine inside a program.
fn protections(protections: &Value) -> String {
    if protections.is_null() {
        return String::new();
    }
    let list = |list: &Value| {
        let names = list.as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        names.join(" ")
    };
    let mut has = Vec::new();
    if let Some(left) = protections["capabilities"]["Ok"].as_array() {
        has.push(match left.as_slice() {
            [] => "no capabilities".to_owned(),
            _ => format!("capabilities {}", list(&protections["capabilities"]["Ok"])),
        });
    }
    if protections["no_new_privs"] == true {
        has.push("no new privileges".to_owned());
    }
    if protections["undumpable"] == true {
        has.push("no dumps".to_owned());
    }
    if let Some(how_much) = protections["landlock"]["Ok"].as_str() {
        has.push(format!("files by Landlock ({how_much})"));
    }
    if let Some(count) = protections["system_calls"]["Ok"].as_u64() {
        has.push(format!("{count} system calls"));
    }
    let mut text = format!("confined to: {}\n", has.join(", "));
    let missing = protections["missing"].as_array().into_iter().flatten();
    for why in missing.filter_map(Value::as_str) {
        text += &format!("warning: less protected than elsewhere: {why}\n");
    }
    let refused = protections["refused_calls"].as_u64().unwrap_or(0);
    if refused > 0 {
        text += &format!(
            "warning: {refused} system calls of the engine were refused: its log names them; somebody may be misusing it, or Shunt's list lacks one\n"
        );
    }
    text
}

/// Where the engine runs, and why; nothing of one that was started as a service.
fn place(status: &Value) -> String {
    let because = status["because"].as_str();
    because.map_or_else(String::new, |because| {
        let mode = status["mode"].as_str().unwrap_or_default();
        format!("engine mode {mode} ({because}); choose with `shunt run --engine-mode`\n")
    })
}

fn warnings(status: &Value) -> String {
    let complaints = status["complaints"].as_array().into_iter().flatten();
    let complaints = complaints.filter_map(Value::as_str);
    let mut text: String = complaints.map(|one| format!("warning: {one}\n")).collect();
    let lost = status["lost_log_lines"].as_u64().unwrap_or(0);
    if lost > 0 {
        text += &format!(
            "warning: {lost} lines of the engine's log were lost: nobody read them, or there was no room\n"
        );
    }
    let limits = &status["limits"];
    let count = |name: &str| limits[name].as_u64().unwrap_or(0);
    let refused = ["refused_programs", "refused_rows", "refused_windows"].map(count);
    if refused != [0; 3] {
        text += &format!(
            "warning: refused for the sake of others: {} programs, {} sockets, {} windows; the log says whose (--user-share, --program-memory-mib)\n",
            refused[0], refused[1], refused[2]
        );
    }
    if count("cores_in_urgent_mode") > 0 {
        text += &format!(
            "urgent mode: memory of windows is past its mark; told before their time {}\n",
            count("urgent")
        );
    }
    let conflicts = status["stack_counters"]["ShuntArpConflicts"]
        .as_u64()
        .unwrap_or(0);
    if conflicts > 0 {
        text += &format!(
            "warning: another machine on the link claimed an address of this engine, {conflicts} times (RFC 5227); give it another --address\n"
        );
    }
    text
}

fn tables(status: &Value, programs: &Value) -> String {
    let mut text = String::new();
    let mut table = Table::new(
        "program |  | user | connections | listeners | reads | writes | wake-ups | switches | involuntary | switches per call",
    );
    for program in programs.as_array().into_iter().flatten() {
        let cell = |name: &str| match &program[name] {
            Value::Null => "?".to_owned(),
            value => value.to_string(),
        };
        let each = switches_per_call(program);
        table.row([
            cell("pid"),
            program["program"].as_str().unwrap_or("?").to_owned(),
            cell("uid"),
            cell("connections"),
            cell("listeners"),
            cell("reads"),
            cell("writes"),
            cell("rings"),
            cell("voluntary_switches"),
            cell("involuntary_switches"),
            each.map_or("-".to_owned(), |each| format!("{each:.3}")),
        ]);
    }
    if programs.as_array().is_some_and(|list| !list.is_empty()) {
        text += "\n";
        text += &table.render();
    }
    text += "\n";
    let mut counters = Table::new("counter | value");
    for (name, value) in figures::counters(status).filter(|(_, value)| *value > 0) {
        counters.row([name.to_owned(), value.to_string()]);
    }
    text + &counters.render()
}
