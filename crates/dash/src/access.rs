//! Who may use the page: whoever has the token that `shunt ui` printed, from this page alone.
//!
//! - The token comes in the printed address once; the answer puts it into a cookie and sends the
//!   browser to the address without it, so that it stays out of histories and screenshots.
//! - `Host` must be an address or `localhost`: a name could be one of an attacker's that resolves to
//!   this machine (DNS rebinding).
//! - `Origin`, where given, must be the page's own: no other page may send requests.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Uri, header};

/// A secret in hexadecimal digits.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A new one, of 128 random bits.
    pub fn new() -> std::io::Result<Self> {
        let mut bytes = [0_u8; 16];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if got < bytes.len() {
            return Err(std::io::Error::other("too few random bytes"));
        }
        Ok(Self(bytes.iter().map(|b| format!("{b:02x}")).collect()))
    }

    pub fn digits(&self) -> &str {
        &self.0
    }

    /// Whether this is it. The time it takes says nothing of where they differ.
    fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let pairs = own.iter().zip(given);
        let differences = pairs.fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == given.len() && std::hint::black_box(differences) == 0
    }
}

/// The rules for one server.
#[derive(Debug, Clone)]
pub struct Access {
    token: Option<Token>,
    cookie: String,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered.
    Admitted,
    /// It brought the token in its address: this cookie, and the address without it.
    Remember(String),
    /// It lacks the token.
    NoToken,
    /// It is for another name, or from another page.
    Foreign(&'static str),
}

impl Access {
    /// Rules of the server on this port. Cookies know no ports, so the port is in their name.
    pub fn new(token: Option<Token>, port: u16) -> Self {
        Self {
            token,
            cookie: format!("shunt_ui_{port}"),
        }
    }

    /// Decides on a request.
    pub fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let text = |name| {
            headers
                .get(name)
                .and_then(|v: &header::HeaderValue| v.to_str().ok())
        };
        let Some(host) = text(header::HOST).filter(|host| is_address_or_localhost(host)) else {
            return Verdict::Foreign(
                "open the page by its address (127.0.0.1, localhost): other names are refused",
            );
        };
        // Absent on a navigation and on requests of programs.
        if headers.contains_key(header::ORIGIN)
            && text(header::ORIGIN)
                .and_then(|origin| origin.split_once("://"))
                .map(|(_, h)| h)
                != Some(host)
        {
            return Verdict::Foreign("requests of other pages are refused");
        }
        let Some(token) = &self.token else {
            return Verdict::Admitted;
        };
        if *method == Method::GET && uri.path() == "/" {
            let given = uri.query().and_then(|query| {
                query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("token="))
            });
            if given.is_some_and(|given| token.is(given)) {
                return Verdict::Remember(format!(
                    "{}={}; HttpOnly; SameSite=Strict; Path=/",
                    self.cookie,
                    token.digits()
                ));
            }
        }
        let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let kept = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split("; "))
            .filter_map(|pair| pair.strip_prefix(&self.cookie)?.strip_prefix('='));
        if bearer.into_iter().chain(kept).any(|given| token.is(given)) {
            Verdict::Admitted
        } else {
            Verdict::NoToken
        }
    }
}

/// `Host` without its port: any port, so that a tunnel may use another one.
fn is_address_or_localhost(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        return address.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port);
    }
    let (name, port) = match host.find(':') {
        Some(at) => host.split_at(at),
        None => (host, ""),
    };
    is_port(port)
        && (name.eq_ignore_ascii_case("localhost")
            || name
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_ipv4()))
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new(Some(Token("00ff".repeat(8))), 7480)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let parse =
            |(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        pairs
            .iter()
            .map(|pair| -> (header::HeaderName, header::HeaderValue) { parse(pair) })
            .collect()
    }

    fn judged(uri: &str, pairs: &[(&'static str, &str)]) -> Verdict {
        access().judge(&Method::GET, &uri.parse().unwrap(), &headers(pairs))
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:7480");

    #[test]
    fn the_token_in_the_address_becomes_a_cookie_that_then_admits() {
        let uri = format!("/?token={}", "00ff".repeat(8));
        let Verdict::Remember(cookie) = judged(&uri, &[HOST]) else {
            panic!("not remembered")
        };
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"));
        let kept = cookie.split(';').next().unwrap();
        let other = format!("theme=dark; {kept}");
        assert_eq!(
            judged("/api/run", &[HOST, ("cookie", &other)]),
            Verdict::Admitted
        );
    }

    #[test]
    fn programs_may_send_the_token_in_a_header() {
        let bearer = format!("Bearer {}", "00ff".repeat(8));
        assert_eq!(
            judged("/", &[HOST, ("authorization", &bearer)]),
            Verdict::Admitted
        );
    }

    #[test]
    fn a_wrong_short_or_missing_token_is_refused() {
        let almost = format!("shunt_ui_7480={}ee", "00ff".repeat(8).get(..30).unwrap());
        let other_port = format!("shunt_ui_7481={}", "00ff".repeat(8));
        for cookie in [
            "",
            "shunt_ui_7480=",
            "shunt_ui_7480=00ff",
            &almost,
            &other_port,
        ] {
            assert_eq!(
                judged("/", &[HOST, ("cookie", cookie)]),
                Verdict::NoToken,
                "{cookie}"
            );
        }
        assert_eq!(judged("/?token=00ff", &[HOST]), Verdict::NoToken);
        // Only the page itself takes it from the address.
        let uri = format!("/api/run?token={}", "00ff".repeat(8));
        assert_eq!(judged(&uri, &[HOST]), Verdict::NoToken);
    }

    #[test]
    fn names_that_could_be_rebound_are_refused_before_the_token_is_looked_at() {
        let uri = format!("/?token={}", "00ff".repeat(8));
        for host in [
            "evil.example",
            "evil.example:7480",
            "localhost.evil.example",
            "127.0.0.1.evil",
            "",
            "[::1",
            "localhost:x",
        ] {
            assert!(
                matches!(judged(&uri, &[("host", host)]), Verdict::Foreign(_)),
                "{host}"
            );
        }
        assert!(matches!(judged(&uri, &[]), Verdict::Foreign(_)));
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:7480",
            "[::1]:7480",
            "192.0.2.1",
        ] {
            assert!(
                matches!(judged(&uri, &[("host", host)]), Verdict::Remember(_)),
                "{host}"
            );
        }
    }

    #[test]
    fn other_pages_may_not_send_requests() {
        let bearer = format!("Bearer {}", "00ff".repeat(8));
        let from = |origin: &str| {
            judged(
                "/api/run",
                &[HOST, ("origin", origin), ("authorization", &bearer)],
            )
        };
        assert_eq!(from("http://127.0.0.1:7480"), Verdict::Admitted);
        for origin in ["http://127.0.0.1:8080", "https://evil.example", "null"] {
            assert!(matches!(from(origin), Verdict::Foreign(_)), "{origin}");
        }
    }

    #[test]
    fn tokens_differ_and_do_not_show_themselves() {
        let (one, two) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!(one.digits().len(), 32);
        assert_ne!(one.digits(), two.digits());
        assert_eq!(format!("{one:?}"), "Token");
    }
}
