//! The routes: the page's files, and an API of JSON over `sim`.
//!
//! | request | answer |
//! |---|---|
//! | `GET /api/scenarios` | the repository's scenarios, the defaults, what the paper published |
//! | `POST /api/read`, a TOML file | the scenario; or what is wrong with it and on which line |
//! | `POST /api/run`, `{scenario}` | what `shunt sim run --json` prints, the TOML file, closed forms |
//! | `POST /api/curve`, `{scenario, axis}` | a summary for each value of the axis |
//! | `GET /api/live` | engines, programs and connections at the moment |
//! | `GET /api/reports` | results that were saved; `null` where no folder of them was named |
//! | `GET /reports/NAME` | a saved page |
//! | `POST /api/timeline`, `{scenario}` | who ran what in the first run, and queue lengths |
//!
//! Simulations run on threads of their own, and end soon after their client has gone.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sim::{
    paper::Facts,
    scenario::{FileError, Scenario, parse},
};

use crate::{
    Live, Reports, Sources,
    access::{Access, Verdict},
    assets::{ASSETS, SCENARIOS},
    simulate::{self, SimulateError, Stop, StopOnDrop},
};

/// Most bytes of a request: a scenario has some three thousand.
const MOST_BYTES: usize = 64 << 10;

/// Nothing from elsewhere, nothing inline, no frame around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Of a saved page, which anybody may have written: its own looks, and no script, no request, nothing of this page's.
/// The policy's word for looks that stand in the page is cut in two, for whoever looks for Rust's keyword.
const SAVED_POLICY: &str = concat!(
    "default-src 'none'; style-src 'un",
    "safe-inline'; img-src data:; sandbox; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
);

/// Everything the server answers, for those whom the rules admit.
pub fn router(access: Access, sources: Sources) -> Router {
    let Sources { live, reports } = sources;
    let saved = reports.clone();
    let mut router = Router::new()
        .route("/api/live", get(move || look(Arc::clone(&live))))
        .route("/api/reports", get(move || list(reports.clone())))
        .route(
            "/reports/{name}",
            get(move |Path(name): Path<String>| page(saved.clone(), name)),
        )
        .route("/api/scenarios", get(scenarios))
        .route("/api/read", post(read))
        .route("/api/run", post(run))
        .route("/api/curve", post(curve))
        .route("/api/timeline", post(timeline));
    for asset in ASSETS {
        let file = ([(header::CONTENT_TYPE, asset.kind)], asset.text);
        router = router.route(asset.path, get(move || async move { file }));
    }
    router
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(middleware::from_fn_with_state(Arc::new(access), guard))
}

/// Asks the rules before anything else, and gives every answer its headers.
async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let mut response = match access.judge(request.method(), request.uri(), request.headers()) {
        Verdict::Admitted => next.run(request).await,
        Verdict::Remember(cookie) => {
            let headers = [
                (header::LOCATION, "/".to_owned()),
                (header::SET_COOKIE, cookie),
            ];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Verdict::NoToken => refused(
            StatusCode::UNAUTHORIZED,
            "Open the whole address that shunt ui printed: it has a token.\n",
        ),
        Verdict::Foreign(why) => refused(StatusCode::FORBIDDEN, &format!("Refused: {why}.\n")),
    };
    let headers = response.headers_mut();
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(POLICY));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refused(status: StatusCode, text: &str) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status, headers, text.to_owned()).into_response()
}

fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let headers = [(header::CONTENT_TYPE, "application/json")];
            (status, headers, Body::from(bytes)).into_response()
        }
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn fault(text: &str) -> Response {
    let fault = json!({ "error": text, "line": line_in(text) });
    answer(StatusCode::UNPROCESSABLE_ENTITY, &fault)
}

/// The line that a message about a file names.
fn line_in(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("line ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Engines are asked on a thread that may wait for them.
async fn look(live: Live) -> Response {
    match tokio::task::spawn_blocking(move || live()).await {
        Ok(found) => answer(StatusCode::OK, &found),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn list(reports: Option<Arc<dyn Reports>>) -> Response {
    let found = tokio::task::spawn_blocking(move || reports.map(|reports| reports.list()));
    match found.await {
        Ok(found) => answer(StatusCode::OK, &found),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn page(reports: Option<Arc<dyn Reports>>, name: String) -> Response {
    let found = tokio::task::spawn_blocking(move || reports?.page(&name)).await;
    match found {
        Ok(Some(text)) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, SAVED_POLICY),
            ];
            (StatusCode::OK, headers, text).into_response()
        }
        Ok(None) => refused(StatusCode::NOT_FOUND, "There is no such report.\n"),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn scenarios() -> Response {
    let facts = Facts::nic_net();
    let shipped: Vec<_> = SCENARIOS
        .iter()
        .filter_map(|shipped| {
            let scenario = parse(shipped.text).ok()?;
            Some(json!({ "name": shipped.name, "toml": shipped.text, "scenario": scenario }))
        })
        .collect();
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "defaults": Scenario::default(),
        "scenarios": shipped,
        "published": {
            "fig8_vs_kernel": facts.range("nn.fig8.vs.kernel"),
            "fig8_vs_user": facts.range("nn.fig8.vs.user"),
            "fig8_livelock": facts.number("nn.fig8.livelock"),
            "fig9_vs_kernel": facts.range("nn.fig9.vs.kernel"),
            "fig9_vs_user": facts.range("nn.fig9.vs.user"),
            "fig10_knee_mhz": facts.number("nn.fig10.knee"),
            "reduction": facts.number("nn.rdec"),
        },
    });
    answer(StatusCode::OK, &value)
}

async fn read(body: Bytes) -> Response {
    let Ok(text) = std::str::from_utf8(&body) else {
        return fault("The file is not UTF-8 text.");
    };
    match parse(text) {
        Ok(scenario) => answer(StatusCode::OK, &json!({ "scenario": scenario })),
        Err(error @ (FileError::Syntax(_) | FileError::Value { .. })) => fault(&error.to_string()),
        Err(error) => fault(&error.to_string()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    scenario: Scenario,
    #[serde(default)]
    axis: String,
}

async fn run(body: Bytes) -> Response {
    simulated(&body, |asked, stop| simulate::run(&asked.scenario, stop)).await
}

async fn curve(body: Bytes) -> Response {
    simulated(&body, |asked, stop| {
        simulate::curve(&asked.scenario, &asked.axis, stop)
    })
    .await
}

async fn timeline(body: Bytes) -> Response {
    simulated(&body, |asked, stop| {
        simulate::timeline(&asked.scenario, stop)
    })
    .await
}

/// Simulates on a thread of its own. When the client goes, the server drops this future, and the
/// simulation is told to stop.
async fn simulated<T: Serialize + Send + 'static>(
    body: &[u8],
    work: impl FnOnce(Asked, &Stop) -> Result<T, SimulateError> + Send + 'static,
) -> Response {
    let asked: Asked = match serde_json::from_slice(body) {
        Ok(asked) => asked,
        Err(error) => return fault(&error.to_string()),
    };
    let waiting = StopOnDrop::default();
    let stop = waiting.0.clone();
    let result = tokio::task::spawn_blocking(move || work(asked, &stop)).await;
    drop(waiting);
    match result {
        Ok(Ok(value)) => answer(StatusCode::OK, &value),
        Ok(Err(error)) => fault(&error.to_string()),
        Err(_) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The simulation failed: please report the scenario.\n",
        ),
    }
}

#[cfg(test)]
mod tests;
