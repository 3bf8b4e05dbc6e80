//! What is said when a transfer is over: how much, how fast, what was slow, what is missing.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mover::probe::PathRates;
use mover::{Bottleneck, Error, Outcome, Role, Watch};
use serde_json::json;

use super::Common;
use super::progress::{gbit_per_s, gib};

/// Tells it; its result is the exit status.
pub fn tell(
    common: &Common,
    role: Role,
    result: Result<Outcome, Error>,
    watch: &Watch,
    taken: Duration,
) -> anyhow::Result<ExitCode> {
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            let hint = hint(&error);
            let error = anyhow::Error::from(error);
            return Err(match hint {
                Some(hint) => error.context(hint),
                None => error,
            });
        }
    };
    if common.json {
        say!("{}", json(role, &outcome, watch, taken));
    } else {
        output::print(&text(role, &outcome, watch, taken))?;
    }
    for note in &outcome.notes {
        note!("{note}");
    }
    for (path, why) in &outcome.skipped {
        note!("skipped: {}: {why}", path.display());
    }
    for (path, reason) in &outcome.failed {
        note!("failed: {}: {reason}", path.display());
    }
    if outcome.failed_unlisted > 0 {
        note!("failed: {} more", outcome.failed_unlisted);
    }
    Ok(if outcome.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// What to do after an error, where the error itself does not say it: going on helps only where the next try can go
/// better, and what has arrived counts only where it is still wanted.
fn hint(error: &Error) -> Option<&'static str> {
    match error {
        Error::Network { .. }
        | Error::Silent(_)
        | Error::Interrupted
        | Error::Bug
        | Error::File { .. }
        | Error::NoRoom { .. } => {
            Some("what has arrived is kept: run the same commands again to go on")
        }
        _ => None,
    }
}

/// What each part can do by itself, and which of them will limit the transfer.
pub fn tell_probe(common: &Common, rates: &PathRates) -> anyhow::Result<()> {
    if common.json {
        say!("{}", json!({ "probe": rates }));
        return Ok(());
    }
    let parts = [
        ("reading the source", rates.source),
        ("the network", Some(rates.network)),
        ("the receiver's disk", rates.target),
    ];
    let mut text = String::new();
    for (name, rate) in parts {
        let Some(rate) = rate else { continue };
        let (gib, gbit) = (gib(rate.bytes), rate.gbit_per_s());
        text += &format!("probe: {name:<20} {gib:>7.3} GiB {gbit:>8.2} Gbit/s\n");
    }
    let measured = parts
        .iter()
        .filter_map(|(name, rate)| Some((*name, (*rate)?)));
    let slowest =
        measured.min_by(|(_, one), (_, other)| one.gbit_per_s().total_cmp(&other.gbit_per_s()));
    if let Some((name, rate)) = slowest {
        text += &format!(
            "probe: the slowest part is {name}; without hashing {:.2} Gbit/s would be possible\n",
            rate.gbit_per_s()
        );
    }
    output::print(&text)
}

fn text(role: Role, outcome: &Outcome, watch: &Watch, taken: Duration) -> String {
    let bytes = watch.bytes.load(Ordering::Relaxed);
    let kept = watch.kept_bytes.load(Ordering::Relaxed);
    let again = watch.again.load(Ordering::Relaxed);
    let done = match role {
        Role::Sender => "sent",
        Role::Receiver => "received",
    };
    let files = if outcome.files == 1 {
        "1 file".to_owned()
    } else {
        format!("{} files", outcome.files)
    };
    let mut text = format!(
        "{done} {files}, {:.3} GiB in {:.2} s: {:.2} Gbit/s\n",
        gib(bytes),
        taken.as_secs_f64(),
        gbit_per_s(bytes, taken)
    );
    let packed = watch.packed_bytes.load(Ordering::Relaxed);
    if packed > 0 {
        let frames = watch.frame_bytes.load(Ordering::Relaxed);
        text += &format!(
            "{:.3} GiB of it travelled compressed, as {:.3} GiB\n",
            gib(packed),
            gib(frames)
        );
    }
    if kept > 0 {
        text += &format!("{:.3} GiB more were there from an earlier try\n", gib(kept));
    }
    if again > 0 {
        text += &format!("{again} blocks arrived damaged and were sent again\n");
    }
    if let (1, Some(digest)) = (outcome.files, &outcome.last_digest) {
        text += &format!("hash {digest}\n");
    }
    if role == Role::Sender && bytes > 0 {
        text += &bottleneck(outcome);
    }
    text
}

/// One sentence that says what the others waited for.
fn bottleneck(outcome: &Outcome) -> String {
    let (what, share) = outcome.totals.bottleneck();
    let (name, end) = match what {
        Bottleneck::SourceDisk => ("reading the source", "the sender's"),
        Bottleneck::SenderHash => ("hashing at the sender", "the sender's"),
        Bottleneck::Packing => ("compressing", "the sender's"),
        Bottleneck::Network => ("the connection", "either end's"),
        Bottleneck::ReceiverHash => ("hashing at the receiver", "the receiver's"),
        Bottleneck::Unpacking => ("undoing the compression", "the receiver's"),
        Bottleneck::TargetDisk => ("the receiver's disk", "the receiver's"),
    };
    format!(
        "the bottleneck was {name}: {:.0} % of {end} time went there\n",
        share * 100.0
    )
}

fn json(role: Role, outcome: &Outcome, watch: &Watch, taken: Duration) -> serde_json::Value {
    let bytes = watch.bytes.load(Ordering::Relaxed);
    let failed = outcome.failed.iter();
    let failed: Vec<_> = failed
        .map(|(path, reason)| json!({"path": path.display().to_string(), "reason": reason}))
        .collect();
    let (what, share) = outcome.totals.bottleneck();
    json!({
        "role": match role { Role::Sender => "sender", Role::Receiver => "receiver" },
        "files": outcome.files,
        "bytes": bytes,
        "kept_bytes": watch.kept_bytes.load(Ordering::Relaxed),
        "packed_bytes": watch.packed_bytes.load(Ordering::Relaxed),
        "frame_bytes": watch.frame_bytes.load(Ordering::Relaxed),
        "seconds": taken.as_secs_f64(),
        "gbit_per_s": gbit_per_s(bytes, taken),
        "sent_again": watch.again.load(Ordering::Relaxed),
        "hash": outcome.last_digest,
        "method": outcome.method,
        "storage": outcome.storage,
        "notes": outcome.notes,
        "times": outcome.totals,
        "bottleneck": (role == Role::Sender).then(|| json!({"what": what, "share": share})),
        "failed": failed,
        "failed_unlisted": outcome.failed_unlisted,
        "skipped": outcome.skipped.iter().map(|(path, why)| json!({"path": path.display().to_string(), "why": why})).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_on_is_advised_only_where_it_helps() {
        let kept = hint(&Error::Silent(60)).unwrap();
        assert!(kept.contains("run the same commands again"));
        for error in [
            Error::Token,
            Error::Changed("f".into()),
            Error::Refused("no".to_owned()),
            Error::Differs("f".into()),
            Error::Busy("f".into()),
        ] {
            assert_eq!(hint(&error), None, "{error}");
        }
    }
}
