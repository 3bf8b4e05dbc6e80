//! The API as a browser and as somebody else meets it.

use std::task::Poll;

use axum::http::Method;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::access::Token;

struct Shelf;

impl Reports for Shelf {
    fn list(&self) -> Value {
        json!({ "pages": [{ "name": "a b.html" }] })
    }

    fn page(&self, name: &str) -> Option<String> {
        (name == "a b.html").then(|| "<script>alert(1)</script>".to_owned())
    }
}

struct Answer {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

fn ask(access: Access, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let sources = Sources {
        live: Arc::new(|| json!({ "engines": [{ "engine": "@shunt/engine" }] })),
        reports: Some(Arc::new(Shelf)),
    };
    wait(async {
        let response = router(access, sources).oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    })
}

const HOST: (&str, &str) = ("host", "localhost:7480");

fn post_open(path: &str, body: &str) -> Answer {
    ask(Access::new(None, 7480), Method::POST, path, &[HOST], body)
}

fn of_scenario(change: fn(&mut Scenario)) -> String {
    let mut scenario = Scenario::default();
    change(&mut scenario);
    json!({ "scenario": scenario, "axis": "workload.clients=1..2" }).to_string()
}

#[test]
fn what_runs_is_told_to_whom_the_rules_admit() {
    let open = Access::new(None, 7480);
    let answer = ask(open, Method::GET, "/api/live", &[HOST], "");
    assert_eq!(answer.json()["engines"][0]["engine"], "@shunt/engine");
    let closed = Access::new(Some(Token::new().unwrap()), 7480);
    let answer = ask(closed, Method::GET, "/api/live", &[HOST], "");
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

#[test]
fn a_saved_page_is_shown_without_rights_and_nothing_else_is() {
    let get = |path: &str| ask(Access::new(None, 7480), Method::GET, path, &[HOST], "");
    let list = get("/api/reports").json();
    assert_eq!(list["pages"][0]["name"], "a b.html");
    let page = get("/reports/a%20b.html");
    assert_eq!(page.status, StatusCode::OK);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("sandbox") && policy.starts_with("default-src 'none'"));
    assert!(!policy.contains("script"), "{policy}");
    assert!(policy.contains("safe-inline'; img-src data:;"), "{policy}");
    for path in ["/reports/other.html", "/reports/..%2Fsecret", "/reports/"] {
        assert_eq!(get(path).status, StatusCode::NOT_FOUND, "{path}");
    }
    let closed = Access::new(Some(Token::new().unwrap()), 7480);
    for path in ["/api/reports", "/reports/a%20b.html"] {
        let answer = ask(closed.clone(), Method::GET, path, &[HOST], "");
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[test]
fn the_page_comes_with_a_strict_policy() {
    let answer = ask(Access::new(None, 7480), Method::GET, "/", &[HOST], "");
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"));
    assert!(!policy.contains("inline") && !policy.contains("eval"));
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers["referrer-policy"], "no-referrer");
}

#[test]
fn nothing_is_answered_without_the_token() {
    let token = Token::new().unwrap();
    let access = Access::new(Some(token.clone()), 7480);
    for path in ["/", "/app.js", "/api/scenarios", "/nowhere"] {
        let answer = ask(access.clone(), Method::GET, path, &[HOST], "");
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.headers.contains_key("content-security-policy"));
    }
    let first = format!("/?token={}", token.digits());
    let answer = ask(access.clone(), Method::GET, &first, &[HOST], "");
    assert_eq!(
        (answer.status, &answer.headers["location"]),
        (StatusCode::SEE_OTHER, &HeaderValue::from_static("/"))
    );
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    let cookie = ("cookie", cookie.split(';').next().unwrap());
    let answer = ask(access, Method::GET, "/api/scenarios", &[HOST, cookie], "");
    assert_eq!(answer.status, StatusCode::OK);
}

#[test]
fn another_name_or_another_page_is_refused_even_without_a_token() {
    let foreign: [&[(&str, &str)]; 3] = [
        &[("host", "shunt.example")],
        &[HOST, ("origin", "https://shunt.example")],
        &[],
    ];
    for headers in foreign {
        let answer = ask(
            Access::new(None, 7480),
            Method::POST,
            "/api/run",
            headers,
            "{}",
        );
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
}

#[test]
fn scenarios_come_with_defaults_and_what_was_published() {
    let answer = ask(
        Access::new(None, 1),
        Method::GET,
        "/api/scenarios",
        &[HOST],
        "",
    );
    let value = answer.json();
    assert_eq!(
        value["scenarios"].as_array().unwrap().len(),
        SCENARIOS.len()
    );
    assert_eq!(value["defaults"]["host"]["clock_mhz"], 500.0);
    assert_eq!(value["published"]["fig8_vs_kernel"], json!([32.0, 83.0]));
}

#[test]
fn a_run_says_what_the_simulator_says() {
    let value = post_open("/api/run", &of_scenario(|s| s.workload.clients = 2)).json();
    assert_eq!(value["summary"]["requests"], 960);
    assert_eq!(value["toml"], "title = \"\"\n\n[workload]\nclients = 2\n");
    let livelock = value["formulas"]["livelock_clients"].as_f64().unwrap();
    assert!((livelock - 6.6).abs() < 0.01);
}

#[test]
fn a_curve_has_a_point_for_each_value() {
    let value = post_open("/api/curve", &of_scenario(|_| {})).json();
    let points = value.as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(
        (&points[1]["value"], &points[1]["summary"]["requests"]),
        (&json!("2"), &json!(960))
    );
}

#[test]
fn a_timeline_has_spans_and_queue_lengths() {
    let value = post_open("/api/timeline", &of_scenario(|_| {})).json();
    assert!(value["spans"].as_array().unwrap().len() > 100);
    assert_eq!(value["requests"].as_array().unwrap().len(), 60);
    let queues = value["queues"].as_array().unwrap().len();
    assert_eq!(value["lengths"][0].as_array().unwrap().len(), queues);
}

#[test]
fn a_file_with_a_fault_is_answered_with_its_line() {
    let wrong = |text: &str| {
        let answer = post_open("/api/read", text);
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        let value = answer.json();
        (
            value["line"].as_u64(),
            value["error"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(wrong("[host]\nclock = 3\n").0, Some(2));
    assert_eq!(wrong("\n\n[host]\ncores = 0\n").0, Some(4));
    assert!(wrong("[nic\n").1.contains("TOML parse error"));
    assert_eq!(wrong("stack.kind = \"toe\"").0, Some(1));
    let good = post_open("/api/read", SCENARIOS[0].text);
    assert_eq!(good.json()["scenario"]["runs"]["replications"], 8);
}

#[test]
fn what_cannot_be_is_an_answer_and_never_a_panic() {
    for body in [
        "",
        "{}",
        "[]",
        "{\"scenario\": 3}",
        "{\"scenario\": {\"moon\": {}}}",
    ] {
        let answer = post_open("/api/run", body);
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    }
    let zero = post_open("/api/run", &of_scenario(|s| s.host.cores = 0)).json();
    assert!(zero["error"].as_str().unwrap().contains("host.cores"));
    let far = of_scenario(|s| s.workload.requests_per_client = 4_000_000);
    assert!(
        post_open("/api/run", &far).json()["error"]
            .as_str()
            .unwrap()
            .contains("shunt sim run")
    );
    let large = "x".repeat(MOST_BYTES + 1);
    let answer = post_open("/api/run", &large);
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn a_simulation_is_told_to_stop_when_its_client_has_gone() {
    let (told, hears) = tokio::sync::oneshot::channel();
    let body = of_scenario(|_| {});
    wait(async {
        let mut answer = Box::pin(simulated(body.as_bytes(), move |_, stop| {
            while !stop.stopped() {
                std::thread::yield_now();
            }
            let _ = told.send(());
            Ok(0)
        }));
        let begun = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context)));
        assert!(begun.await.is_pending());
        // What the server does with a request whose connection is closed.
        drop(answer);
        hears.await.unwrap();
    });
}
