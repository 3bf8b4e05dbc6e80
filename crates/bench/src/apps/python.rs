//! Python's http.server under test serves wget.

use std::time::Instant;

use super::{
    case::{Better, Case, Measure, Sample},
    content::FILE_NAME,
    context::{Context, Server, ServerSpec, words},
    side::Side,
};

const PORT: u16 = 8000;
const RATE: Measure = Measure {
    name: "rate",
    unit: "Gbit/s",
    better: Better::Higher,
};

/// Python serves wget.
#[derive(Debug)]
pub struct Python;

impl Case for Python {
    fn title(&self) -> &'static str {
        "python serves wget"
    }

    fn tested(&self) -> &'static str {
        "python3"
    }

    fn tools(&self) -> &'static [&'static str] {
        &["python3", "wget", "sha256sum"]
    }

    fn check(&self, context: &Context, side: Side) -> anyhow::Result<()> {
        let server = start(context, side)?;
        context.check_fetched(
            None,
            "wget",
            &words([&"-nv", &"--tries=1", &"-O", &"-", &url(&server)]),
        )
    }

    fn sample(&self, context: &Context, side: Side) -> anyhow::Result<Vec<Sample>> {
        let server = start(context, side)?;
        let begun = Instant::now();
        // wget fails where fewer bytes arrive than Content-Length says.
        context.run_peer_client(
            "wget",
            &words([&"-nv", &"--tries=1", &"-O", &"/dev/null", &url(&server)]),
        )?;
        let value = context
            .content()
            .gigabits_per_second(begun.elapsed().as_secs_f64());
        Ok(vec![Sample {
            measure: RATE,
            value,
        }])
    }
}

fn url(server: &Server) -> String {
    format!("http://{}/{FILE_NAME}", server.address)
}

fn start(context: &Context, side: Side) -> anyhow::Result<Server> {
    let address = context.tested_address(side)?.to_string();
    let arguments = words([
        &"-m",
        &"http.server",
        &"--bind",
        &address,
        &"--directory",
        &context.scratch(),
        &PORT.to_string(),
    ]);
    context.start_tested_server(
        side,
        ServerSpec {
            name: "python3",
            arguments,
            port: PORT,
            refuses_mapped_root: false,
        },
    )
}
