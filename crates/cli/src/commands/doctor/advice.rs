//! Turns the findings into one command line to start with.

use super::Report;

/// Fills in the recommendation; false where nothing of Shunt can run here.
pub fn advise(report: &mut Report) -> bool {
    let (recommended, reason, usable) = choose(report);
    report.recommended = recommended;
    report.reason = reason;
    usable
}

fn choose(report: &Report) -> (String, String, bool) {
    let candidates = || {
        report
            .interfaces
            .iter()
            .filter(|interface| interface.up && !interface.loopback)
    };
    let best = candidates()
        .find(|interface| interface.default_route)
        .or_else(|| candidates().next());
    if let (true, Some(interface)) = (report.has("af-packet"), best) {
        let command = format!(
            "shunt engine --nic {} --driver af_packet --address ADDRESS/PREFIX",
            interface.name
        );
        let reason = format!(
            "af_packet works on every interface; give the engine a free address of {}'s network",
            interface.name
        );
        return (command, reason, true);
    }
    if report.has("CAP_SYS_ADMIN") || report.has("user-namespaces") {
        let why = if best.is_none() {
            "no interface is up"
        } else {
            "CAP_NET_RAW is missing"
        };
        return (
            "shunt lab up".to_owned(),
            format!("{why}: the lab brings two hosts of its own"),
            true,
        );
    }
    let reason =
        "neither packet sockets nor namespaces can be had: see what is missing above".to_owned();
    ("none".to_owned(), reason, false)
}
