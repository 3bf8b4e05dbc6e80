//! Python's http.server under test serves wget.

use std::time::Instant;

use super::{
    case::{Case, Measure, Sample},
    content::FILE_NAME,
    context::{Context, Server},
    side::Side,
};
use crate::unit::Better;

const PORT: u16 = 8000;
const RATE: Measure = Measure {
    name: "rate",
    unit: "Gbit/s",
    better: Better::Higher,
};

/// Python serves wget.
pub const SERVES: Case = Case {
    title: "python serves wget",
    segment_bytes: lab::ORDINARY_SEGMENT_BYTES,
    tested: "python3",
    tools: &["python3", "wget", "sha256sum"],
    check: |context, side| {
        let (_server, url) = start(context, side)?;
        context.check_fetched(None, &["wget", "-nv", "--tries=1", "-O", "-", &url])
    },
    sample: |context, side| {
        let (_server, url) = start(context, side)?;
        let begun = Instant::now();
        // wget fails where fewer bytes arrive than Content-Length says.
        context.run(None, &["wget", "-nv", "--tries=1", "-O", "/dev/null", &url])?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(vec![Sample {
            measure: RATE,
            value: context.common.content.gigabits_per_second(seconds),
        }])
    },
};

fn start(context: &Context, side: Side) -> anyhow::Result<(Server, String)> {
    let address = context.tested_address(side)?.to_string();
    let (scratch, port) = (context.scratch(), PORT.to_string());
    let line = ["python3", "-m", "http.server", "--bind", &address];
    let line = [&line[..], &["--directory", &scratch, &port]].concat();
    let server = context.start_tested_server(side, PORT, &line)?;
    let url = format!("http://{}/{FILE_NAME}", server.address);
    Ok((server, url))
}
