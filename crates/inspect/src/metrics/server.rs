//! Serves the metrics over HTTP, a request at a time, until the process is told to end.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header::ACCEPT, header::CONTENT_TYPE},
    routing::get,
};
use dash::Listening;
use tokio::sync::Mutex;

use super::{Format, gather};
use crate::engines::Which;

/// Asked by one request after the other: engines answer no more often than one scraper could ask.
type Asked = Arc<Mutex<Arc<Which>>>;

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// Nothing can listen there; the error names the flag.
pub fn serve(listen: SocketAddr, which: Which) -> anyhow::Result<()> {
    let listening = Listening::bind(listen)?;
    note!(
        "shunt metrics: http://{}/metrics; Ctrl-C ends it",
        listening.address()
    );
    let router = Router::new()
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Mutex::new(Arc::new(which))));
    listening
        .serve_until_signal(router)
        .context("serving metrics")
}

async fn metrics(
    State(asked): State<Asked>,
    headers: HeaderMap,
) -> Result<([(HeaderName, &'static str); 1], String), StatusCode> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let which = asked.lock().await;
    let own = Arc::clone(&which);
    let text = tokio::task::spawn_blocking(move || gather(&own, format)).await;
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, format.content_type())], text))
}
