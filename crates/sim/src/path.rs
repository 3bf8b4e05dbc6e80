//! End-to-end latency as a sum of components, after the `datacenter-latency` paper: what a path costs
//! at least and at most, by component and by kind, for a packet size and a load.
//!
//! Ranges add end-wise. A load adds the mean wait of M/D/1 where a component has a service time. A
//! store-and-forward hop receives the whole packet first, a cut-through hop its header.

mod library;
mod technology;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    formula::mg1_wait,
    scenario::{line_of, place},
};
pub use library::{builtin, builtin_names, components};
pub use technology::{KnownResult, Technology, results, technologies};

/// What a component is: the paper's three kinds of network latency, and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Inside the host: memory, software.
    Host,
    /// From host to wire and back.
    Interface,
    /// Switches.
    Switching,
    /// Cables.
    Propagation,
}

/// How much of a packet a hop receives before it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// All of it.
    Store,
    /// Its header.
    CutThrough,
}

/// A latency: one value, or least and most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Latency {
    /// Known.
    Exact(f64),
    /// Between these.
    Between([f64; 2]),
}

impl Latency {
    fn ends(self) -> [f64; 2] {
        match self {
            Self::Exact(value) => [value, value],
            Self::Between(ends) => ends,
        }
    }
}

/// A part of a path as a file gives it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Component {
    /// A component of the library that this one is, with what is given here in place of its values.
    #[serde(rename = "use")]
    pub uses: Option<String>,
    /// Its name in reports.
    pub name: Option<String>,
    /// What it is.
    pub kind: Option<Kind>,
    /// Its latency for an empty packet.
    pub latency_ns: Option<Latency>,
    /// More for each metre.
    pub latency_ns_per_m: Option<f64>,
    /// Its length.
    pub length_m: Option<f64>,
    /// More for each byte.
    pub per_byte_ns: Option<f64>,
    /// Rate at which it receives, for `forwarding`.
    pub rate_gbps: Option<f64>,
    /// How much it receives before it sends.
    pub forwarding: Option<Forwarding>,
    /// How long it serves one packet, for a load; otherwise the time of the packet at its rate.
    pub service_ns: Option<f64>,
    /// Its own load, in place of the one of the whole path.
    pub load: Option<f64>,
    /// Where the value is from.
    pub source: Option<String>,
}

/// A path as a file gives it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Path {
    /// What it is.
    pub title: String,
    /// Its parts in order.
    pub component: Vec<Component>,
}

/// Why a path cannot be composed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// It is not TOML, or has a key nobody knows.
    #[error("{0}")]
    Syntax(String),
    /// A component that cannot be.
    #[error("{}component {number} ({name}): {reason}", place(*line))]
    Component {
        /// The line that says so; 0 where none does.
        line: usize,
        /// Which one, from 1.
        number: usize,
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// What a component costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// At least.
    pub least_ns: f64,
    /// At most; what waits is in both.
    pub most_ns: f64,
    /// Of both, the mean wait in its queue.
    pub wait_ns: f64,
    /// Where the value is from.
    pub source: String,
}

/// What a path costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Composition {
    /// What it is.
    pub title: String,
    /// Size of the packet.
    pub bytes: f64,
    /// Load of the queues.
    pub load: f64,
    /// Its parts in order.
    pub stages: Vec<Stage>,
}

impl Composition {
    /// One way, at least.
    pub fn least_ns(&self) -> f64 {
        self.stages.iter().map(|stage| stage.least_ns).sum()
    }

    /// One way, at most.
    pub fn most_ns(&self) -> f64 {
        self.stages.iter().map(|stage| stage.most_ns).sum()
    }

    /// Least and most by kind, of the kinds that occur.
    pub fn by_kind(&self) -> Vec<(Kind, f64, f64)> {
        let kinds = [
            Kind::Host,
            Kind::Interface,
            Kind::Switching,
            Kind::Propagation,
        ];
        let sum = |kind| {
            let of_kind = || self.stages.iter().filter(move |stage| stage.kind == kind);
            let least: f64 = of_kind().map(|stage| stage.least_ns).sum();
            let most = of_kind().map(|stage| stage.most_ns).sum();
            (of_kind().count() > 0).then_some((kind, least, most))
        };
        kinds.into_iter().filter_map(sum).collect()
    }
}

/// Bytes that a cut-through switch receives before it sends: the header up to the addresses and the
/// type, rounded up to what switches look at.
const HEADER_BYTES: f64 = 64.0;

impl Path {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let path: Self =
            toml::from_str(text).map_err(|error| PathError::Syntax(error.to_string()))?;
        if path.component.is_empty() {
            let reason = "the path has no [[component]]";
            return Err(PathError::Syntax(reason.to_owned()));
        }
        path.check(64.0, 0.0)
            .map_err(|(index, fault)| fault.of(index, Some(text)))?;
        Ok(path)
    }

    /// What it costs for a packet of this size, with queues at this load.
    pub fn compose(&self, bytes: f64, load: f64) -> Result<Composition, PathError> {
        let stages = self.check(bytes, load);
        Ok(Composition {
            title: self.title.clone(),
            bytes,
            load,
            stages: stages.map_err(|(index, fault)| fault.of(index, None))?,
        })
    }

    fn check(&self, bytes: f64, load: f64) -> Result<Vec<Stage>, (usize, Fault)> {
        let stages = self.component.iter().enumerate();
        stages
            .map(|(index, component)| component.stage(bytes, load).map_err(|fault| (index, fault)))
            .collect()
    }
}

/// What is wrong with a component, and which of its keys says so.
#[derive(Debug)]
struct Fault {
    name: String,
    key: &'static str,
    reason: String,
}

impl Fault {
    fn of(self, index: usize, text: Option<&str>) -> PathError {
        let line_of_key = |text| match line_of(text, &format!("component.{index}.{}", self.key)) {
            0 => line_of(text, &format!("component.{index}")),
            line => line,
        };
        PathError::Component {
            line: text.map_or(0, line_of_key),
            number: index + 1,
            name: self.name,
            reason: self.reason,
        }
    }
}

impl Component {
    /// This component with what the library says where it says nothing itself.
    fn resolved(&self) -> Result<Self, String> {
        let Some(base) = &self.uses else {
            return Ok(self.clone());
        };
        let library = components();
        let known = library.get(base).ok_or_else(|| {
            let names: Vec<&str> = library.keys().map(String::as_str).collect();
            format!("\"{base}\" is not in the library: {}", names.join(", "))
        })?;
        let known = known.clone();
        Ok(Self {
            uses: None,
            name: self.name.clone().or_else(|| Some(base.clone())),
            kind: self.kind.or(known.kind),
            latency_ns: self.latency_ns.or(known.latency_ns),
            latency_ns_per_m: self.latency_ns_per_m.or(known.latency_ns_per_m),
            length_m: self.length_m.or(known.length_m),
            per_byte_ns: self.per_byte_ns.or(known.per_byte_ns),
            rate_gbps: self.rate_gbps.or(known.rate_gbps),
            forwarding: self.forwarding.or(known.forwarding),
            service_ns: self.service_ns.or(known.service_ns),
            load: self.load.or(known.load),
            source: self.source.clone().or(known.source),
        })
    }

    fn stage(&self, bytes: f64, load: f64) -> Result<Stage, Fault> {
        let given = self.name.clone().or_else(|| self.uses.clone());
        let name = given.unwrap_or_else(|| "without a name".to_owned());
        let wrong = |key: &'static str, reason: String| Fault {
            name: name.clone(),
            key,
            reason,
        };
        let needs = |key: &str| format!("needs {key}");
        let c = self.resolved().map_err(|reason| wrong("use", reason))?;
        let [least, most] = match (c.latency_ns, c.latency_ns_per_m) {
            (Some(latency), _) => latency.ends(),
            (None, Some(per_m)) => {
                let length = c.length_m.ok_or_else(|| wrong("use", needs("length_m")))?;
                [per_m * length; 2]
            }
            (None, None) => return Err(wrong("name", "has no latency_ns".to_owned())),
        };
        let load = c.load.unwrap_or(load);
        for (key, value, positive) in [
            ("latency_ns", Some(least), false),
            ("latency_ns", Some(most), false),
            ("latency_ns_per_m", c.latency_ns_per_m, false),
            ("length_m", c.length_m, false),
            ("per_byte_ns", c.per_byte_ns, false),
            ("rate_gbps", c.rate_gbps, true),
            ("service_ns", c.service_ns, false),
            ("load", Some(load), false),
        ] {
            let fits = |v: f64| v.is_finite() && v >= 0.0 && !(positive && v == 0.0);
            if let Some(value) = value.filter(|v| !fits(*v)) {
                return Err(wrong(key, format!("{key} cannot be {value}")));
            }
        }
        if least > most {
            let reason = format!("latency_ns: {least} at least cannot be above {most} at most");
            return Err(wrong("latency_ns", reason));
        }
        let on_wire = |bytes: f64| c.rate_gbps.map(|rate| bytes * 8.0 / rate);
        let received = match c.forwarding {
            None => 0.0,
            Some(Forwarding::Store) => {
                on_wire(bytes).ok_or_else(|| wrong("use", needs("rate_gbps")))?
            }
            Some(Forwarding::CutThrough) => on_wire(bytes.min(HEADER_BYTES)).unwrap_or(0.0),
        };
        let service = c.service_ns.or_else(|| on_wire(bytes)).unwrap_or(0.0);
        if load >= 1.0 && service > 0.0 {
            return Err(wrong("load", format!("has no steady state at load {load}")));
        }
        let wait = if service > 0.0 {
            mg1_wait(load, 0.0) * service
        } else {
            0.0
        };
        let more = received + c.per_byte_ns.unwrap_or(0.0) * bytes + wait;
        Ok(Stage {
            name,
            kind: c.kind.unwrap_or(Kind::Host),
            least_ns: least + more,
            most_ns: most + more,
            wait_ns: wait,
            source: c.source.unwrap_or_else(|| "given".to_owned()),
        })
    }
}
