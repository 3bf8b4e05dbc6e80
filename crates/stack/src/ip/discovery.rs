//! What an interface has learned from its routers, and until when.

use super::route::{Route, Routes};
use tcp::Instant;

/// RFC 4861 §10, MAX_RTR_SOLICITATIONS.
pub(crate) const SOLICITATIONS: u8 = 3;
/// Redirects kept on one interface at most.
pub(super) const REDIRECTS_MAX: usize = 32;

/// A route that holds for a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedRoute {
    pub(super) route: Route,
    pub(super) until: Instant,
}

/// What the routers of one interface have said.
#[derive(Debug)]
pub(crate) struct Discovery {
    /// When the next solicitation leaves.
    pub(super) solicit_at: Instant,
    pub(super) solicitations_left: u8,
    /// Routers and on-link prefixes.
    pub(super) learned: Vec<TimedRoute>,
    /// Better first hops, the oldest first.
    pub(super) redirects: Vec<TimedRoute>,
}

impl Discovery {
    /// Nothing learned; asks for routers if the interface is to listen to them.
    pub(super) fn new(listens: bool) -> Self {
        let (solicit_at, solicitations_left) = if listens {
            (Instant::ZERO, SOLICITATIONS)
        } else {
            (Instant::NEVER, 0)
        };
        Self {
            solicit_at,
            solicitations_left,
            learned: Vec::new(),
            redirects: Vec::with_capacity(REDIRECTS_MAX),
        }
    }

    /// When something is due.
    pub(super) fn next_event(&self) -> Instant {
        let expiries = self.learned.iter().map(|learned| learned.until);
        let redirects = self.redirects.first().map(|oldest| oldest.until);
        let first = expiries.chain(redirects).min();
        first.unwrap_or(Instant::NEVER).min(self.solicit_at)
    }
}

/// Drops the routes of a list for which `is_over` holds.
pub(super) fn forget(
    routes: &mut Routes,
    list: Option<&mut Vec<TimedRoute>>,
    is_over: impl Fn(&TimedRoute) -> bool,
) {
    let Some(list) = list else { return };
    list.retain(|one| {
        let over = is_over(one);
        if over {
            let _ = routes.remove(&one.route);
        }
        !over
    });
}
